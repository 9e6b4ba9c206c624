// The `tiles` layout of core/packed.hpp, read value by value: for kernels that have no use for its order.
#pragma once
#include "core/packed.hpp"
#include "cuda/formats/decode.cuh"

namespace lowbit::cuda {

// Where the scale (and the zero point) of a row and group stands.
LOWBIT_HOST_DEVICE inline int64_t tile_scale_index(int64_t row, int64_t group, int64_t groups) {
    return (row / 16 * groups + group) * 16 + row % 8 * 2 + row % 16 / 8;
}

// What is added to the codes of 16 columns of a row from a plane of bits.
__device__ inline void add_tile_bits(Element element, const uint8_t* plane, int bits, int row, int step, int shift, unsigned (&codes)[16]) {
    const int slot = row / 8 + 2 * step;
    const unsigned mask = (1u << bits) - 1;
#pragma unroll
    for (int t = 0; t < 4; ++t) {
        const int at = core::tile_word_byte(bits, row % 8 * 4 + t, slot * bits / 8);
        const uint32_t word = core::integer_order(element, *reinterpret_cast<const uint32_t*>(plane + at)) >> (slot * bits % 8);
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int odd = 0; odd < 2; ++odd) codes[8 * half + 2 * t + odd] |= (word >> (8 * half + 16 * odd) & mask) << shift;
    }
}

// The codes of columns column .. column + 15, a multiple of 16.
__device__ inline void tile_codes(const core::QuantizedView& view, int bits, int64_t row, int64_t column, unsigned (&codes)[16]) {
    const int64_t atoms = (view.columns + 63) / 64;
    const uint8_t* atom = view.codes + (row / 16 * atoms + column / 64) * core::tile_atom_bytes(bits);
    const int inside = int(row % 16), step = int(column % 64 / 16), low = core::low_bits(bits);
#pragma unroll
    for (int i = 0; i < 16; ++i) codes[i] = 0;
    const Element element = view.format.element;
    add_tile_bits(element, atom, low, inside, step, 0, codes);
    if (bits > low) add_tile_bits(element, atom + core::tile_atom_bytes(low), bits - low, inside, step, low, codes);
}

// What codes of GGML types are multiplied with, and what is added then. Bit for bit as reference/ggml_*.hpp have it.
struct TileTerms {
    float scale, minimum = 0.0f;
};

__device__ inline TileTerms tile_terms(const core::QuantizedView& view, int64_t row, int64_t column) {
    const Element element = view.format.element;
    const core::TileBlock block = core::tile_block(element);
    const int values = core::ggml_block(element).values, inside = int(row % 16);
    const int64_t blocks = view.columns / values, which = column / values;
    const auto* terms = static_cast<const uint8_t*>(view.scales) + (row / 16 * blocks + which) * block.term_bytes();
    const auto half = [&](int i) {
        return core::fp16_to_float(*reinterpret_cast<const uint16_t*>(terms + core::tile_half_byte(block, inside, i)));
    };
    TileTerms found{half(0), block.minimums ? half(1) : 0.0f};
    if (!block.is_super()) return found;
    const auto integer = [&](int i) { return terms[core::tile_integer_byte(block, inside, int(column % values) / block.group, i)]; };
    const int scale = element == Element::q2_k ? integer(0) & 15 : int(int8_t(integer(0)));
    const int minimum = element == Element::q2_k ? integer(0) >> 4 : block.minimums ? integer(1) : 0;
    return {core::multiply(found.scale, float(scale)), -core::multiply(found.minimum, float(minimum))};
}

__device__ inline void decode_block_tiles(const core::QuantizedView& view, int64_t row, int64_t column, int valid, float (&values)[16]) {
    const core::TileBlock block = core::tile_block(view.format.element);
    unsigned codes[16];
    tile_codes(view, block.bits, row, column, codes);
    const bool levels = view.format.element == Element::iq4_nl, bytes = block.bits == 8;
    const TileTerms terms = view.scales ? tile_terms(view, row, column) : TileTerms{1.0f};
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        const int code = bytes ? int(int8_t(codes[i])) : int(codes[i]) - block.zero;
        const float number = levels ? reference::ggml::simple::level_at(int(codes[i])) : float(code);
        const float value = core::multiply(number, terms.scale);
        values[i] = i >= valid ? 0.0f : block.minimums ? core::add(value, terms.minimum) : value;
    }
}

__device__ inline void decode_tiles(const core::QuantizedView& view, int64_t row, int64_t column, float (&values)[16]) {
    const int valid = decoding::valid_values<16>(column, view.columns);
    if (valid == 0) return decoding::clear_beyond(0, values);
    const Element element = view.format.element;
    if (is_ggml(element)) return decode_block_tiles(view, row, column, valid, values);
    unsigned codes[16];
    tile_codes(view, 4, row, column, codes);
    const int64_t group = scale_span(view.format, view.columns), groups = rounded_up_quotient(view.columns, group);
    const int64_t index = tile_scale_index(row, quotient(column, group), groups);
    const float scale = scale_at(view, index);
    const int zero_point = zero_point_at(view, index);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        const float value = element == Element::int4 ? float(int(codes[i]) - 8) : reference::code_value(element, codes[i]);
        values[i] = i < valid ? decoding::scaled(value, zero_point, scale) : 0.0f;
    }
}

}  // namespace lowbit::cuda
