#include "bench_report.hpp"

#include <ctime>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/status.hpp"
#include "text.hpp"

namespace lowbit::tools {
namespace {

using nlohmann::ordered_json;

std::string date_text() {
    const std::time_t now = std::time(nullptr);
    char text[32];
    std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
    return text;
}

// What follows from a measurement and the machine's ceilings.
struct Rates {
    double microseconds, gigabytes_per_second, gigaflops, over_fp32, floor_microseconds, time_over_floor, read_fraction,
        arithmetic_fraction;
};

Rates rates(const Measurement& m, const Ceilings& ceilings) {
    const double seconds = m.timing.median, floor = double(m.moved_bytes) / ceilings.read_bytes_per_second;
    return {.microseconds = seconds * 1e6,
            .gigabytes_per_second = double(m.rated_bytes) / seconds / 1e9,
            .gigaflops = m.operations / seconds / 1e9,
            .over_fp32 = m.fp32_seconds / seconds,
            .floor_microseconds = floor * 1e6,
            .time_over_floor = seconds / floor,
            .read_fraction = double(m.matrix_bytes) / seconds / ceilings.read_bytes_per_second,
            .arithmetic_fraction = m.operations / seconds / ceilings.integer_operations_per_second()};
}

std::string label(const Case& what) { return what.format + (what.x_format.empty() ? "" : " x " + what.x_format); }

std::string shape_text(const Case& what) {
    const std::string matrix = core::join(what.shape.n, "x", what.shape.k);
    return what.op == Op::matmul ? core::join(what.shape.m, "x", matrix) : matrix;
}

std::string whole_percent(double fraction) { return fixed(100 * fraction, fraction < 0.0995 ? 1 : 0); }

ordered_json to_json(const Measurement& m, const Ceilings& ceilings) {
    const Rates r = rates(m, ceilings);
    ordered_json row{{"op", op_name(m.what.op)},
                     {"format", m.what.format},
                     {"x_format", m.what.x_format},
                     {"m", m.what.op == Op::matmul ? m.what.shape.m : 0},
                     {"n", m.what.shape.n},
                     {"k", m.what.shape.k},
                     {"kernel", m.kernel},
                     {"runs", m.timing.runs},
                     {"microseconds", r.microseconds},
                     {"best_microseconds", m.timing.best * 1e6},
                     {"gigabytes_per_second", r.gigabytes_per_second},
                     {"floor_microseconds", r.floor_microseconds},
                     {"time_over_floor", r.time_over_floor}};
    if (m.what.op == Op::matmul) {
        row["gigaflops"] = r.gigaflops;
        row["over_fp32"] = r.over_fp32;
        row["read_fraction"] = r.read_fraction;
        row["arithmetic_fraction"] = r.arithmetic_fraction;
    }
    return row;
}

}  // namespace

void print_ceilings(const Ceilings& ceilings) {
    std::cout << styled("ceilings", Style::bold) << " (the best of several runs on " << ceilings.threads
              << (ceilings.threads == 1 ? " thread" : " threads") << ")\n";
    Table table({{"what", Align::left}, {"rate"}, {"", Align::left}});
    table.row({"reading memory", fixed(ceilings.read_bytes_per_second / 1e9, 1), "GB/s"});
    for (const IntegerPeak& peak : ceilings.integer)
        table.row({"integer dot products, " + peak.isa, fixed(peak.operations_per_second / 1e9, 0), "GOP/s"});
    table.print(std::cout);
}

void print_disturbance(const Ceilings& before, const Ceilings& after) {
    constexpr double tolerated = 1.1;
    const double read = after.read_bytes_per_second / before.read_bytes_per_second;
    const double integer = after.integer_operations_per_second() / before.integer_operations_per_second();
    if (read <= tolerated && integer <= tolerated) return;
    std::cout << "\nThis machine was busy: measured again at the end, reading reached " << fixed(after.read_bytes_per_second / 1e9, 1)
              << " GB/s and integer dot products " << fixed(after.integer_operations_per_second() / 1e9, 0)
              << " GOP/s.\nThe floors and percentages above are too kind; a JSON file has them with the better ceilings.\n";
}

void BenchTable::begin(Op op) {
    op_ = op;
    const bool is_matmul = op == Op::matmul;
    std::vector<Column> columns = {{"format", Align::left, 19},
                                   {"shape", Align::left, is_matmul ? size_t(14) : size_t(10)},
                                   {"kernel", Align::left, is_matmul ? size_t(20) : size_t(26)},
                                   {"µs", Align::right, 9},
                                   {"GB/s", Align::right, 5}};
    if (is_matmul) columns.insert(columns.end(), {{"GFLOP/s"}, {"over\nfp32", Align::right, 5}});
    columns.insert(columns.end(), {{"floor\nµs", Align::right, 7}, {"time/\nfloor", Align::right, 5}});
    if (is_matmul) columns.insert(columns.end(), {{"% of\nread", Align::right, 4}, {"% of\narith", Align::right, 5}});
    std::cout << '\n' << styled(op_name(op), Style::bold) << '\n';
    table_.emplace(std::cout, columns);
    table_->headings();
}

void BenchTable::add(const Measurement& m) {
    if (!table_ || m.what.op != op_) begin(m.what.op);
    const Rates r = rates(m, ceilings_);
    Cells cells = {label(m.what), shape_text(m.what), m.kernel, fixed(r.microseconds, 1),
                   fixed(r.gigabytes_per_second, r.gigabytes_per_second < 10 ? 2 : 1)};
    if (op_ == Op::matmul) cells.insert(cells.end(), {fixed(r.gigaflops, 1), fixed(r.over_fp32, 2)});
    cells.insert(cells.end(), {fixed(r.floor_microseconds, 1), fixed(r.time_over_floor, r.time_over_floor < 100 ? 2 : 0)});
    if (op_ == Op::matmul) cells.insert(cells.end(), {whole_percent(r.read_fraction), whole_percent(r.arithmetic_fraction)});
    table_->row(cells);
}

void write_json(const std::string& path, const std::string& commit, const Ceilings& ceilings,
                const std::vector<Measurement>& measurements) {
    ordered_json peaks = ordered_json::array(), rows = ordered_json::array();
    for (const IntegerPeak& peak : ceilings.integer)
        peaks.push_back({{"isa", peak.isa}, {"gigaoperations_per_second", peak.operations_per_second / 1e9}});
    for (const Measurement& measurement : measurements) rows.push_back(to_json(measurement, ceilings));
    const ordered_json all{{"machine",
                            {{"cpu", processor_name()},
                             {"threads", ceilings.threads},
                             {"last_level_cache_bytes", last_level_cache_bytes()},
                             {"read_gigabytes_per_second", ceilings.read_bytes_per_second / 1e9},
                             {"integer_peaks", peaks}}},
                           {"version", lowbit_version()},
                           {"commit", commit},
                           {"date", date_text()},
                           {"rows", rows}};
    std::ofstream file(path);
    file << all.dump(2) << '\n';
    file.close();
    if (!file) core::fail(Status::io_error, path, ": cannot write the file");
}

}  // namespace lowbit::tools
