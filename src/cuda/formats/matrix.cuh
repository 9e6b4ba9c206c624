// Any operand of a product, read in runs of 16 values of a row: plain numbers with any strides, codes in plain rows, or packed tiles.
#pragma once
#include "core/problem.hpp"
#include "cuda/formats/tiles.cuh"
#include "cuda/numbers.cuh"

namespace lowbit::cuda {

struct AnyMatrix {
    bool is_quantized = false;
    core::Tensor tensor;
    core::QuantizedView quantized;
    int64_t rows = 0, columns = 0;

    AnyMatrix() = default;
    explicit AnyMatrix(const core::Operand& operand)
        : is_quantized(operand.is_quantized),
          tensor(operand.tensor),
          quantized(operand.quantized),
          rows(operand.rows()),
          columns(operand.columns()) {}

    // The same with all scales 1: codes less their zero points.
    LOWBIT_HOST_DEVICE AnyMatrix without_scales() const {
        AnyMatrix bare = *this;
        bare.quantized.scales = nullptr;
        return bare;
    }
};

// Values of columns column .. column + 15; `column` is a multiple of 16. 0 beyond the matrix.
__device__ inline void load_values_in_line(const AnyMatrix& matrix, int64_t row, int64_t column, float (&values)[16]) {
    if (matrix.is_quantized && matrix.quantized.layout == core::PackedLayout::tiles)
        return decode_tiles(matrix.quantized, row, column, values);
    if (matrix.is_quantized) return decode<16>(matrix.quantized, row, column, values);
    const core::Tensor& t = matrix.tensor;
#pragma unroll
    for (int i = 0; i < 16; ++i)
        values[i] =
            column + i < matrix.columns ? load_number(t.element, t.data, row * t.row_stride + (column + i) * t.column_stride) : 0.0f;
}

// A call of its own: all decoders inlined at every use would make up most of the time that the library takes to compile.
__device__ __noinline__ inline void load_values(const AnyMatrix& matrix, int64_t row, int64_t column, float (&values)[16]) {
    load_values_in_line(matrix, row, column, values);
}

// Codes as signed bytes, as decode_codes has them, but 4-bit codes less their zero point.
__device__ __noinline__ inline void load_codes(const AnyMatrix& matrix, int64_t row, int64_t column, int8_t (&codes)[16]) {
    const core::QuantizedView& view = matrix.quantized;
    if (view.layout == core::PackedLayout::rows && view.format.element != Element::uint4) return decode_codes<16>(view, row, column, codes);
    core::QuantizedView bare = view;
    bare.scales = nullptr;
    float values[16];
    view.layout == core::PackedLayout::tiles ? decode_tiles(bare, row, column, values) : decode<16>(bare, row, column, values);
#pragma unroll
    for (int i = 0; i < 16; ++i) codes[i] = int8_t(values[i]);
}

}  // namespace lowbit::cuda
