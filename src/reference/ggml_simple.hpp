// The GGML types of 32 values. docs/formats.md has the arithmetic; the order of the operations here is part of the format.
#pragma once
#include "reference/ggml_layout.hpp"
#include "reference/values.hpp"

namespace lowbit::reference::ggml {

namespace simple {

constexpr int values = 32;

LOWBIT_HOST_DEVICE inline void store_nibbles(const int* codes, uint8_t* bytes) {
    for (int j = 0; j < values / 2; ++j) bytes[j] = uint8_t((codes[j] & 15) | (codes[j + values / 2] & 15) << 4);
}

LOWBIT_HOST_DEVICE inline int load_nibble(const uint8_t* bytes, int i) {
    return i < values / 2 ? bytes[i] & 15 : bytes[i - values / 2] >> 4;
}

LOWBIT_HOST_DEVICE inline void store_high_bits(const int* codes, uint8_t* bytes) {
    fill_zero(bytes, values / 8);
    for (int i = 0; i < values; ++i) bytes[i / 8] = uint8_t(bytes[i / 8] | (codes[i] >> 4 & 1) << i % 8);
}

LOWBIT_HOST_DEVICE inline int load_high_bit(const uint8_t* bytes, int i) { return bytes[i / 8] >> i % 8 & 1; }

// Q4_0 and Q5_0: the value of largest magnitude becomes the lowest code, -`levels`, so the scale has the opposite of its sign.
LOWBIT_HOST_DEVICE inline float quantize_around_zero(const float* x, int levels, int* codes) {
    const float scale = core::divide(largest_magnitude(x, values), float(-levels));
    const float inverse = inverse_or_zero(scale);
    for (int i = 0; i < values; ++i)
        codes[i] = truncate_between(core::add(core::multiply(x[i], inverse), float(levels) + 0.5f), 0, 2 * levels - 1);
    return scale;
}

struct ScaleAndMinimum {
    float scale, minimum;
};

// Q4_1 and Q5_1: codes 0 .. `highest` between the smallest and the largest value.
LOWBIT_HOST_DEVICE inline ScaleAndMinimum quantize_above_minimum(const float* x, int highest, int* codes) {
    float minimum = x[0], maximum = x[0];
    for (int i = 1; i < values; ++i) {
        if (x[i] < minimum) minimum = x[i];
        if (x[i] > maximum) maximum = x[i];
    }
    const float scale = core::divide(core::subtract(maximum, minimum), float(highest));
    const float inverse = inverse_or_zero(scale);
    for (int i = 0; i < values; ++i)
        codes[i] = truncate_between(core::add(core::multiply(core::subtract(x[i], minimum), inverse), 0.5f), 0, highest);
    return {scale, minimum};
}

// Q8_0 and Q8_1.
LOWBIT_HOST_DEVICE inline float quantize_to_int8(const float* x, uint8_t* codes, int* sum) {
    const float scale = core::divide(std::fabs(largest_magnitude(x, values)), 127.0f);
    const float inverse = inverse_or_zero(scale);
    *sum = 0;
    for (int i = 0; i < values; ++i) {
        const int code = round_half_away_between(core::multiply(x[i], inverse), -128, 127);
        codes[i] = uint8_t(code);
        *sum += code;
    }
    return scale;
}

}  // namespace simple

LOWBIT_HOST_DEVICE inline void Q4_0::quantize(const float* x, uint8_t* block) {
    int codes[values];
    store_half(simple::quantize_around_zero(x, 8, codes), block + scale);
    simple::store_nibbles(codes, block + nibbles);
}

template <int Count>
LOWBIT_HOST_DEVICE void Q4_0::decode(const uint8_t* block, int first, float* x) {
    const float d = load_half(block + scale);
    LOWBIT_UNROLL
    for (int i = 0; i < Count; ++i) x[i] = core::multiply(float(simple::load_nibble(block + nibbles, first + i) - 8), d);
}

LOWBIT_HOST_DEVICE inline void Q4_1::quantize(const float* x, uint8_t* block) {
    int codes[values];
    const simple::ScaleAndMinimum found = simple::quantize_above_minimum(x, 15, codes);
    store_half(found.scale, block + scale);
    store_half(found.minimum, block + minimum);
    simple::store_nibbles(codes, block + nibbles);
}

template <int Count>
LOWBIT_HOST_DEVICE void Q4_1::decode(const uint8_t* block, int first, float* x) {
    const float d = load_half(block + scale), lowest = load_half(block + minimum);
    LOWBIT_UNROLL
    for (int i = 0; i < Count; ++i) x[i] = core::add(core::multiply(float(simple::load_nibble(block + nibbles, first + i)), d), lowest);
}

LOWBIT_HOST_DEVICE inline void Q5_0::quantize(const float* x, uint8_t* block) {
    int codes[values];
    store_half(simple::quantize_around_zero(x, 16, codes), block + scale);
    simple::store_high_bits(codes, block + high_bits);
    simple::store_nibbles(codes, block + nibbles);
}

template <int Count>
LOWBIT_HOST_DEVICE void Q5_0::decode(const uint8_t* block, int first, float* x) {
    const float d = load_half(block + scale);
    LOWBIT_UNROLL
    for (int i = 0; i < Count; ++i) {
        const int code = simple::load_nibble(block + nibbles, first + i) | simple::load_high_bit(block + high_bits, first + i) << 4;
        x[i] = core::multiply(float(code - 16), d);
    }
}

LOWBIT_HOST_DEVICE inline void Q5_1::quantize(const float* x, uint8_t* block) {
    int codes[values];
    const simple::ScaleAndMinimum found = simple::quantize_above_minimum(x, 31, codes);
    store_half(found.scale, block + scale);
    store_half(found.minimum, block + minimum);
    simple::store_high_bits(codes, block + high_bits);
    simple::store_nibbles(codes, block + nibbles);
}

template <int Count>
LOWBIT_HOST_DEVICE void Q5_1::decode(const uint8_t* block, int first, float* x) {
    const float d = load_half(block + scale), lowest = load_half(block + minimum);
    LOWBIT_UNROLL
    for (int i = 0; i < Count; ++i) {
        const int code = simple::load_nibble(block + nibbles, first + i) | simple::load_high_bit(block + high_bits, first + i) << 4;
        x[i] = core::add(core::multiply(float(code), d), lowest);
    }
}

LOWBIT_HOST_DEVICE inline void Q8_0::quantize(const float* x, uint8_t* block) {
    int sum;
    store_half(simple::quantize_to_int8(x, block + codes, &sum), block + scale);
}

template <int Count>
LOWBIT_HOST_DEVICE void Q8_0::decode(const uint8_t* block, int first, float* x) {
    const float d = load_half(block + scale);
    LOWBIT_UNROLL
    for (int i = 0; i < Count; ++i) x[i] = core::multiply(float(int8_t(block[codes + first + i])), d);
}

LOWBIT_HOST_DEVICE inline void Q8_1::quantize(const float* x, uint8_t* block) {
    int code_sum;
    const float d = simple::quantize_to_int8(x, block + codes, &code_sum);
    store_half(d, block + scale);
    store_half(core::multiply(d, float(code_sum)), block + sum);  // of the scale before its rounding to fp16
}

template <int Count>
LOWBIT_HOST_DEVICE void Q8_1::decode(const uint8_t* block, int first, float* x) {
    const float d = load_half(block + scale);
    LOWBIT_UNROLL
    for (int i = 0; i < Count; ++i) x[i] = core::multiply(float(int8_t(block[codes + first + i])), d);
}

inline constexpr Levels iq4_nl_levels = {{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}};

namespace simple {

LOWBIT_HOST_DEVICE inline float level_at(int index) {
    static constexpr Levels levels = iq4_nl_levels;
    return levels.values[index];
}

// Ties go up. All the midpoints are exact, so comparing with them is comparing the distances. NaN, which an overflow in the search makes,
// goes to the top as in the reference.
LOWBIT_HOST_DEVICE inline int nearest_level(float value) {
    int index = 0;
    while (index < 15 && !(value < (level_at(index) + level_at(index + 1)) * 0.5f)) ++index;
    return index;
}

// How well the levels at x * inverse follow x, each value weighing as its square: the best scale for them is correlation / energy, and it
// leaves the smaller an error the larger correlation^2 / energy is.
struct Fit {
    float correlation = 0, energy = 0;
};

LOWBIT_HOST_DEVICE inline Fit fit_levels(const float* x, float inverse) {
    Fit fit;
    for (int i = 0; i < values; ++i) {
        const float level = level_at(nearest_level(core::multiply(x[i], inverse)));
        const float weighted = core::multiply(core::multiply(x[i], x[i]), level);
        fit.correlation = core::add(fit.correlation, core::multiply(weighted, x[i]));
        fit.energy = core::add(fit.energy, core::multiply(weighted, level));
    }
    return fit;
}

// Tries the scales that put the value of largest magnitude near the end of the levels.
LOWBIT_HOST_DEVICE inline float search_level_scale(const float* x) {
    const float largest = largest_magnitude(x, values);
    if (std::fabs(largest) < 1e-15f) return 0.0f;
    Fit fit = fit_levels(x, core::divide(1.0f, core::divide(largest, 127.0f)));
    float best_scale = core::divide(fit.correlation, fit.energy);
    float best = core::multiply(best_scale, fit.correlation);
    for (int step = -7; step <= 7; ++step) {
        fit = fit_levels(x, core::divide(float(step - 127), largest));
        if (!(fit.energy > 0 && core::multiply(fit.correlation, fit.correlation) > core::multiply(best, fit.energy))) continue;
        best_scale = core::divide(fit.correlation, fit.energy);
        best = core::multiply(best_scale, fit.correlation);
    }
    return best_scale;
}

}  // namespace simple

LOWBIT_HOST_DEVICE inline void IQ4_NL::quantize(const float* x, uint8_t* block) {
    const float best_scale = simple::search_level_scale(x);
    const float inverse = inverse_or_zero(best_scale);
    int codes[values];
    for (int i = 0; i < values; ++i) codes[i] = simple::nearest_level(core::multiply(x[i], inverse));
    store_half(best_scale, block + scale);
    simple::store_nibbles(codes, block + nibbles);
}

template <int Count>
LOWBIT_HOST_DEVICE void IQ4_NL::decode(const uint8_t* block, int first, float* x) {
    const float d = load_half(block + scale);
    LOWBIT_UNROLL
    for (int i = 0; i < Count; ++i) x[i] = core::multiply(simple::level_at(simple::load_nibble(block + nibbles, first + i)), d);
}

}  // namespace lowbit::reference::ggml
