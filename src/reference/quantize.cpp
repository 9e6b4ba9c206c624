#include "reference/quantize.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/status.hpp"
#include "reference/codes.hpp"
#include "reference/ggml.hpp"

namespace lowbit::reference {
namespace {

using core::Format;
using core::QuantizedView;

// The row in fp32: in place where it already is, otherwise converted into `scratch`.
const float* row_values(const core::Tensor& x, int64_t row, std::vector<float>& scratch) {
    if (x.element == Element::fp32 && x.rows_are_contiguous()) return static_cast<const float*>(x.data) + x.offset(row, 0);
    scratch.resize(size_t(x.columns));
    for (int64_t column = 0; column < x.columns; ++column) scratch[size_t(column)] = core::load(x, row, column);
    return scratch.data();
}

bool needs_magnitudes(const Format& format) { return format.element == Element::int1; }

}  // namespace

void Statistics::add_row(const float* x, int64_t n, bool with_magnitudes) {
    for (int64_t i = 0; i < n; ++i) add(x[i]);
    if (!with_magnitudes) return;
    std::array<double, 32> lanes{};
    for (int64_t i = 0; i < n; ++i) {
        if (!core::is_finite(x[i])) continue;
        lanes[size_t(i % 32)] += std::fabs(double(x[i]));
        ++finite;
    }
    for (size_t half = 16; half > 0; half /= 2)
        for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    magnitudes += lanes[0];
}

void Statistics::merge(const Statistics& next) {
    Range::merge(next);
    magnitudes += next.magnitudes;
    finite += next.finite;
}

bool Quantizer::needs_tensor_statistics() const {
    const Format& format = problem_.result.format;
    return needs_scales() && (format.granularity == Granularity::tensor || format.has_tensor_scale());
}

Statistics Quantizer::row_statistics(int64_t row) const {
    std::vector<float> scratch;
    Statistics statistics;
    statistics.add_row(row_values(problem_.x, row, scratch), problem_.x.columns, needs_magnitudes(problem_.result.format));
    return statistics;
}

void Quantizer::set_tensor_statistics(const Statistics& statistics) const {
    const QuantizedView& result = problem_.result;
    if (result.format.has_tensor_scale())
        *result.tensor_scale = fitted_tensor_scale(result.format.element, statistics);
    else
        store_scale(0, statistics);
}

bool Quantizer::needs_scales() const { return !problem_.static_scales && problem_.result.format.granularity != Granularity::none; }

int64_t Quantizer::scale_rows() const {
    const Format& format = problem_.result.format;
    if (!needs_scales() || format.granularity == Granularity::tensor) return 0;
    return format.granularity == Granularity::block ? core::ceil_div(problem_.x.rows, format.group_rows) : problem_.x.rows;
}

void Quantizer::compute_scales(int64_t scale_row) const {
    const Format& format = problem_.result.format;
    const int64_t columns = problem_.x.columns, rows = problem_.x.rows;
    const int64_t height = format.granularity == Granularity::block ? format.group_rows : 1;
    const int64_t first_row = scale_row * height, last_row = std::min(first_row + std::min(height, rows), rows);
    const int64_t span = format.span(columns), groups = format.granularity == Granularity::row ? 1 : core::ceil_div(columns, span);
    std::vector<float> scratch;
    std::vector<Statistics> statistics(size_t(groups), Statistics{});
    for (int64_t row = first_row; row < last_row; ++row) {
        const float* x = row_values(problem_.x, row, scratch);
        for (int64_t group = 0; group < groups; ++group)
            statistics[size_t(group)].add_row(x + group * span, std::min(span, columns - group * span), needs_magnitudes(format));
    }
    for (int64_t group = 0; group < groups; ++group) store_scale(scale_row * groups + group, statistics[size_t(group)]);
}

void Quantizer::store_scale(int64_t index, const Statistics& statistics) const {
    const QuantizedView& result = problem_.result;
    const Format& format = result.format;
    const Scale scale = make_scale(format, statistics, statistics.mean(), format.has_tensor_scale() ? *result.tensor_scale : 0.0f);
    store_scale_bits(format.scale, result.scales, index, scale.bits);
    if (format.asymmetric) result.zero_points[index] = scale.zero_point;
}

void Quantizer::encode_row(int64_t row) const {
    const QuantizedView& result = problem_.result;
    const Format& format = result.format;
    const int64_t columns = problem_.x.columns;
    std::vector<float> scratch;
    const float* x = row_values(problem_.x, row, scratch);
    uint8_t* codes = result.row_codes(row);
    if (format.is_ggml()) {
        const GgmlType& type = *find_ggml_type(format.element);
        for (int64_t block = 0; block < columns / type.values; ++block) type.quantize(x + block * type.values, codes + block * type.bytes);
        return;
    }
    if (format.is_plain()) {
        for (int64_t i = 0; i < columns; ++i) core::store(format.element, codes, i, x[i]);
        return;
    }
    if (columns == 0) return;
    std::memset(codes, 0, size_t(result.row_bytes()));
    const int64_t span = format.span(columns);
    for (int64_t column = 0; column < columns;) {
        const int64_t end = std::min(columns, (column / span + 1) * span);
        const int64_t index = format.scale_index(row, column, columns);
        const float scale = result.scale_at(index);
        const int zero_point = result.zero_point_at(index);
        encode_group(format.element, x + column, end - column, scale, zero_point, codes, column);
        column = end;
    }
}

void quantize(const core::QuantizeProblem& problem) {
    const Quantizer quantizer(problem);
    if (quantizer.needs_tensor_statistics()) {
        Statistics all;
        for (int64_t row = 0; row < problem.x.rows; ++row) all.merge(quantizer.row_statistics(row));
        quantizer.set_tensor_statistics(all);
    }
    for (int64_t row = 0; row < quantizer.scale_rows(); ++row) quantizer.compute_scales(row);
    for (int64_t row = 0; row < problem.x.rows; ++row) quantizer.encode_row(row);
}

void dequantize_row(const core::DequantizeProblem& problem, int64_t row) {
    const core::Tensor& y = problem.y;
    if (y.element == Element::fp32 && y.rows_are_contiguous())
        return decode_row(problem.x, row, 0, y.columns, static_cast<float*>(y.data) + y.offset(row, 0));
    std::vector<float> values(static_cast<size_t>(y.columns));
    decode_row(problem.x, row, 0, y.columns, values.data());
    for (int64_t column = 0; column < y.columns; ++column) core::store(y.element, y.data, y.offset(row, column), values[size_t(column)]);
}

void dequantize(const core::DequantizeProblem& problem) {
    for (int64_t row = 0; row < problem.y.rows; ++row) dequantize_row(problem, row);
}

void convert(const core::ConvertProblem& problem) {
    const core::Tensor &x = problem.x, &y = problem.y;
    for (int64_t row = 0; row < y.rows; ++row)
        for (int64_t column = 0; column < y.columns; ++column)
            core::store(y.element, y.data, y.offset(row, column), core::load(x, row, column));
}

}  // namespace lowbit::reference
