// The places of codes, scales and minimums in the `tiles` layout that packed.hpp draws; shared by the CPU, which defines it, and the GPU.
#pragma once
#include "core/ggml_fields.hpp"

namespace lowbit::core {

// What the tiles of a GGML type hold. A value is scale * (code - zero), or scale * code + minimum.
struct TileBlock {
    int bits = 0;           // of a code; 0: no tiles
    int zero = 0;           // the code of zero
    int group = 0;          // values that share a scale
    bool minimums = false;  // beside the scales
    int integers = 0;       // K types: bytes of a group that the block's halves multiply, one for both numbers or one each

    LOWBIT_HOST_DEVICE constexpr int halves() const { return minimums ? 2 : 1; }  // fp16 numbers of a block
    LOWBIT_HOST_DEVICE constexpr bool is_super() const { return integers > 0; }
    // A block's terms for the 16 rows of a tile: halves, then the integers of both halves of a super-block.
    LOWBIT_HOST_DEVICE constexpr int half_bytes() const { return 32 * halves(); }
    LOWBIT_HOST_DEVICE constexpr int term_bytes() const { return half_bytes() + (is_super() ? 256 : 0); }
};

LOWBIT_HOST_DEVICE constexpr TileBlock tile_block(Element element) {
    switch (element) {
    case Element::q4_0: return {.bits = 4, .zero = 8, .group = 32};
    case Element::iq4_nl: return {.bits = 4, .zero = 7, .group = 32};
    case Element::q4_1: return {.bits = 4, .group = 32, .minimums = true};
    case Element::q5_0: return {.bits = 5, .zero = 16, .group = 32};
    case Element::q5_1: return {.bits = 5, .group = 32, .minimums = true};
    case Element::q8_0: return {.bits = 8, .group = 32};
    case Element::q2_k: return {.bits = 2, .group = 16, .minimums = true, .integers = 1};
    case Element::q3_k: return {.bits = 3, .zero = 4, .group = 16, .integers = 1};
    case Element::q4_k: return {.bits = 4, .group = 32, .minimums = true, .integers = 2};
    case Element::q5_k: return {.bits = 5, .group = 32, .minimums = true, .integers = 2};
    case Element::q6_k: return {.bits = 6, .zero = 32, .group = 16, .integers = 1};
    default: return {};
    }
}

// Codes are one or two planes of bits: 8, 4 or 2 low ones, and the rest.
LOWBIT_HOST_DEVICE constexpr int low_bits(int bits) { return bits >= 8 ? 8 : bits >= 4 ? 4 : 2; }
LOWBIT_HOST_DEVICE constexpr int high_bits(int bits) { return bits - low_bits(bits); }
LOWBIT_HOST_DEVICE constexpr int tile_atom_bytes(int bits) { return 128 * bits; }

// A lane's words of a plane: `bits` of them, in runs of up to 4 side by side.
LOWBIT_HOST_DEVICE constexpr int tile_word_byte(int bits, int lane, int word) {
    const int run = bits < 4 ? bits : 4;
    return (word / run * 32 + lane) * run * 4 + word % run * 4;
}

// The bits of the code of a row and column of an atom in a plane of them.
LOWBIT_HOST_DEVICE constexpr BitsPlace tile_bits(int bits, int row, int column) {
    const int lane = row % 8 * 4 + column % 8 / 2;
    const int slot = row / 8 + column / 16 * 2;  // of eight codes that a lane has in the same byte of its words
    const int byte = column % 16 / 8 + column % 2 * 2;
    return {tile_word_byte(bits, lane, slot * bits / 8) + byte, slot * bits % 8, bits};
}

// Codes that are not integers have an order of their own in a word of nibbles (packed.hpp draws it): nf4 and iq4_nl the codes of
// neighbouring columns side by side in a byte, fp4 its bits where few instructions make 16-bit numbers of them.
LOWBIT_HOST_DEVICE constexpr bool has_own_order(Element element) {
    return element == Element::nf4 || element == Element::iq4_nl || element == Element::fp4_e2m1;
}
// Where the code j of a half word of fp4 stands: its exponent and mantissa from one bit on, and its sign.
struct Fp4Place {
    int magnitude, sign;
};
LOWBIT_HOST_DEVICE constexpr Fp4Place fp4_place(int j) {
    return j == 0 ? Fp4Place{0, 9} : j == 1 ? Fp4Place{3, 12} : j == 2 ? Fp4Place{6, 11} : Fp4Place{13, 10};
}
// From the order of integers to that of the element, and back.
LOWBIT_HOST_DEVICE constexpr uint32_t arrange_word(Element element, uint32_t nibbles) {
    uint32_t word = 0;
    for (int half = 0; half < 2; ++half)
        for (int j = 0; j < 4; ++j) {
            const uint32_t code = nibbles >> (16 * half + 4 * j) & 15;
            const Fp4Place place = fp4_place(j);
            if (element == Element::fp4_e2m1)
                word |= (code & 7) << (16 * half + place.magnitude) | (code >> 3) << (16 * half + place.sign);
            else
                word |= code << (8 * j + 4 * half);
        }
    return has_own_order(element) ? word : nibbles;
}
LOWBIT_HOST_DEVICE constexpr uint32_t integer_order(Element element, uint32_t word) {
    uint32_t nibbles = 0;
    for (int half = 0; half < 2; ++half)
        for (int j = 0; j < 4; ++j) {
            const Fp4Place place = fp4_place(j);
            const uint32_t code = element == Element::fp4_e2m1
                                      ? (word >> (16 * half + place.magnitude) & 7) | (word >> (16 * half + place.sign) & 1) << 3
                                      : word >> (8 * j + 4 * half) & 15;
            nibbles |= code << (16 * half + 4 * j);
        }
    return has_own_order(element) ? nibbles : word;
}

// Both planes, from the first byte of an atom on.
LOWBIT_HOST_DEVICE constexpr BlockField tile_code(int bits, int row, int column) {
    BlockField field{tile_bits(low_bits(bits), row, column)};
    if (high_bits(bits)) {
        field.high = tile_bits(high_bits(bits), row, column);
        field.high.byte += tile_atom_bytes(low_bits(bits));
    }
    return field;
}

// The code of a row and column of an atom of an element.
LOWBIT_HOST_DEVICE constexpr unsigned read_tile_code(Element element, int bits, const uint8_t* atom, int row, int column) {
    if (!has_own_order(element)) return tile_code(bits, row, column).read(atom);
    const BitsPlace place = tile_bits(4, row, column);
    const uint8_t* bytes = atom + place.byte / 4 * 4;
    const uint32_t word = uint32_t(bytes[0]) | uint32_t(bytes[1]) << 8 | uint32_t(bytes[2]) << 16 | uint32_t(bytes[3]) << 24;
    return integer_order(element, word) >> (place.byte % 4 * 8 + place.shift) & 15;
}

// In the terms of a block: rows g and g + 8 of a tile side by side, then minimum after scale.
LOWBIT_HOST_DEVICE constexpr int tile_half_byte(const TileBlock& block, int row, int which) {
    return row % 8 * 4 * block.halves() + which * 4 + row / 8 * 2;
}
// 16 bytes of each row pair for the groups of 128 values.
LOWBIT_HOST_DEVICE constexpr int tile_integer_byte(const TileBlock& block, int row, int group, int which) {
    const int per_half = 128 / block.group;
    return block.half_bytes() + group / per_half * 128 + row % 8 * 16 + (group % per_half * block.integers + which) * 2 + row / 8;
}

// Scales and minimums of one block of a row (of the tile) into terms that hold zeros, or back into a block of zeros.
template <bool Packing>
LOWBIT_HOST_DEVICE inline void move_terms(Element element, int row, uint8_t* block, uint8_t* terms) {
    const TileBlock tile = tile_block(element);
    for (int which = 0; which < tile.halves(); ++which)
        for (int i = 0; i < 2; ++i) {
            uint8_t &plain = block[ggml_half(element, which) + i], &packed = terms[tile_half_byte(tile, row, which) + i];
            if (Packing)
                packed = plain;
            else
                plain = packed;
        }
    if (!tile.is_super()) return;
    // Signed scales are stored plus 32 in a block of q3_k, and as they are in tiles.
    const unsigned bias = element == Element::q3_k ? 32 : 0;
    for (int group = 0; group < 256 / tile.group; ++group)
        for (int which = 0; which < tile.integers; ++which) {
            const BlockField field = ggml_integer(element, group, which);
            uint8_t& packed = terms[tile_integer_byte(tile, row, group, which)];
            if (Packing)
                packed = uint8_t(field.read(block) - bias);
            else
                field.write(block, packed + bias);
        }
}

}  // namespace lowbit::core
