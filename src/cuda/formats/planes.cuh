// Where the planes of a quantized matrix hold what: core::QuantizedView for device code. Everything here compiles for the host too, where
// the tests compare it with the reference.
#pragma once
#include "core/ggml_blocks.hpp"
#include "core/tensor.hpp"

namespace lowbit::cuda {

// Division of numbers that are not negative. Nearly always both fit in 32 bits, where a GPU divides several times faster.
LOWBIT_HOST_DEVICE inline int64_t quotient(int64_t a, int64_t b) {
    if (uint64_t(a | b) >> 32 == 0) return int64_t(uint32_t(a) / uint32_t(b));
    return a / b;
}

LOWBIT_HOST_DEVICE inline int64_t rounded_up_quotient(int64_t a, int64_t b) { return a == 0 ? 0 : quotient(a - 1, b) + 1; }

LOWBIT_HOST_DEVICE inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

LOWBIT_HOST_DEVICE inline bool is_ggml(Element element) { return int(element) >= int(Element::q4_0); }

// Of one code; GGML types have none.
LOWBIT_HOST_DEVICE inline int code_bits(Element element) {
    switch (element) {
    case Element::fp32: return 32;
    case Element::fp16:
    case Element::bf16: return 16;
    case Element::int8:
    case Element::uint8:
    case Element::fp8_e4m3:
    case Element::fp8_e5m2: return 8;
    case Element::int1: return 1;
    default: return 4;
    }
}

LOWBIT_HOST_DEVICE inline int64_t row_bytes(const core::QuantizedView& view) {
    const Element element = view.format.element;
    if (is_ggml(element)) return quotient(view.columns, core::ggml_block(element).values) * core::ggml_block(element).bytes;
    return (view.columns * code_bits(element) + 7) / 8;
}

LOWBIT_HOST_DEVICE inline uint8_t* row_codes(const core::QuantizedView& view, int64_t row) { return view.codes + row * row_bytes(view); }

// Values that share a scale along K.
LOWBIT_HOST_DEVICE inline int64_t scale_span(const core::Format& format, int64_t columns) {
    const bool grouped = format.granularity == Granularity::group || format.granularity == Granularity::block;
    const int64_t whole = columns > 1 ? columns : 1;
    return grouped ? smaller(format.group_columns, whole) : whole;
}

// Where the scale of (row, column) stands in the plane of scales.
LOWBIT_HOST_DEVICE inline int64_t scale_index(const core::Format& format, int64_t row, int64_t column, int64_t columns) {
    switch (format.granularity) {
    case Granularity::row: return row;
    case Granularity::group:
    case Granularity::block: {
        const int64_t scale_row = format.granularity == Granularity::block ? quotient(row, format.group_rows) : row;
        return scale_row * rounded_up_quotient(columns, format.group_columns) + quotient(column, format.group_columns);
    }
    default: return 0;
    }
}

// In fp32, with the tensor's own scale multiplied in. Without a plane of scales all of them are 1.
LOWBIT_HOST_DEVICE inline float scale_at(const core::QuantizedView& view, int64_t index) {
    if (view.scales == nullptr) return 1.0f;
    switch (view.format.scale) {
    case Element::fp16: return core::fp16_to_float(static_cast<const uint16_t*>(view.scales)[index]);
    case Element::bf16: return core::bf16_to_float(static_cast<const uint16_t*>(view.scales)[index]);
    case Element::e8m0: return core::e8m0_to_float(static_cast<const uint8_t*>(view.scales)[index]);
    case Element::fp8_e4m3: return core::multiply(core::e4m3_to_float(static_cast<const uint8_t*>(view.scales)[index]), *view.tensor_scale);
    default: return static_cast<const float*>(view.scales)[index];
    }
}

LOWBIT_HOST_DEVICE inline int zero_point_at(const core::QuantizedView& view, int64_t index) {
    return view.zero_points ? view.zero_points[index] : 0;
}

}  // namespace lowbit::cuda
