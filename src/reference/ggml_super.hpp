// The K types of GGML: 256 values whose sub-blocks' scales are quantized too. docs/formats.md has the arithmetic; the order of the
// operations here is part of the format.
#pragma once
#include "reference/ggml_layout.hpp"
#include "reference/ggml_search.hpp"

namespace lowbit::reference::ggml {

namespace super_block {

constexpr int values = 256;

// Four codes of 2 bits in a byte: each half of 128 values takes 32 bytes, and its quarters of 32 values lie at shifts 0, 2, 4, 6.
LOWBIT_HOST_DEVICE inline int pair_byte(int i) { return 32 * (i / 128) + i % 32; }
LOWBIT_HOST_DEVICE inline int pair_shift(int i) { return 2 * (i % 128 / 32); }

LOWBIT_HOST_DEVICE inline void store_pairs(const uint8_t* codes, uint8_t* bytes) {
    fill_zero(bytes, values / 4);
    for (int i = 0; i < values; ++i) bytes[pair_byte(i)] = uint8_t(bytes[pair_byte(i)] | (codes[i] & 3) << pair_shift(i));
}

// Decoders ask for up to 32 values at once, beginning at a multiple of their number: value `at` of the run of 32 with the number `run`.
LOWBIT_HOST_DEVICE inline int load_pair(const uint8_t* bytes, int run, int at) { return bytes[32 * (run / 4) + at] >> 2 * (run % 4) & 3; }

// One bit of each value: value i in bit i / 32 of byte i % 32.
LOWBIT_HOST_DEVICE inline void store_bits(const uint8_t* codes, int bit, uint8_t* bytes) {
    fill_zero(bytes, values / 8);
    for (int i = 0; i < values; ++i) bytes[i % 32] = uint8_t(bytes[i % 32] | (codes[i] >> bit & 1) << i / 32);
}

LOWBIT_HOST_DEVICE inline int load_bit(const uint8_t* bytes, int run, int at) { return bytes[at] >> run & 1; }

// Low nibbles of a run of 64 values in 32 bytes: value l and value l + 32 share byte l.
LOWBIT_HOST_DEVICE inline void store_nibbles(const uint8_t* codes, uint8_t* bytes) {
    for (int i = 0; i < values / 2; ++i) {
        const int first = i / 32 * 64 + i % 32;
        bytes[i] = uint8_t((codes[first] & 15) | (codes[first + 32] & 15) << 4);
    }
}

LOWBIT_HOST_DEVICE inline int load_nibble(const uint8_t* bytes, int run, int at) { return bytes[run / 2 * 32 + at] >> run % 2 * 4 & 15; }

// Q4_K and Q5_K: eight scales s and eight minimums m of 6 bits in 12 bytes, by bit (j < 4):
//   byte j      s[j+4] bits 5,4 | s[j]
//   byte 4 + j  m[j+4] bits 5,4 | m[j]
//   byte 8 + j  m[j+4] bits 3..0 | s[j+4] bits 3..0
LOWBIT_HOST_DEVICE inline void store_six_bit_pairs(const uint8_t* scales, const uint8_t* minimums, uint8_t* bytes) {
    for (int j = 0; j < 4; ++j) {
        bytes[j] = uint8_t(scales[j] | scales[j + 4] >> 4 << 6);
        bytes[4 + j] = uint8_t(minimums[j] | minimums[j + 4] >> 4 << 6);
        bytes[8 + j] = uint8_t((scales[j + 4] & 15) | (minimums[j + 4] & 15) << 4);
    }
}

LOWBIT_HOST_DEVICE inline int load_six_bit_scale(const uint8_t* bytes, int j) {
    return j < 4 ? bytes[j] & 63 : (bytes[j + 4] & 15) | bytes[j - 4] >> 6 << 4;
}

LOWBIT_HOST_DEVICE inline int load_six_bit_minimum(const uint8_t* bytes, int j) {
    return j < 4 ? bytes[4 + j] & 63 : bytes[j + 4] >> 4 | bytes[j] >> 6 << 4;
}

// Q3_K: sixteen scales of 6 bits in 12 bytes: byte j < 8 has the low nibbles of scales j and j + 8; the top two bits of scale j lie in byte
// 8 + j % 4 at shift 2 * (j / 4).
LOWBIT_HOST_DEVICE inline void store_six_bit_scales(const uint8_t* scales, uint8_t* bytes) {
    fill_zero(bytes, 12);
    for (int j = 0; j < 8; ++j) bytes[j] = uint8_t((scales[j] & 15) | (scales[j + 8] & 15) << 4);
    for (int j = 0; j < 16; ++j) bytes[8 + j % 4] = uint8_t(bytes[8 + j % 4] | scales[j] >> 4 << j / 4 * 2);
}

LOWBIT_HOST_DEVICE inline int load_six_bit_scale_of_16(const uint8_t* bytes, int j) {
    return (bytes[j % 8] >> j / 8 * 4 & 15) | (bytes[8 + j % 4] >> j / 4 * 2 & 3) << 4;
}

// Q2_K, Q4_K and Q5_K: step * code - minimum * (its integer).
LOWBIT_HOST_DEVICE inline float scaled_code_above(float step, int code, float minimum, int integer) {
    return core::subtract(core::multiply(step, float(code)), core::multiply(minimum, float(integer)));
}

// Which sub-block of 16 holds value i of a call of a decoder.
template <int Count>
LOWBIT_HOST_DEVICE inline int sixteen_of(int first, int i) {
    return first / 16 + (Count > 16 ? i / 16 : 0);
}

// What Q2_K, Q4_K and Q5_K store, before it is packed.
struct AffineBlock {
    float scale, minimum;  // as the fp16 numbers in the block will read
    uint8_t scales[16], minimums[16];
    uint8_t codes[values];
};

LOWBIT_HOST_DEVICE inline float round_to_half(float value) { return core::fp16_to_float(core::float_to_fp16(value)); }

// Integers 0 .. highest for the sub-blocks' numbers, relative to the largest of them; returns the number that multiplies them.
LOWBIT_HOST_DEVICE inline float quantize_scales(const float* scales, int count, int highest, uint8_t* codes) {
    float largest = 0;
    for (int j = 0; j < count; ++j) {
        if (scales[j] > largest) largest = scales[j];
    }
    const float inverse = largest > 0 ? float(highest) / largest : 0.0f;
    for (int j = 0; j < count; ++j) codes[j] = uint8_t(round_half_even_between(inverse * scales[j], 0, highest));
    return round_to_half(largest / float(highest));
}

enum class Weigh { by_magnitude, by_magnitude_and_mean };

LOWBIT_HOST_DEVICE inline void weigh_values(Weigh weigh, const float* x, int count, float* weights) {
    if (weigh == Weigh::by_magnitude) {
        for (int i = 0; i < count; ++i) weights[i] = std::fabs(x[i]);
        return;
    }
    float sum_of_squares = 0;
    for (int i = 0; i < count; ++i) sum_of_squares += core::product(x[i], x[i]);
    const float mean = std::sqrt(sum_of_squares / float(count));
    for (int i = 0; i < count; ++i) weights[i] = mean + std::fabs(x[i]);
}

LOWBIT_HOST_DEVICE inline void quantize_affine(const float* x, const search::AffineSearch& trials, Weigh weigh, int highest_scale,
                                               AffineBlock* block) {
    const int count = trials.count, sub_blocks = values / count;
    float scales[16] = {}, minimums[16] = {}, weights[32];
    for (int j = 0; j < sub_blocks; ++j) {
        weigh_values(weigh, x + count * j, count, weights);
        const search::AffineScale found = search::search_affine(x + count * j, weights, trials, block->codes + count * j);
        scales[j] = found.scale;
        minimums[j] = found.minimum;
    }
    block->scale = quantize_scales(scales, sub_blocks, highest_scale, block->scales);
    block->minimum = quantize_scales(minimums, sub_blocks, highest_scale, block->minimums);

    // The codes once more, now against the scales that were stored. Where a scale came out as zero the codes have no effect, and stay as
    // the search left them.
    for (int j = 0; j < sub_blocks; ++j) {
        const float scale = block->scale * float(block->scales[j]);
        if (scale == 0.0f) continue;
        const float minimum = core::product(block->minimum, float(block->minimums[j]));
        for (int i = count * j; i < count * (j + 1); ++i) {
            block->codes[i] = uint8_t(round_half_even_between((x[i] + minimum) / scale, 0, trials.highest));
        }
    }
}

// The same for Q3_K and Q6_K, whose sub-blocks of 16 have a signed scale and no minimum.
LOWBIT_HOST_DEVICE inline void requantize_symmetric(const float* x, float scale, const int* scales, int levels, uint8_t* codes) {
    for (int j = 0; j < 16; ++j) {
        const float step = scale * float(scales[j]);
        if (step == 0.0f) continue;
        for (int i = 16 * j; i < 16 * (j + 1); ++i) {
            codes[i] = uint8_t(round_half_even_between(x[i] / step, -levels, levels - 1) + levels);
        }
    }
}

}  // namespace super_block

LOWBIT_HOST_DEVICE inline void Q2_K::quantize(const float* x, uint8_t* block) {
    super_block::AffineBlock found;
    super_block::quantize_affine(x, {.count = 16, .highest = 3, .first_shift = -0.5f, .last_step = 15, .absolute = true},
                                 super_block::Weigh::by_magnitude, 15, &found);
    for (int j = 0; j < 16; ++j) block[scales + j] = uint8_t(found.scales[j] | found.minimums[j] << 4);
    super_block::store_pairs(found.codes, block + pairs);
    store_half(found.scale, block + scale);
    store_half(found.minimum, block + minimum);
}

template <int Count>
LOWBIT_HOST_DEVICE void Q2_K::decode(const uint8_t* block, int first, float* x) {
    const float d = load_half(block + scale), lowest = load_half(block + minimum);
    const int run = first / 32, start = first % 32;
    LOWBIT_UNROLL
    for (int i = 0; i < Count; ++i) {
        const int both = block[scales + super_block::sixteen_of<Count>(first, i)];
        const float step = core::multiply(d, float(both & 15));
        x[i] = super_block::scaled_code_above(step, super_block::load_pair(block + pairs, run, start + i), lowest, both >> 4);
    }
}

LOWBIT_HOST_DEVICE inline void Q3_K::quantize(const float* x, uint8_t* block) {
    uint8_t codes[values];
    float found[16];
    for (int j = 0; j < 16; ++j) found[j] = search::search_symmetric_by_sweeps(x + 16 * j, 16, 4, codes + 16 * j);

    const float largest = largest_magnitude(found, 16);
    float d = 0.0f;
    uint8_t stored[16] = {};
    if (largest != 0.0f) {
        const float inverse = -32.0f / largest;
        d = super_block::round_to_half(1.0f / inverse);
        int signed_scales[16];
        for (int j = 0; j < 16; ++j) {
            signed_scales[j] = round_half_even_between(inverse * found[j], -32, 31);
            stored[j] = uint8_t(signed_scales[j] + 32);
        }
        super_block::requantize_symmetric(x, d, signed_scales, 4, codes);
    }

    super_block::store_bits(codes, 2, block + high_bits);
    super_block::store_pairs(codes, block + pairs);
    super_block::store_six_bit_scales(stored, block + scales);
    store_half(d, block + scale);
}

template <int Count>
LOWBIT_HOST_DEVICE void Q3_K::decode(const uint8_t* block, int first, float* x) {
    const float d = load_half(block + scale);
    const int run = first / 32, start = first % 32;
    LOWBIT_UNROLL
    for (int i = 0; i < Count; ++i) {
        const int sub_block = super_block::sixteen_of<Count>(first, i);
        const float step = core::multiply(d, float(super_block::load_six_bit_scale_of_16(block + scales, sub_block) - 32));
        const int low = super_block::load_pair(block + pairs, run, start + i);
        x[i] = core::multiply(step, float((low | super_block::load_bit(block + high_bits, run, start + i) << 2) - 4));
    }
}

LOWBIT_HOST_DEVICE inline void Q4_K::quantize(const float* x, uint8_t* block) {
    super_block::AffineBlock found;
    super_block::quantize_affine(x, {.count = 32, .highest = 15, .first_shift = -1.0f, .last_step = 20, .absolute = false},
                                 super_block::Weigh::by_magnitude_and_mean, 63, &found);
    store_half(found.scale, block + scale);
    store_half(found.minimum, block + minimum);
    super_block::store_six_bit_pairs(found.scales, found.minimums, block + scales);
    super_block::store_nibbles(found.codes, block + nibbles);
}

template <int Count>
LOWBIT_HOST_DEVICE void Q4_K::decode(const uint8_t* block, int first, float* x) {
    const int run = first / 32, start = first % 32;
    const float step = core::multiply(load_half(block + scale), float(super_block::load_six_bit_scale(block + scales, run)));
    const float lowest = load_half(block + minimum);
    const int integer = super_block::load_six_bit_minimum(block + scales, run);
    LOWBIT_UNROLL
    for (int i = 0; i < Count; ++i)
        x[i] = super_block::scaled_code_above(step, super_block::load_nibble(block + nibbles, run, start + i), lowest, integer);
}

LOWBIT_HOST_DEVICE inline void Q5_K::quantize(const float* x, uint8_t* block) {
    super_block::AffineBlock found;
    super_block::quantize_affine(x, {.count = 32, .highest = 31, .first_shift = -0.5f, .last_step = 15, .absolute = false},
                                 super_block::Weigh::by_magnitude_and_mean, 63, &found);
    store_half(found.scale, block + scale);
    store_half(found.minimum, block + minimum);
    super_block::store_six_bit_pairs(found.scales, found.minimums, block + scales);
    super_block::store_bits(found.codes, 4, block + high_bits);
    super_block::store_nibbles(found.codes, block + nibbles);
}

template <int Count>
LOWBIT_HOST_DEVICE void Q5_K::decode(const uint8_t* block, int first, float* x) {
    const int run = first / 32, start = first % 32;
    const float step = core::multiply(load_half(block + scale), float(super_block::load_six_bit_scale(block + scales, run)));
    const float lowest = load_half(block + minimum);
    const int integer = super_block::load_six_bit_minimum(block + scales, run);
    LOWBIT_UNROLL
    for (int i = 0; i < Count; ++i) {
        const int low = super_block::load_nibble(block + nibbles, run, start + i);
        x[i] = super_block::scaled_code_above(step, low | super_block::load_bit(block + high_bits, run, start + i) << 4, lowest, integer);
    }
}

namespace super_block {

// Q6_K's low nibbles: in each half of 128 values, quarters 0 and 2 share the first 32 bytes, quarters 1 and 3 the second.
LOWBIT_HOST_DEVICE inline int wide_nibble_byte(int i) { return 64 * (i / 128) + i % 64; }
LOWBIT_HOST_DEVICE inline int wide_nibble_shift(int i) { return i / 64 % 2 * 4; }

}  // namespace super_block

LOWBIT_HOST_DEVICE inline void Q6_K::quantize(const float* x, uint8_t* block) {
    fill_zero(block, bytes);
    uint8_t codes[values];
    float found[16];
    for (int j = 0; j < 16; ++j) found[j] = search::search_symmetric(x + 16 * j, 16, 32, codes + 16 * j);

    const float largest = largest_magnitude(found, 16);
    if (std::fabs(largest) < 1e-15f) return;
    const float inverse = -128.0f / largest;
    const float d = super_block::round_to_half(1.0f / inverse);
    int signed_scales[16];
    for (int j = 0; j < 16; ++j) {
        signed_scales[j] = round_half_even_between(inverse * found[j], -128, 127);
        block[scales + j] = uint8_t(signed_scales[j]);
    }
    super_block::requantize_symmetric(x, d, signed_scales, 32, codes);

    for (int i = 0; i < values; ++i) {
        uint8_t& low = block[nibbles + super_block::wide_nibble_byte(i)];
        uint8_t& high = block[high_pairs + super_block::pair_byte(i)];
        low = uint8_t(low | (codes[i] & 15) << super_block::wide_nibble_shift(i));
        high = uint8_t(high | codes[i] >> 4 << super_block::pair_shift(i));
    }
    store_half(d, block + scale);
}

template <int Count>
LOWBIT_HOST_DEVICE void Q6_K::decode(const uint8_t* block, int first, float* x) {
    const float d = load_half(block + scale);
    const int run = first / 32, start = first % 32;
    // Of each half of 128 values, runs 0 and 2 share 32 bytes of low nibbles, runs 1 and 3 the next.
    const uint8_t* low_nibbles = block + nibbles + 64 * (run / 4) + 32 * (run % 2) + start;
    LOWBIT_UNROLL
    for (int i = 0; i < Count; ++i) {
        const float step = core::multiply(d, float(int8_t(block[scales + super_block::sixteen_of<Count>(first, i)])));
        const int code = (low_nibbles[i] >> run / 2 % 2 * 4 & 15) | super_block::load_pair(block + high_pairs, run, start + i) << 4;
        x[i] = core::multiply(step, float(code - 32));
    }
}

}  // namespace lowbit::reference::ggml
