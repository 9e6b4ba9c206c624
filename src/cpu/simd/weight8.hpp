// 8-bit codes, integers or fp8, times fp32 tokens: (code - zero) * scale, the scale taken once per group. Groups of any size.
#pragma once
#include <cstring>

#include "cpu/isa.hpp"
#include "cpu/simd/stream.hpp"
#include "cpu/simd/tiles.hpp"

namespace lowbit::cpu {
namespace {

template <class S, Element E>
struct Weight8Kernel {
    using Float = typename S::Float;
    static constexpr int64_t block_values = 32, block_bytes = 34;
    template <int Tokens>
    static constexpr int rows = S::template scaled_tile_rows<Tokens>;

    const Weight8& weight;
    const FloatTokens& x;
    float* out;
    int64_t out_stride;
    Stream stream;

    template <int Rows, int Tokens>
    void tile(int64_t row, int64_t token) const {
        Float sums[Rows][Tokens] = {};
        if (weight.block_bytes)
            add_blocks(row, token, sums);
        else
            add_groups(row, token, sums);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) out[(row + r) * out_stride + token + t] = S::sum(sums[r][t]);
    }

private:
    static constexpr int64_t run = 8 * block_values;  // values prefetched together

    template <int Rows, int Tokens>
    [[gnu::always_inline]] void add_groups(int64_t row, int64_t token, Float (&sums)[Rows][Tokens]) const {
        const int64_t columns = weight.columns, span = weight.group < columns ? weight.group : columns;
        const uint8_t* codes = weight.codes + row * weight.row_stride;
        for (int64_t first = 0, group = 0; first < columns; first += span, ++group) {
            Float scales[Rows], zeros[Rows];
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                const int64_t index = (row + r) * weight.scale_stride + group;
                scales[r] = S::set(weight.scales[index]);
                zeros[r] = S::set(weight.zeros ? weight.zeros[index] : 0.0f);
            }
            // A long group is asked for piece by piece, or its end would arrive long before its turn.
            const int64_t end = smaller(first + span, columns);
            for (int64_t start = first; start < end; start += run) {
                const int64_t count = smaller(run, end - start);
#pragma GCC unroll 8
                for (int r = 0; r < Rows; ++r) stream.prefetch_ahead(codes + r * weight.row_stride, start, count);
                add_group(codes + start, count, token, start, scales, zeros, sums);
            }
        }
    }

    template <int Rows, int Tokens>
    [[gnu::always_inline]] void add_blocks(int64_t row, int64_t token, Float (&sums)[Rows][Tokens]) const {
        const uint8_t* codes = weight.codes + row * weight.row_stride;
        for (int64_t start = 0; start < weight.columns; start += run) {
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r)
                stream.prefetch_ahead(codes + r * weight.row_stride, start / block_values * block_bytes, run / block_values * block_bytes);
            for (int64_t first = start; first < smaller(start + run, weight.columns); first += block_values) {
                const uint8_t* block = codes + first / block_values * block_bytes;
                Float scales[Rows], zeros[Rows] = {};
#pragma GCC unroll 8
                for (int r = 0; r < Rows; ++r) scales[r] = S::set(S::half(block + r * weight.row_stride));
                add_group(block + sizeof(uint16_t), block_values, token, first, scales, zeros, sums);
            }
        }
    }

    // Values first .. first + count, which share a scale.
    template <int Rows, int Tokens>
    [[gnu::always_inline]] void add_group(const uint8_t* codes, int64_t count, int64_t token, int64_t first, const Float (&scales)[Rows],
                                          const Float (&zeros)[Rows], Float (&sums)[Rows][Tokens]) const {
        const float* values = x.values + token * x.stride + first;
        Float parts[Rows][Tokens] = {};
        int64_t k = 0;
        for (; k + S::width <= count; k += S::width) add(codes + k, weight.row_stride, values + k, x.stride, zeros, parts);
        if (k < count) {
            // The codes and values after the last whole vector, followed by zeros.
            uint8_t last_codes[Rows][S::width] = {};
            float last_values[Tokens][S::width] = {};
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) std::memcpy(last_codes[r], codes + r * weight.row_stride + k, size_t(count - k));
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) std::memcpy(last_values[t], values + t * x.stride + k, size_t(count - k) * sizeof(float));
            add(last_codes[0], S::width, last_values[0], S::width, zeros, parts);
        }
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) sums[r][t] = S::fma(parts[r][t], scales[r], sums[r][t]);
    }

    template <int Rows, int Tokens>
    [[gnu::always_inline]] static void add(const uint8_t* codes, int64_t code_stride, const float* values, int64_t value_stride,
                                           const Float (&zeros)[Rows], Float (&parts)[Rows][Tokens]) {
        Float tokens[Tokens];
#pragma GCC unroll 8
        for (int t = 0; t < Tokens; ++t) tokens[t] = S::load(values + t * value_stride);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const Float number = S::sub(S::template load_codes<E>(codes + r * code_stride), zeros[r]);
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) parts[r][t] = S::fma(number, tokens[t], parts[r][t]);
        }
    }
};

template <class S, Element E>
void weight8_of(const Weight8& weight, const FloatTokens& x, float* out, int64_t out_stride) {
    constexpr int64_t rows_at_once = 4;
    const Stream stream{weight.row_stride, rows_at_once};
    const Weight8Kernel<S, E> kernel{weight, x, out, out_stride, stream};
    for (int64_t row = 0; row < weight.rows; row += rows_at_once)
        cover<Weight8Kernel<S, E>>(smaller(rows_at_once, weight.rows - row), x.tokens,
                                   [&]<int Rows, int Tokens>(int64_t r, int64_t t) { kernel.template tile<Rows, Tokens>(row + r, t); });
}

template <class S>
void weight8(const Weight8& weight, const FloatTokens& x, float* out, int64_t out_stride) {
    switch (weight.element) {
    case Element::uint8: return weight8_of<S, Element::uint8>(weight, x, out, out_stride);
    case Element::fp8_e4m3: return weight8_of<S, Element::fp8_e4m3>(weight, x, out, out_stride);
    case Element::fp8_e5m2: return weight8_of<S, Element::fp8_e5m2>(weight, x, out, out_stride);
    default: return weight8_of<S, Element::int8>(weight, x, out, out_stride);
    }
}

}  // namespace
}  // namespace lowbit::cpu
