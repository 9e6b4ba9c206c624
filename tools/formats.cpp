// lowbit formats: what every format costs and loses.
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "core/format.hpp"
#include "core/ggml_blocks.hpp"
#include "core/status.hpp"
#include "lowbit/lowbit.hpp"
#include "matrix.hpp"
#include "table.hpp"
#include "text.hpp"

namespace lowbit::tools {
namespace {

constexpr int64_t size_rows = 4096, size_columns = 4096;   // the shape whose bytes are listed
constexpr int64_t error_rows = 256, error_columns = 4096;  // the shape whose error is measured
constexpr uint64_t seed = 1;

struct Row {
    std::string name, group, limits;
    double bits_per_weight = 0;
    int64_t bytes = 0;
    double error = 0;
};

// Values under one scale. The blocks of the K formats hold smaller blocks with scales of their own.
std::string group_text(const core::Format& format) {
    switch (format.element) {
    case Element::q2_k:
    case Element::q3_k:
    case Element::q6_k: return "16 in 256";
    case Element::q4_k:
    case Element::q5_k: return "32 in 256";
    default: break;
    }
    if (format.is_ggml()) return std::to_string(core::ggml_block(format.element).values);
    switch (format.granularity) {
    case Granularity::none: return "";
    case Granularity::tensor: return "tensor";
    case Granularity::row: return "row";
    case Granularity::group: return std::to_string(format.group_columns);
    case Granularity::block: return cross({format.group_rows, format.group_columns});
    }
    return "";
}

// What the format cannot do, or asks for.
std::string limits_text(const core::Format& format) {
    if (format.element == Element::q8_1) return "K in multiples of 32; made for activations";
    if (format.is_ggml()) return core::join("K in multiples of ", core::ggml_block(format.element).values);
    const bool is_wide = format.granularity == Granularity::tensor || format.granularity == Granularity::row;
    switch (format.element) {
    case Element::fp16: return "11 significant bits; magnitudes up to 65504";
    case Element::bf16: return "8 significant bits";
    case Element::int1: return "keeps the signs alone";
    case Element::fp8_e4m3: return format.scale == Element::e8m0 ? "4 significant bits; scales are powers of two" : "4 significant bits";
    case Element::fp8_e5m2: return "3 significant bits";
    case Element::fp4_e2m1: return format.scale == Element::e8m0 ? "2 significant bits; scales are powers of two" : "2 significant bits";
    default: return is_wide ? core::join("one outlier coarsens its whole ", group_text(format)) : "";
    }
}

Row measure(const Context& context, const core::Format& format, const Matrix& data) {
    const core::PlaneSizes sizes = format.measure(size_rows, size_columns);
    const Quantized quantized = quantize(context, data.view(), format.print());
    Matrix back(data.rows, data.columns);
    dequantize(context, quantized, back.view());
    RelativeError error;
    error.add(back.values.get(), data.values.get(), data.size());
    return {.name = format.print(),
            .group = group_text(format),
            .limits = limits_text(format),
            .bits_per_weight = format.bits_per_weight(size_rows, size_columns),
            .bytes = sizes.total(),
            .error = error.value()};
}

void print_json(const std::vector<Row>& rows) {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const Row& row : rows)
        list.push_back({{"name", row.name},
                        {"bits_per_weight", row.bits_per_weight},
                        {"group", row.group},
                        {"bytes_4096x4096", row.bytes},
                        {"relative_error", row.error},
                        {"limits", row.limits}});
    std::cout << list.dump(2) << '\n';
}

void print_table(const std::vector<Row>& rows) {
    Table table({{"format", Align::left},
                 {"bits per\nweight"},
                 {"values per\nscale"},
                 {"4096 x 4096\nMB"},
                 {"relative\nerror"},
                 {"limits", Align::left}});
    for (const Row& row : rows)
        table.row({row.name, fixed(row.bits_per_weight, 3), row.group, megabytes(row.bytes), percent(row.error), row.limits});
    table.print(std::cout);
    std::cout << "\nThe error is ‖decoded - x‖ / ‖x‖ for " << error_rows << " x " << error_columns
              << " normal numbers, measured now. Other groups and scale types work too:\n"
                 "int4:g96, fp8_e4m3:block64, int8:row:scale_bf16, ... A group at the end of a row may be short.\n";
}

void run(bool as_json) {
    const Context context = Context::cpu();
    const Matrix data = normal_matrix(error_rows, error_columns, seed);
    std::vector<Row> rows;
    for (const core::Format& format : core::common_formats()) rows.push_back(measure(context, format, data));
    as_json ? print_json(rows) : print_table(rows);
}

}  // namespace

void add_formats(CLI::App& app) {
    CLI::App* command = app.add_subcommand("formats", "Every format: its size, and its error on normal numbers");
    const auto as_json = std::make_shared<bool>(false);
    command->add_flag("--json", *as_json, "Print JSON");
    command->callback([as_json] { run(*as_json); });
}

}  // namespace lowbit::tools
