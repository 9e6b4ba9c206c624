// lowbit bench: how fast each verb is, beside what the machine could do at best.
#include <CLI/CLI.hpp>
#include <charconv>
#include <iostream>

#include "bench_report.hpp"
#include "commands.hpp"
#include "core/status.hpp"

namespace lowbit::tools {
namespace {

struct Options {
    std::string op = "";
    std::vector<std::string> formats, shapes;
    std::string x_format, json, commit;
    MeasureOptions measure{};
};

// "1x28672x4096", or "28672x4096" for one token.
Shape parse_shape(const std::string& text) {
    std::vector<int64_t> sizes;
    for (const char *next = text.data(), *end = next + text.size(); next <= end;) {
        int64_t size = 0;
        const auto [stop, error] = std::from_chars(next, end, size);
        const bool is_size = error == std::errc{} && size > 0 && (stop == end || *stop == 'x');
        core::require(is_size, "--shape ", text, ": is no shape; use MxNxK or NxK with positive numbers, such as 1x28672x4096");
        sizes.push_back(size);
        next = stop + 1;
    }
    core::require(sizes.size() == 2 || sizes.size() == 3, "--shape ", text, ": has ", sizes.size(), " sizes; use MxNxK or NxK");
    return sizes.size() == 3 ? Shape{sizes[0], sizes[1], sizes[2]} : Shape{1, sizes[0], sizes[1]};
}

// A short table that shows where this machine stands.
std::vector<Case> representative_cases() {
    std::vector<Case> cases;
    for (const int64_t tokens : {1, 2})
        for (const auto& [format, x_format] : {std::pair{"q4_0", "q8_1"}, std::pair{"int4:g128", ""}, std::pair{"int8:row", ""}})
            cases.push_back({Op::matmul, format, x_format, {tokens, 4096, 14336}});
    for (const auto& [format, x_format] : {std::pair{"int8:row", "int8:row"}, std::pair{"q4_0", "q8_1"}})
        cases.push_back({Op::matmul, format, x_format, {512, 4096, 14336}});
    for (const char* format : {"q4_0", "int8:row"}) cases.push_back({Op::quantize, format, "", {1, 4096, 14336}});
    return cases;
}

std::vector<Case> asked_cases(const Options& options) {
    std::vector<Op> ops;
    for (const Op op : {Op::matmul, Op::quantize, Op::dequantize})
        if (options.op == "all" || options.op == op_name(op) || (options.op.empty() && op == Op::matmul)) ops.push_back(op);
    std::vector<Shape> shapes;
    for (const std::string& text : options.shapes) shapes.push_back(parse_shape(text));
    if (shapes.empty()) shapes = {{1, 4096, 14336}, {2, 4096, 14336}};
    const std::vector<std::string> default_formats = {"q4_0", "int4:g128", "int8:row"};
    std::vector<Case> cases;
    for (const Op op : ops)
        for (const Shape& shape : shapes) {
            // The shapes of products with other numbers of tokens are one shape to the other verbs.
            const Shape used = op == Op::matmul ? shape : Shape{1, shape.n, shape.k};
            for (const std::string& format : options.formats.empty() ? default_formats : options.formats) {
                const std::string name = Format(format).print();
                const Case one{op, name, op == Op::matmul ? options.x_format : "", used};
                const bool is_known = std::ranges::any_of(
                    cases, [&](const Case& other) { return other.op == op && other.format == name && other.shape == used; });
                if (!is_known) cases.push_back(one);
            }
        }
    return cases;
}

void run(const Options& options) {
    const bool is_plain_call = options.op.empty() && options.formats.empty() && options.shapes.empty() && options.x_format.empty();
    if (!options.x_format.empty()) Format{options.x_format};
    const std::vector<Case> cases = is_plain_call ? representative_cases() : asked_cases(options);
    Bench bench(options.measure);
    const Ceilings ceilings = measure_ceilings(bench.threads(), options.measure.seconds);
    print_ceilings(ceilings);
    std::vector<Measurement> measurements;
    BenchTable table(ceilings);
    for (const Case& what : cases) {
        measurements.push_back(bench.measure(what));
        table.add(measurements.back());
    }
    const Ceilings best = cases.empty() ? ceilings : improved(ceilings, options.measure.seconds);
    print_disturbance(ceilings, best);
    if (!options.json.empty()) write_json(options.json, options.commit, best, measurements);
}

}  // namespace

void add_bench(CLI::App& app) {
    CLI::App* command = app.add_subcommand("bench", "How fast each verb is, beside what the machine could do at best");
    const auto options = std::make_shared<Options>();
    command->add_option("--op", options->op, "matmul, quantize, dequantize, peak (the ceilings alone) or all")
        ->check(CLI::IsMember({"matmul", "quantize", "dequantize", "peak", "all"}));
    command->add_option("--format", options->formats, "Format of the weight; may be repeated")->take_all();
    command->add_option("--shape", options->shapes, "MxNxK: tokens, rows and columns of the weight; may be repeated")->take_all();
    command->add_option("--x-format", options->x_format,
                        "The tokens of a matmul are in this format; they are quantized before the time is taken");
    command->add_flag("--on-the-way", options->measure.quantize_on_the_way, "Quantize the tokens inside the measured time");
    command->add_option("--kernel", options->measure.kernel, "Measure this kernel; `lowbit info` lists them");
    command->add_option("--threads", options->measure.threads, "0: all processors")->capture_default_str();
    command->add_option("--seconds", options->measure.seconds, "Time for each measurement")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    command->add_option("--json", options->json, "Write everything to this file too")->type_name("FILE");
    command->add_option("--commit", options->commit, "The commit to name in the JSON file");
    command->callback([options] { run(*options); });
    command->footer("Weights are rotated over enough copies to exceed the last-level cache. Without options: a short table.");
}

}  // namespace lowbit::tools
