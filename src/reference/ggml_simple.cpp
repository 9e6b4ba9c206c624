// The GGML types of 32 values. docs/formats.md has the arithmetic; the order of the operations here is part of the format.
#include <algorithm>

#include "reference/ggml_layout.hpp"

namespace lowbit::reference::ggml {

namespace {

constexpr int values = 32;

void store_nibbles(const int* codes, uint8_t* bytes) {
    for (int j = 0; j < values / 2; ++j) bytes[j] = uint8_t((codes[j] & 15) | (codes[j + values / 2] & 15) << 4);
}

int load_nibble(const uint8_t* bytes, int i) { return i < values / 2 ? bytes[i] & 15 : bytes[i - values / 2] >> 4; }

void store_high_bits(const int* codes, uint8_t* bytes) {
    std::fill_n(bytes, values / 8, uint8_t(0));
    for (int i = 0; i < values; ++i) bytes[i / 8] = uint8_t(bytes[i / 8] | (codes[i] >> 4 & 1) << i % 8);
}

int load_high_bit(const uint8_t* bytes, int i) { return bytes[i / 8] >> i % 8 & 1; }

// Q4_0 and Q5_0: the value of largest magnitude becomes the lowest code, -`levels`, so the scale has the opposite of its sign.
float quantize_around_zero(const float* x, int levels, int* codes) {
    const float scale = largest_magnitude(x, values) / float(-levels);
    const float inverse = inverse_or_zero(scale);
    for (int i = 0; i < values; ++i) codes[i] = truncate_between(x[i] * inverse + (float(levels) + 0.5f), 0, 2 * levels - 1);
    return scale;
}

struct ScaleAndMinimum {
    float scale, minimum;
};

// Q4_1 and Q5_1: codes 0 .. `highest` between the smallest and the largest value.
ScaleAndMinimum quantize_above_minimum(const float* x, int highest, int* codes) {
    float minimum = x[0], maximum = x[0];
    for (int i = 1; i < values; ++i) {
        if (x[i] < minimum) minimum = x[i];
        if (x[i] > maximum) maximum = x[i];
    }
    const float scale = (maximum - minimum) / float(highest);
    const float inverse = inverse_or_zero(scale);
    for (int i = 0; i < values; ++i) codes[i] = truncate_between((x[i] - minimum) * inverse + 0.5f, 0, highest);
    return {scale, minimum};
}

// Q8_0 and Q8_1.
float quantize_to_int8(const float* x, uint8_t* codes, int* sum) {
    const float scale = std::fabs(largest_magnitude(x, values)) / 127.0f;
    const float inverse = inverse_or_zero(scale);
    *sum = 0;
    for (int i = 0; i < values; ++i) {
        const int code = round_half_away_between(x[i] * inverse, -128, 127);
        codes[i] = uint8_t(code);
        *sum += code;
    }
    return scale;
}

}  // namespace

void Q4_0::quantize(const float* x, uint8_t* block) {
    int codes[values];
    store_half(quantize_around_zero(x, 8, codes), block + scale);
    store_nibbles(codes, block + nibbles);
}

void Q4_0::dequantize(const uint8_t* block, float* x) {
    const float d = load_half(block + scale);
    for (int i = 0; i < values; ++i) x[i] = float(load_nibble(block + nibbles, i) - 8) * d;
}

void Q4_1::quantize(const float* x, uint8_t* block) {
    int codes[values];
    const ScaleAndMinimum found = quantize_above_minimum(x, 15, codes);
    store_half(found.scale, block + scale);
    store_half(found.minimum, block + minimum);
    store_nibbles(codes, block + nibbles);
}

void Q4_1::dequantize(const uint8_t* block, float* x) {
    const float d = load_half(block + scale), lowest = load_half(block + minimum);
    for (int i = 0; i < values; ++i) x[i] = float(load_nibble(block + nibbles, i)) * d + lowest;
}

void Q5_0::quantize(const float* x, uint8_t* block) {
    int codes[values];
    store_half(quantize_around_zero(x, 16, codes), block + scale);
    store_high_bits(codes, block + high_bits);
    store_nibbles(codes, block + nibbles);
}

void Q5_0::dequantize(const uint8_t* block, float* x) {
    const float d = load_half(block + scale);
    for (int i = 0; i < values; ++i) {
        const int code = load_nibble(block + nibbles, i) | load_high_bit(block + high_bits, i) << 4;
        x[i] = float(code - 16) * d;
    }
}

void Q5_1::quantize(const float* x, uint8_t* block) {
    int codes[values];
    const ScaleAndMinimum found = quantize_above_minimum(x, 31, codes);
    store_half(found.scale, block + scale);
    store_half(found.minimum, block + minimum);
    store_high_bits(codes, block + high_bits);
    store_nibbles(codes, block + nibbles);
}

void Q5_1::dequantize(const uint8_t* block, float* x) {
    const float d = load_half(block + scale), lowest = load_half(block + minimum);
    for (int i = 0; i < values; ++i) {
        const int code = load_nibble(block + nibbles, i) | load_high_bit(block + high_bits, i) << 4;
        x[i] = float(code) * d + lowest;
    }
}

void Q8_0::quantize(const float* x, uint8_t* block) {
    int sum;
    store_half(quantize_to_int8(x, block + codes, &sum), block + scale);
}

void Q8_0::dequantize(const uint8_t* block, float* x) {
    const float d = load_half(block + scale);
    for (int i = 0; i < values; ++i) x[i] = float(int8_t(block[codes + i])) * d;
}

void Q8_1::quantize(const float* x, uint8_t* block) {
    int code_sum;
    const float d = quantize_to_int8(x, block + codes, &code_sum);
    store_half(d, block + scale);
    store_half(d * float(code_sum), block + sum);  // of the scale before its rounding to fp16
}

void Q8_1::dequantize(const uint8_t* block, float* x) {
    const float d = load_half(block + scale);
    for (int i = 0; i < values; ++i) x[i] = float(int8_t(block[codes + i])) * d;
}

namespace {

constexpr float levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// Ties go up. All the midpoints are exact, so comparing with them is comparing the distances. NaN, which an overflow in the search makes,
// goes to the top as in the reference.
int nearest_level(float value) {
    int index = 0;
    while (index < 15 && !(value < (levels[index] + levels[index + 1]) * 0.5f)) ++index;
    return index;
}

// How well the levels at x * inverse follow x, each value weighing as its square: the best scale for them is correlation / energy, and it
// leaves the smaller an error the larger correlation^2 / energy is.
struct Fit {
    float correlation = 0, energy = 0;
};

Fit fit_levels(const float* x, float inverse) {
    Fit fit;
    for (int i = 0; i < values; ++i) {
        const float level = levels[nearest_level(x[i] * inverse)];
        const float weighted = (x[i] * x[i]) * level;
        fit.correlation += weighted * x[i];
        fit.energy += weighted * level;
    }
    return fit;
}

// Tries the scales that put the value of largest magnitude near the end of the levels.
float search_level_scale(const float* x) {
    const float largest = largest_magnitude(x, values);
    if (std::fabs(largest) < 1e-15f) return 0.0f;
    Fit fit = fit_levels(x, 1.0f / (largest / 127.0f));
    float best_scale = fit.correlation / fit.energy;
    float best = best_scale * fit.correlation;
    for (int step = -7; step <= 7; ++step) {
        fit = fit_levels(x, float(step - 127) / largest);
        if (!(fit.energy > 0 && fit.correlation * fit.correlation > best * fit.energy)) continue;
        best_scale = fit.correlation / fit.energy;
        best = best_scale * fit.correlation;
    }
    return best_scale;
}

}  // namespace

void IQ4_NL::quantize(const float* x, uint8_t* block) {
    const float best_scale = search_level_scale(x);
    const float inverse = inverse_or_zero(best_scale);
    int codes[values];
    for (int i = 0; i < values; ++i) codes[i] = nearest_level(x[i] * inverse);
    store_half(best_scale, block + scale);
    store_nibbles(codes, block + nibbles);
}

void IQ4_NL::dequantize(const uint8_t* block, float* x) {
    const float d = load_half(block + scale);
    for (int i = 0; i < values; ++i) x[i] = levels[load_nibble(block + nibbles, i)] * d;
}

}  // namespace lowbit::reference::ggml
