// Views of matrices, plain and quantized. They own nothing.
#pragma once
#include <cstddef>
#include <cstdint>

#include "core/format.hpp"
#include "core/numeric.hpp"
#include "lowbit/lowbit.h"

namespace lowbit::core {

// A matrix, or a vector as one row. Strides count elements. fp8 is for conversions alone.
struct Tensor {
    void* data = nullptr;
    Element element = Element::fp32;
    int64_t rows = 0, columns = 0;
    int64_t row_stride = 0, column_stride = 1;
    Device device = Device::cpu;
    int device_index = 0;

    int64_t offset(int64_t row, int64_t column) const { return row * row_stride + column * column_stride; }
    bool rows_are_contiguous() const { return column_stride == 1 || columns <= 1; }
    Tensor transposed() const { return {data, element, columns, rows, column_stride, row_stride, device, device_index}; }
};

inline int element_bytes(Element element) { return element_bits(element) / 8; }

inline float load(Element element, const void* data, int64_t index) {
    switch (element) {
    case Element::fp16: return fp16_to_float(static_cast<const uint16_t*>(data)[index]);
    case Element::bf16: return bf16_to_float(static_cast<const uint16_t*>(data)[index]);
    case Element::int8: return float(static_cast<const int8_t*>(data)[index]);
    case Element::int32: return float(static_cast<const int32_t*>(data)[index]);
    case Element::fp8_e4m3: return e4m3_to_float(static_cast<const uint8_t*>(data)[index]);
    case Element::fp8_e5m2: return e5m2_to_float(static_cast<const uint8_t*>(data)[index]);
    default: return static_cast<const float*>(data)[index];
    }
}

inline void store(Element element, void* data, int64_t index, float value) {
    switch (element) {
    case Element::fp16: static_cast<uint16_t*>(data)[index] = float_to_fp16(value); break;
    case Element::bf16: static_cast<uint16_t*>(data)[index] = float_to_bf16(value); break;
    case Element::fp8_e4m3: static_cast<uint8_t*>(data)[index] = float_to_e4m3(value); break;
    case Element::fp8_e5m2: static_cast<uint8_t*>(data)[index] = float_to_e5m2(value); break;
    default: static_cast<float*>(data)[index] = value; break;
    }
}

inline float load(const Tensor& tensor, int64_t row, int64_t column) {
    return load(tensor.element, tensor.data, tensor.offset(row, column));
}

// How the planes of a packed weight lie; core/packed.hpp says what each looks like.
enum class PackedLayout : int32_t { rows = LOWBIT_PACKED_ROWS, tiles = LOWBIT_PACKED_TILES };

// The planes of a quantized matrix in the plain layout of docs/formats.md (`rows`), or of a packed weight. On a GPU `scales` may be null
// where a format has one scale for the whole tensor: it is 1 then.
struct QuantizedView {
    Format format;
    int64_t rows = 0, columns = 0;
    uint8_t* codes = nullptr;
    void* scales = nullptr;
    uint8_t* zero_points = nullptr;
    float* tensor_scale = nullptr;
    int32_t* row_sums = nullptr;  // of a packed weight that has them (core/packed.hpp)
    Device device = Device::cpu;
    int device_index = 0;
    PackedLayout layout = PackedLayout::rows;

    uint8_t* row_codes(int64_t row) const { return codes + row * row_bytes(); }
    int64_t row_bytes() const;
    // The scale in fp32, with the tensor's own scale multiplied in.
    float scale_at(int64_t index) const;
    int zero_point_at(int64_t index) const { return zero_points ? zero_points[index] : 0; }
};

}  // namespace lowbit::core
