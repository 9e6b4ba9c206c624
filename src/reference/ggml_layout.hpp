// The byte layouts of the GGML blocks, and what their quantizers share. For src/reference and the CUDA kernels, which run the same
// functions; others use ggml.hpp.
#pragma once
#include <cmath>
#include <cstdint>

#include "core/numeric.hpp"

namespace lowbit::reference::ggml {

// Each layout names the offsets of its fields in bytes. `scale`, `minimum` and `sum` are fp16. `decode` gives values first .. first + Count
// of a block, Count = 8, 16 or 32, first a multiple of it.

// 32 values: value j lies in the low nibble of byte nibbles + j, value j + 16 in its high nibble; bit j of the u32 at high_bits is the
// fifth bit of value j.
struct Q4_0 {  // (q - 8) * scale
    static constexpr int values = 32, bytes = 18, scale = 0, nibbles = 2;
    LOWBIT_HOST_DEVICE static void quantize(const float* x, uint8_t* block);
    template <int Count>
    LOWBIT_HOST_DEVICE static void decode(const uint8_t* block, int first, float* x);
};
struct Q4_1 {  // q * scale + minimum
    static constexpr int values = 32, bytes = 20, scale = 0, minimum = 2, nibbles = 4;
    LOWBIT_HOST_DEVICE static void quantize(const float* x, uint8_t* block);
    template <int Count>
    LOWBIT_HOST_DEVICE static void decode(const uint8_t* block, int first, float* x);
};
struct Q5_0 {  // (q - 16) * scale
    static constexpr int values = 32, bytes = 22, scale = 0, high_bits = 2, nibbles = 6;
    LOWBIT_HOST_DEVICE static void quantize(const float* x, uint8_t* block);
    template <int Count>
    LOWBIT_HOST_DEVICE static void decode(const uint8_t* block, int first, float* x);
};
struct Q5_1 {  // q * scale + minimum
    static constexpr int values = 32, bytes = 24, scale = 0, minimum = 2, high_bits = 4, nibbles = 8;
    LOWBIT_HOST_DEVICE static void quantize(const float* x, uint8_t* block);
    template <int Count>
    LOWBIT_HOST_DEVICE static void decode(const uint8_t* block, int first, float* x);
};
struct Q8_0 {  // q * scale, q an int8
    static constexpr int values = 32, bytes = 34, scale = 0, codes = 2;
    LOWBIT_HOST_DEVICE static void quantize(const float* x, uint8_t* block);
    template <int Count>
    LOWBIT_HOST_DEVICE static void decode(const uint8_t* block, int first, float* x);
};
struct Q8_1 {  // as Q8_0; `sum` is scale times the sum of q, for products with types that have an offset
    static constexpr int values = 32, bytes = 36, scale = 0, sum = 2, codes = 4;
    LOWBIT_HOST_DEVICE static void quantize(const float* x, uint8_t* block);
    template <int Count>
    LOWBIT_HOST_DEVICE static void decode(const uint8_t* block, int first, float* x);
};
struct IQ4_NL {  // level[q] * scale
    static constexpr int values = 32, bytes = 18, scale = 0, nibbles = 2;
    LOWBIT_HOST_DEVICE static void quantize(const float* x, uint8_t* block);
    template <int Count>
    LOWBIT_HOST_DEVICE static void decode(const uint8_t* block, int first, float* x);
};

// 256 values in 8 or 16 sub-blocks, each with a narrow integer scale s (and minimum m) that the block's fp16 numbers multiply.
struct Q2_K {  // (scale * s) * q - minimum * m; scale byte: s low nibble, m high nibble
    static constexpr int values = 256, bytes = 84, scales = 0, pairs = 16, scale = 80, minimum = 82;
    LOWBIT_HOST_DEVICE static void quantize(const float* x, uint8_t* block);
    template <int Count>
    LOWBIT_HOST_DEVICE static void decode(const uint8_t* block, int first, float* x);
};
struct Q3_K {  // scale * (s - 32) * (q - 4)
    static constexpr int values = 256, bytes = 110, high_bits = 0, pairs = 32, scales = 96, scale = 108;
    LOWBIT_HOST_DEVICE static void quantize(const float* x, uint8_t* block);
    template <int Count>
    LOWBIT_HOST_DEVICE static void decode(const uint8_t* block, int first, float* x);
};
struct Q4_K {  // (scale * s) * q - minimum * m
    static constexpr int values = 256, bytes = 144, scale = 0, minimum = 2, scales = 4, nibbles = 16;
    LOWBIT_HOST_DEVICE static void quantize(const float* x, uint8_t* block);
    template <int Count>
    LOWBIT_HOST_DEVICE static void decode(const uint8_t* block, int first, float* x);
};
struct Q5_K {  // (scale * s) * q - minimum * m
    static constexpr int values = 256, bytes = 176, scale = 0, minimum = 2, scales = 4, high_bits = 16, nibbles = 48;
    LOWBIT_HOST_DEVICE static void quantize(const float* x, uint8_t* block);
    template <int Count>
    LOWBIT_HOST_DEVICE static void decode(const uint8_t* block, int first, float* x);
};
struct Q6_K {  // (scale * s) * (q - 32), s an int8
    static constexpr int values = 256, bytes = 210, nibbles = 0, high_pairs = 128, scales = 192, scale = 208;
    LOWBIT_HOST_DEVICE static void quantize(const float* x, uint8_t* block);
    template <int Count>
    LOWBIT_HOST_DEVICE static void decode(const uint8_t* block, int first, float* x);
};

// A block may lie at any address, so its halves go byte by byte.
LOWBIT_HOST_DEVICE inline void store_half(float value, uint8_t* bytes) {
    const uint16_t half = core::float_to_fp16(value);
    bytes[0] = uint8_t(half);
    bytes[1] = uint8_t(half >> 8);
}

LOWBIT_HOST_DEVICE inline float load_half(const uint8_t* bytes) { return core::fp16_to_float(uint16_t(bytes[0] | bytes[1] << 8)); }

LOWBIT_HOST_DEVICE inline void fill_zero(uint8_t* bytes, int count) {
    for (int i = 0; i < count; ++i) bytes[i] = 0;
}

// C++ has no conversion to int for NaN, infinity, or a float outside of the int's range, and a caller's numbers bring each of these to the
// functions below: by themselves, or because a scale overflowed or its inverse did. So these clamp before they convert, and make what is
// not finite zero: then such blocks too have the bytes of the reference on x86. `low` <= 0 <= `high`, and both are small.

LOWBIT_HOST_DEVICE inline int truncate_between(float value, int low, int high) {
    if (!core::is_finite(value)) return 0;
    if (value <= float(low)) return low;
    if (value >= float(high)) return high;
    return int(value);
}

LOWBIT_HOST_DEVICE inline int round_half_even_between(float value, int low, int high) {
    if (!core::is_finite(value)) return 0;
    if (value <= float(low)) return low;
    if (value >= float(high)) return high;
    // Numbers next to 1.5 * 2^23 lie one apart, so the addition itself rounds to an integer, ties to even, without a call.
    constexpr float shift = 0x1.8p23f;
    return int(core::sum(core::sum(value, shift), -shift));
}

LOWBIT_HOST_DEVICE inline int round_half_away_between(float value, int low, int high) {
    return truncate_between(std::round(value), low, high);
}

// 1/value, with 0 for 0: a block of zeros gets codes of zero.
LOWBIT_HOST_DEVICE inline float inverse_or_zero(float value) { return value == 0.0f ? 0.0f : core::divide(1.0f, value); }

// The value of largest magnitude, with its sign; the first of equals. 0 where there is none but NaN.
LOWBIT_HOST_DEVICE inline float largest_magnitude(const float* x, int count) {
    float largest = 0.0f;
    for (int i = 0; i < count; ++i) {
        if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
    }
    return largest;
}

}  // namespace lowbit::reference::ggml
