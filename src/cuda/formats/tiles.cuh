// The `tiles` layout of core/packed.hpp, read value by value: for kernels that have no use for its order.
#pragma once
#include "core/packed.hpp"
#include "cuda/formats/decode.cuh"

namespace lowbit::cuda {

// Where the scale (and the zero point) of a row and group stands.
LOWBIT_HOST_DEVICE inline int64_t tile_scale_index(int64_t row, int64_t group, int64_t groups) {
    return (row / 16 * groups + group) * 16 + row % 8 * 2 + row % 16 / 8;
}

LOWBIT_HOST_DEVICE inline int64_t tile_group(const core::QuantizedView& view) {
    return is_ggml(view.format.element) ? 32 : scale_span(view.format, view.columns);
}

// The scale of GGML blocks is fp16 in tiles; other formats keep their own type.
LOWBIT_HOST_DEVICE inline float tile_scale_at(const core::QuantizedView& view, int64_t index) {
    if (is_ggml(view.format.element)) return view.scales ? core::fp16_to_float(static_cast<const uint16_t*>(view.scales)[index]) : 1.0f;
    return scale_at(view, index);
}

// What a nibble of a tile stands for, before zero point and scale.
LOWBIT_HOST_DEVICE inline float tile_code_value(Element element, unsigned code) {
    switch (element) {
    case Element::int4:
    case Element::q4_0: return float(int(code) - 8);
    case Element::iq4_nl: return float(reference::ggml::simple::level_at(int(code)));
    default: return reference::code_value(element, code);
    }
}

// The nibbles of columns column .. column + 15, a multiple of 16.
__device__ inline void tile_codes(const core::QuantizedView& view, int64_t row, int64_t column, unsigned (&codes)[16]) {
    const int64_t atoms = (view.columns + 63) / 64;
    const auto* words =
        reinterpret_cast<const uint32_t*>(view.codes + (row / 16 * atoms + column / 64) * 512) + row % 8 * 16 + column % 64 / 16;
    const int upper_row = int(row % 16 / 8);
#pragma unroll
    for (int t = 0; t < 4; ++t) {
        const uint32_t word = words[4 * t] >> (4 * upper_row);
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) codes[8 * half + 2 * t + odd] = word >> (8 * half + 16 * odd) & 15;
    }
}

__device__ inline void decode_tiles(const core::QuantizedView& view, int64_t row, int64_t column, float (&values)[16]) {
    const int valid = decoding::valid_values<16>(column, view.columns);
    if (valid == 0) return decoding::clear_beyond(0, values);
    unsigned codes[16];
    tile_codes(view, row, column, codes);
    const int64_t group = tile_group(view), groups = rounded_up_quotient(view.columns, group);
    const int64_t index = tile_scale_index(row, quotient(column, group), groups);
    const float scale = tile_scale_at(view, index);
    const int zero_point = zero_point_at(view, index);
#pragma unroll
    for (int i = 0; i < 16; ++i)
        values[i] = i < valid ? decoding::scaled(tile_code_value(view.format.element, codes[i]), zero_point, scale) : 0.0f;
}

}  // namespace lowbit::cuda
