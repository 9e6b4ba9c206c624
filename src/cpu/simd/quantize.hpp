// Quantizers whose bits are promised: each operation is rounded by itself (no FMA) and in the order of reference/. What is not finite
// follows the reference too: a NaN is never the largest value, and a quotient that is not finite gives the code of zero.
#pragma once
#include <cfloat>
#include <cstring>

#include "cpu/simd/tiles.hpp"

namespace lowbit::cpu {
namespace {

constexpr int block_size = 32;

// Runs `vector` over n values, S::width at a time; the last ones are copied into a full vector, with zeros behind them.
template <class S, class Vector>
void for_each_vector(const float* x, int64_t n, const Vector& vector) {
    int64_t i = 0;
    for (; i + S::width <= n; i += S::width) vector(S::load(x + i), i, S::width);
    if (i == n) return;
    float last[S::width] = {};
    std::memcpy(last, x + i, size_t(n - i) * sizeof(float));
    vector(S::load(last), i, int(n - i));
}

template <class S>
float largest(const float* x, int64_t n) {
    typename S::Float found = S::set(0.0f);
    for_each_vector<S>(x, n,
                       [&](typename S::Float values, int64_t, int) { found = S::max(found, S::finite_or_zero(S::absolute(values))); });
    return S::largest_element(found);
}

template <class S>
void quantize_int8(const float* x, int64_t n, float scale, int8_t* codes) {
    const bool usable = scale >= FLT_MIN && scale <= FLT_MAX;
    if (!usable) {
        std::memset(codes, 0, size_t(n));
        return;
    }
    const typename S::Float divisor = S::set(scale), low = S::set(-128.0f), high = S::set(127.0f);
    for_each_vector<S>(x, n, [&](typename S::Float values, int64_t i, int count) {
        const typename S::Float quotient = S::number_or_zero(S::div(values, divisor));
        int8_t rounded[S::width];
        S::store_int8(rounded, S::round_to_even(S::min(S::max(quotient, low), high)));
        std::memcpy(codes + i, rounded, size_t(count));
    });
}

// The 32 values of a block.
template <class S>
struct Block {
    static constexpr int vectors = block_size / S::width;
    using Float = typename S::Float;
    const float* x;

    Float load(int v) const { return S::load(x + v * S::width); }

    // The value of largest magnitude, the first of equals, with its sign. 0 where there is none but NaN.
    float largest_magnitude() const {
        Float magnitudes[vectors], found = S::set(0.0f);
        for (int v = 0; v < vectors; ++v) {
            magnitudes[v] = S::number_or_zero(S::absolute(load(v)));
            found = S::max(found, magnitudes[v]);
        }
        const float largest = S::largest_element(found);
        if (largest == 0.0f) return 0.0f;  // of zeros the reference keeps none, not even its sign
        uint32_t equal = 0;
        for (int v = 0; v < vectors; ++v) equal |= S::equal_elements(magnitudes[v], S::set(largest)) << v * S::width;
        return x[__builtin_ctz(equal)];
    }
};

inline float inverse_or_zero(float value) { return value == 0.0f ? 0.0f : 1.0f / value; }

template <class S>
void quantize_q4_0(const float* x, int64_t blocks, uint8_t* out) {
    constexpr int64_t bytes = 18;
    for (int64_t b = 0; b < blocks; ++b, x += block_size, out += bytes) {
        const Block<S> block{x};
        const float scale = block.largest_magnitude() / -8.0f;
        const typename S::Float inverse = S::set(inverse_or_zero(scale)), middle = S::set(8.5f);
        int8_t codes[block_size];
        for (int v = 0; v < block.vectors; ++v) {
            const typename S::Float value = S::finite_or_zero(S::add(S::mul(block.load(v), inverse), middle));
            S::store_int8(codes + v * S::width, S::truncate(S::min(S::max(value, S::set(0.0f)), S::set(15.0f))));
        }
        S::store_half(scale, out);
        // Codes 16 .. 31 go into the high nibbles of codes 0 .. 15, eight bytes at a time.
        for (int i = 0; i < block_size / 2; i += 8) {
            uint64_t low, high;
            std::memcpy(&low, codes + i, 8);
            std::memcpy(&high, codes + block_size / 2 + i, 8);
            low |= high << 4;
            std::memcpy(out + 2 + i, &low, 8);
        }
    }
}

// Writes 32 codes; gives the scale and the sum of the codes.
template <class S>
float quantize_block_int8(const float* x, uint8_t* out, float& sum) {
    const Block<S> block{x};
    const float largest = block.largest_magnitude();
    const float scale = (largest < 0 ? -largest : largest) / 127.0f;
    const typename S::Float inverse = S::set(inverse_or_zero(scale));
    typename S::Float sums = S::set(0.0f);
    for (int v = 0; v < block.vectors; ++v) {
        const typename S::Float value = S::finite_or_zero(S::mul(block.load(v), inverse));
        const typename S::Float code = S::round_half_away(S::min(S::max(value, S::set(-128.0f)), S::set(127.0f)));
        S::store_int8(reinterpret_cast<int8_t*>(out) + v * S::width, code);
        sums = S::add(sums, code);  // integers: exact in any order
    }
    sum = S::sum(sums);
    return scale;
}

template <class S>
void quantize_q8_0(const float* x, int64_t blocks, uint8_t* out) {
    constexpr int64_t bytes = 34;
    float sum;
    for (int64_t b = 0; b < blocks; ++b, x += block_size, out += bytes) S::store_half(quantize_block_int8<S>(x, out + 2, sum), out);
}

template <class S>
void quantize_q8_1(const float* x, int64_t blocks, uint8_t* out) {
    constexpr int64_t bytes = 36;
    float sum;
    for (int64_t b = 0; b < blocks; ++b, x += block_size, out += bytes) {
        const float scale = quantize_block_int8<S>(x, out + 4, sum);
        S::store_half(scale, out);
        S::store_half(scale * sum, out + 2);
    }
}

}  // namespace
}  // namespace lowbit::cpu
