// Where the numbers of a GGML block stand in its bytes, field by field: for code that moves them and does not care what they mean.
// reference/ggml_layout.hpp says that.
#pragma once
#include <cstdint>

#include "core/ggml_blocks.hpp"

namespace lowbit::core {

// Some bits of one byte; none: 0.
struct BitsPlace {
    int64_t byte = 0;
    int shift = 0, bits = 0;

    LOWBIT_HOST_DEVICE constexpr unsigned read(const uint8_t* bytes) const {
        return bits ? unsigned(bytes[byte]) >> shift & ((1u << bits) - 1) : 0;
    }
    // Onto zeros.
    LOWBIT_HOST_DEVICE constexpr void write(uint8_t* bytes, unsigned value) const {
        if (bits) bytes[byte] = uint8_t(bytes[byte] | (value & ((1u << bits) - 1)) << shift);
    }
};

// A number whose upper bits may stand elsewhere.
struct BlockField {
    BitsPlace low, high = {};

    LOWBIT_HOST_DEVICE constexpr unsigned read(const uint8_t* block) const { return low.read(block) | high.read(block) << low.bits; }
    LOWBIT_HOST_DEVICE constexpr void write(uint8_t* block, unsigned value) const {
        low.write(block, value);
        high.write(block, value >> low.bits);
    }
};

// Code i of a block.
LOWBIT_HOST_DEVICE constexpr BlockField ggml_code(Element element, int i) {
    const auto nibble = [i](int at) { return BitsPlace{at + i % 16, i / 16 * 4, 4}; };  // of 32 values
    const auto fifth = [i](int at) { return BitsPlace{at + i / 8, i % 8, 1}; };         // of 32 values
    const auto pair = [i](int at) { return BitsPlace{at + i / 128 * 32 + i % 32, i % 128 / 32 * 2, 2}; };
    const auto wide_nibble = [i](int at) { return BitsPlace{at + i / 64 * 32 + i % 32, i % 64 / 32 * 4, 4}; };
    const auto bit = [i](int at) { return BitsPlace{at + i % 32, i / 32, 1}; };
    switch (element) {
    case Element::q4_0:
    case Element::iq4_nl: return {nibble(2)};
    case Element::q4_1: return {nibble(4)};
    case Element::q5_0: return {nibble(6), fifth(2)};
    case Element::q5_1: return {nibble(8), fifth(4)};
    case Element::q8_0: return {{2 + i, 0, 8}};
    case Element::q8_1: return {{4 + i, 0, 8}};
    case Element::q2_k: return {pair(16)};
    case Element::q3_k: return {pair(32), bit(0)};
    case Element::q4_k: return {wide_nibble(16)};
    case Element::q5_k: return {wide_nibble(48), bit(16)};
    case Element::q6_k: return {{i / 128 * 64 + i % 64, i / 64 % 2 * 4, 4}, pair(128)};
    default: return {};
    }
}

// The byte at which the block's own fp16 numbers begin: its scale, and its minimum (q8_1: the sum) where it has one.
LOWBIT_HOST_DEVICE constexpr int ggml_half(Element element, int which) {
    switch (element) {
    case Element::q2_k: return 80 + 2 * which;
    case Element::q3_k: return 108;
    case Element::q6_k: return 208;
    default: return 2 * which;
    }
}

// K types: the integers of a sub-block. q4_k and q5_k have a scale (which = 0) and a minimum (1) of 6 bits, q2_k has both in one byte.
LOWBIT_HOST_DEVICE constexpr BlockField ggml_integer(Element element, int j, int which) {
    switch (element) {
    case Element::q2_k: return {{j, 0, 8}};
    case Element::q3_k: return {{96 + j % 8, j / 8 * 4, 4}, {104 + j % 4, j / 4 * 2, 2}};
    case Element::q6_k: return {{192 + j, 0, 8}};
    default:
        if (j < 4) return {{4 + 4 * which + j, 0, 6}};
        return {{8 + j, 4 * which, 4}, {4 * which + j, 6, 2}};
    }
}

}  // namespace lowbit::core
