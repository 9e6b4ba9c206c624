// Plain numbers in units of eight neighbours of a row: what one thread reads or writes at a time.
#pragma once
#include "core/tensor.hpp"
#include "cuda/formats/load_bytes.cuh"
#include "cuda/formats/planes.cuh"

namespace lowbit::cuda {

constexpr int unit_values = 8;

LOWBIT_HOST_DEVICE inline int64_t units_per_row(int64_t columns) { return (columns + unit_values - 1) / unit_values; }

// A unit of a matrix whose rows are `per_row` units long.
struct UnitPosition {
    int64_t row, column;

    LOWBIT_HOST_DEVICE UnitPosition(int64_t index, int64_t per_row)
        : row(quotient(index, per_row)), column((index - row * per_row) * unit_values) {}
    LOWBIT_HOST_DEVICE int valid(int64_t columns) const { return int(smaller(unit_values, columns - column)); }
};

LOWBIT_HOST_DEVICE inline float load_value(Element element, const void* data, int64_t index) {
    switch (element) {
    case Element::fp16: return core::fp16_to_float(static_cast<const uint16_t*>(data)[index]);
    case Element::bf16: return core::bf16_to_float(static_cast<const uint16_t*>(data)[index]);
    default: return static_cast<const float*>(data)[index];
    }
}

LOWBIT_HOST_DEVICE inline float load_value(const core::Tensor& x, int64_t row, int64_t column) {
    return load_value(x.element, x.data, row * x.row_stride + column * x.column_stride);
}

LOWBIT_HOST_DEVICE inline void store_value(Element element, void* data, int64_t index, float value) {
    switch (element) {
    case Element::fp16: static_cast<uint16_t*>(data)[index] = core::float_to_fp16(value); break;
    case Element::bf16: static_cast<uint16_t*>(data)[index] = core::float_to_bf16(value); break;
    default: static_cast<float*>(data)[index] = value; break;
    }
}

LOWBIT_HOST_DEVICE inline int bytes_of(Element plain) { return plain == Element::fp32 ? 4 : 2; }

// Eight 16-bit numbers of either kind from four words.
LOWBIT_HOST_DEVICE inline void widen(Element element, const uint32_t (&words)[4], float (&values)[unit_values]) {
    LOWBIT_UNROLL
    for (int i = 0; i < unit_values; ++i) {
        const uint16_t bits = uint16_t(words[i / 2] >> (16 * (i % 2)));
        values[i] = element == Element::fp16 ? core::fp16_to_float(bits) : core::bf16_to_float(bits);
    }
}

// The first `valid` values of a unit; the others are 0.
LOWBIT_HOST_DEVICE inline void load_unit(const core::Tensor& x, int64_t row, int64_t column, int valid, float (&values)[unit_values]) {
    const uint8_t* from = static_cast<const uint8_t*>(x.data) + (row * x.row_stride + column * x.column_stride) * bytes_of(x.element);
    if (valid == unit_values && x.column_stride == 1 && is_aligned(from, 16)) {
        uint32_t words[4];
        if (x.element != Element::fp32) {
            load_words<4>(from, words);
            widen(x.element, words, values);
            return;
        }
        LOWBIT_UNROLL
        for (int half = 0; half < 2; ++half) {
            load_words<4>(from + 16 * half, words);
            LOWBIT_UNROLL
            for (int i = 0; i < 4; ++i) values[4 * half + i] = core::bits_to_float(words[i]);
        }
        return;
    }
    LOWBIT_UNROLL
    for (int i = 0; i < unit_values; ++i) values[i] = i < valid ? load_value(x, row, column + i) : 0.0f;
}

LOWBIT_HOST_DEVICE inline void store_unit(const core::Tensor& y, int64_t row, int64_t column, int valid,
                                          const float (&values)[unit_values]) {
    uint8_t* to = static_cast<uint8_t*>(y.data) + (row * y.row_stride + column * y.column_stride) * bytes_of(y.element);
    if (valid == unit_values && y.column_stride == 1 && is_aligned(to, 16)) {
        uint32_t words[4];
        if (y.element != Element::fp32) {
            LOWBIT_UNROLL
            for (int i = 0; i < 4; ++i) {
                const bool half = y.element == Element::fp16;
                const uint32_t low = half ? core::float_to_fp16(values[2 * i]) : core::float_to_bf16(values[2 * i]);
                const uint32_t high = half ? core::float_to_fp16(values[2 * i + 1]) : core::float_to_bf16(values[2 * i + 1]);
                words[i] = low | high << 16;
            }
            store_words<4>(to, words);
            return;
        }
        LOWBIT_UNROLL
        for (int part = 0; part < 2; ++part) {
            LOWBIT_UNROLL
            for (int i = 0; i < 4; ++i) words[i] = core::float_to_bits(values[4 * part + i]);
            store_words<4>(to + 16 * part, words);
        }
        return;
    }
    LOWBIT_UNROLL
    for (int i = 0; i < unit_values; ++i)
        if (i < valid) store_value(y.element, y.data, row * y.row_stride + (column + i) * y.column_stride, values[i]);
}

}  // namespace lowbit::cuda
