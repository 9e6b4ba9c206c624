#include "cpu/row_scales.hpp"

#include <algorithm>
#include <vector>

#include "core/numeric.hpp"
#include "core/status.hpp"
#include "reference/codes.hpp"

namespace lowbit::cpu {
namespace {

const float* e8m0_table() {
    static const std::vector<float> table = [] {
        std::vector<float> made;
        for (int code = 0; code < 256; ++code) made.push_back(core::e8m0_to_float(uint8_t(code)));
        return made;
    }();
    return table.data();
}

}  // namespace

void RowScales::load(const Isa& isa, const core::QuantizedView& view, int64_t first_row, int64_t rows) {
    const core::Format& format = view.format;
    const bool grouped = format.granularity == Granularity::group || format.granularity == Granularity::block;
    groups = grouped ? core::ceil_div(view.columns, format.group_columns) : 1;
    const int64_t count = rows * groups;
    scales = std::make_unique_for_overwrite<float[]>(size_t(count));
    if (format.asymmetric) zeros = std::make_unique_for_overwrite<float[]>(size_t(count));
    if (format.granularity == Granularity::group || format.granularity == Granularity::row)
        return load_run(isa, view, first_row * groups, count, 0);
    // Rows of a block, or of the tensor, have the same.
    int64_t before = -1;
    for (int64_t at = 0; at < count; at += groups) {
        const int64_t first = format.scale_index(first_row + at / groups, 0, view.columns);
        if (first != before) {
            load_run(isa, view, first, groups, at);
        } else {
            std::copy_n(scales.get() + at - groups, groups, scales.get() + at);
            if (zeros) std::copy_n(zeros.get() + at - groups, groups, zeros.get() + at);
        }
        before = first;
    }
}

// Scales that stand one after the other in their plane.
void RowScales::load_run(const Isa& isa, const core::QuantizedView& view, int64_t first, int64_t count, int64_t to) {
    const Element type = view.format.scale;
    const auto* source = static_cast<const uint8_t*>(view.scales) + first * core::element_bytes(type);
    if (core::element_bytes(type) > 1) {
        isa.to_float(type, source, scales.get() + to, count);
    } else {
        const float* table = type == Element::e8m0 ? e8m0_table() : reference::code_values(type).data();
        const float unit = view.tensor_scale ? *view.tensor_scale : 1.0f;
        for (int64_t i = 0; i < count; ++i) scales[size_t(to + i)] = table[source[i]] * unit;
    }
    for (int64_t i = 0; zeros && i < count; ++i) zeros[size_t(to + i)] = float(view.zero_points[first + i]);
}

bool is_rows_of_numbers(const core::Operand& operand) {
    const Element element = operand.format().element;
    if (operand.is_quantized ? !operand.format().is_plain() : operand.tensor.column_stride != 1) return false;
    return element == Element::fp32 || element == Element::fp16 || element == Element::bf16;
}

CodedWeight coded_rows(const Isa& isa, const core::Operand& operand, int64_t first, int64_t rows, RowScales& scales) {
    CodedWeight weight;
    if (operand.is_quantized && !operand.format().is_plain()) {
        weight = rows_of_weight<CodedWeight>(isa, operand.quantized, first, rows, scales);
        weight.element = operand.format().element;
        return weight;
    }
    static constexpr float one = 1.0f;
    weight.element = operand.format().element;
    weight.scales = &one;
    weight.rows = rows;
    weight.columns = weight.group = operand.columns();
    if (operand.is_quantized) {
        weight.codes = operand.quantized.row_codes(first);
        weight.row_stride = operand.quantized.row_bytes();
    } else {
        const int64_t bytes = core::element_bytes(weight.element);
        weight.codes = static_cast<const uint8_t*>(operand.tensor.data) + operand.tensor.offset(first, 0) * bytes;
        weight.row_stride = operand.tensor.row_stride * bytes;
    }
    return weight;
}

}  // namespace lowbit::cpu
