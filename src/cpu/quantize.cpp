#include "cpu/quantize.hpp"

#include <algorithm>
#include <vector>

#include "core/ggml_blocks.hpp"
#include "core/status.hpp"
#include "cpu/prepare.hpp"
#include "reference/quantize.hpp"

namespace lowbit::cpu {
namespace {

using core::QuantizeProblem;
using reference::Quantizer;
using reference::Statistics;

// A row of x in fp32: in place, or converted into `scratch`.
const float* row_values(const Isa& isa, const core::Tensor& x, int64_t row, std::vector<float>& scratch) {
    if (x.element == Element::fp32 && x.rows_are_contiguous()) return static_cast<const float*>(x.data) + x.offset(row, 0);
    scratch.resize(size_t(x.columns));
    core::Operand operand;
    operand.tensor = x;
    load_row(isa, operand, row, 0, x.columns, scratch.data());
    return scratch.data();
}

Statistics symmetric(float largest) {
    Statistics statistics;
    statistics.lowest = -largest;
    statistics.highest = largest;
    return statistics;
}

// body(row) for all rows, several per task.
template <class Body>
void for_rows(const core::Context& context, int64_t rows, const Body& body) {
    constexpr int64_t per_task = 8;
    context.parallel(core::ceil_div(rows, per_task), [&](int64_t task) {
        for (int64_t row = task * per_task; row < std::min(rows, (task + 1) * per_task); ++row) body(row);
    });
}

}  // namespace

std::string supports_quantize_int8(const QuantizeProblem& problem) {
    if (problem.result.format.element != Element::int8) return "for int8";
    if (problem.result.format.granularity == Granularity::block) return "no blocks of several rows";
    return "";
}

void run_quantize_int8(const Isa& isa, const QuantizeProblem& problem) {
    const core::QuantizedView& result = problem.result;
    const int64_t columns = problem.x.columns, span = result.format.span(columns);
    const Quantizer quantizer(problem);
    const bool per_tensor = result.format.granularity == Granularity::tensor;
    if (quantizer.needs_tensor_statistics()) {
        std::vector<float> largest(size_t(problem.x.rows), 0.0f);
        for_rows(*problem.context, problem.x.rows, [&](int64_t row) {
            std::vector<float> scratch;
            largest[size_t(row)] = isa.largest(row_values(isa, problem.x, row, scratch), columns);
        });
        quantizer.set_tensor_statistics(symmetric(largest.empty() ? 0.0f : *std::ranges::max_element(largest)));
    }
    for_rows(*problem.context, problem.x.rows, [&](int64_t row) {
        std::vector<float> scratch;
        const float* x = row_values(isa, problem.x, row, scratch);
        auto* codes = reinterpret_cast<int8_t*>(result.row_codes(row));
        // A row without columns still has its one scale.
        for (int64_t column = 0; column < std::max<int64_t>(columns, result.format.granularity == Granularity::row); column += span) {
            const int64_t count = std::min(span, columns - column), index = result.format.scale_index(row, column, columns);
            if (quantizer.needs_scales() && !per_tensor) quantizer.store_scale(index, symmetric(isa.largest(x + column, count)));
            if (count > 0) isa.quantize_int8(x + column, count, result.scale_at(index), codes + column);
        }
    });
}

std::string supports_quantize_ggml(const QuantizeProblem& problem) {
    const Element element = problem.result.format.element;
    return element == Element::q4_0 || element == Element::q8_0 || element == Element::q8_1 ? "" : "for q4_0, q8_0 and q8_1";
}

void run_quantize_ggml(const Isa& isa, const QuantizeProblem& problem) {
    const Element element = problem.result.format.element;
    const auto quantize = element == Element::q4_0 ? isa.quantize_q4_0 : element == Element::q8_0 ? isa.quantize_q8_0 : isa.quantize_q8_1;
    for_rows(*problem.context, problem.x.rows, [&](int64_t row) {
        std::vector<float> scratch;
        quantize(row_values(isa, problem.x, row, scratch), problem.x.columns / core::ggml_block(element).values,
                 problem.result.row_codes(row));
    });
}

void run_quantize_rows(const QuantizeProblem& problem) {
    const core::Context& context = *problem.context;
    const Quantizer quantizer(problem);
    const int64_t rows = problem.x.rows;
    if (quantizer.needs_tensor_statistics()) {
        std::vector<Statistics> statistics(static_cast<size_t>(rows));
        for_rows(context, rows, [&](int64_t row) { statistics[size_t(row)] = quantizer.row_statistics(row); });
        Statistics all;
        for (const Statistics& row : statistics) all.merge(row);
        quantizer.set_tensor_statistics(all);
    }
    context.parallel(quantizer.scale_rows(), [&](int64_t row) { quantizer.compute_scales(row); });
    for_rows(context, rows, [&](int64_t row) { quantizer.encode_row(row); });
}

void run_dequantize_rows(const core::DequantizeProblem& problem) {
    for_rows(*problem.context, problem.y.rows, [&](int64_t row) { reference::dequantize_row(problem, row); });
}

}  // namespace lowbit::cpu
