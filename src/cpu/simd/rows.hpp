// Rows of 8-bit codes, integers or fp8, or of numbers of 16 and 32 bits, times fp32 tokens: (code - zero) * scale, the scale taken once per
// group. Groups of any size.
#pragma once
#include <cstring>

#include "cpu/isa.hpp"
#include "cpu/simd/stream.hpp"
#include "cpu/simd/tiles.hpp"

namespace lowbit::cpu {
namespace {

template <class S, Element E>
struct RowElements {
    static constexpr int64_t bytes = E == Element::fp32 ? 4 : E == Element::fp16 || E == Element::bf16 ? 2 : 1;
    static constexpr int64_t vector_bytes = S::width * bytes;

    // Numbers are unit() times as large.
    static typename S::Float load(const uint8_t* codes) {
        if constexpr (E == Element::fp32) return S::load(reinterpret_cast<const float*>(codes));
        if constexpr (E == Element::fp16) return S::widen_fp16(reinterpret_cast<const uint16_t*>(codes));
        if constexpr (E == Element::bf16) return S::load_bf16(reinterpret_cast<const uint16_t*>(codes));
        if constexpr (bytes == 1) return S::template load_codes<E>(codes);
    }
    static constexpr float unit() { return bytes == 1 ? S::template code_unit<E> : 1.0f; }
};

// Whether a code of e4m3 is NaN, which its numbers do not say where vectors make them: then so is every sum of the row. Codes are looked
// at a vector of them at a time, and once they are near.
template <class S, bool looks>
struct NanSearch {
    typename S::Bytes largest = {};

    [[gnu::always_inline]] void look(const uint8_t* codes, int64_t count) {
        constexpr int64_t step = sizeof largest;
        int64_t i = 0;
        for (; i + step <= count; i += step) largest = S::larger_magnitudes(largest, codes + i);
        if (i < count) {
            uint8_t last[step] = {};
            std::memcpy(last, codes + i, size_t(count - i));
            largest = S::larger_magnitudes(largest, last);
        }
    }
    float or_nan(float sum) const { return S::has_nan(largest) ? __builtin_nanf("") : sum; }
};
template <class S>
struct NanSearch<S, false> {
    void look(const uint8_t*, int64_t) {}
    float or_nan(float sum) const { return sum; }
};

template <class S, Element E>
struct RowsKernel {
    using Float = typename S::Float;
    using Elements = RowElements<S, E>;
    using Nan = NanSearch<S, E == Element::fp8_e4m3 && S::hides_nan>;
    static constexpr int64_t rows_at_once = 4, block_values = 32, block_bytes = 34;
    static constexpr bool has_zeros = E == Element::uint8;
    template <int Tokens>
    static constexpr int rows = int(smaller(rows_at_once, S::template tile_rows<Tokens>));

    const CodedWeight& weight;
    const FloatTokens& x;
    float* out;
    int64_t out_stride;
    Stream stream;

    template <int Rows, int Tokens>
    void tile(int64_t row, int64_t token) const {
        Float sums[Rows][Tokens] = {};
        Nan nan[Rows];
        if (weight.block_bytes)
            add_blocks(row, token, sums);
        else
            add_groups(row, token, sums, nan);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) out[(row + r) * out_stride + token + t] = nan[r].or_nan(S::sum(sums[r][t]) * Elements::unit());
    }

private:
    static constexpr int64_t run = 8 * block_values;  // values prefetched together

    template <int Rows, int Tokens>
    [[gnu::always_inline]] void add_groups(int64_t row, int64_t token, Float (&sums)[Rows][Tokens], Nan (&nan)[Rows]) const {
        const int64_t columns = weight.columns, span = weight.group < columns ? weight.group : columns;
        const uint8_t* codes = weight.codes + row * weight.row_stride;
        for (int64_t first = 0, group = 0; first < columns; first += span, ++group) {
            Float scales[Rows], zeros[Rows];
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                const int64_t index = (row + r) * weight.scale_stride + group;
                scales[r] = S::set(weight.scales[index]);
                zeros[r] = S::set(has_zeros ? weight.zeros[index] : 0.0f);
            }
            // A long group is asked for piece by piece, or its end would arrive long before its turn.
            const int64_t end = smaller(first + span, columns);
            for (int64_t start = first; start < end; start += run) {
                const int64_t count = smaller(run, end - start);
#pragma GCC unroll 8
                for (int r = 0; r < Rows; ++r)
                    stream.prefetch_ahead(codes + r * weight.row_stride, start * Elements::bytes, count * Elements::bytes);
                add_group(codes + start * Elements::bytes, count, token, start, scales, zeros, sums);
#pragma GCC unroll 8
                for (int r = 0; r < Rows; ++r)
                    nan[r].look(codes + r * weight.row_stride + start * Elements::bytes, count * Elements::bytes);
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
        for (; k + S::width <= count; k += S::width)
            add(codes + k * Elements::bytes, weight.row_stride, values + k, x.stride, zeros, parts);
        if (k < count) {
            // The codes and values after the last whole vector, followed by zeros.
            alignas(64) uint8_t last_codes[Rows][Elements::vector_bytes] = {};
            float last_values[Tokens][S::width] = {};
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r)
                std::memcpy(last_codes[r], codes + r * weight.row_stride + k * Elements::bytes, size_t((count - k) * Elements::bytes));
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) std::memcpy(last_values[t], values + t * x.stride + k, size_t(count - k) * sizeof(float));
            add(last_codes[0], Elements::vector_bytes, last_values[0], S::width, zeros, parts);
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
            Float number = Elements::load(codes + r * code_stride);
            if constexpr (has_zeros) number = S::sub(number, zeros[r]);
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) parts[r][t] = S::fma(number, tokens[t], parts[r][t]);
        }
    }
};

template <class S, Element E>
void rows_of(const CodedWeight& weight, const FloatTokens& x, float* out, int64_t out_stride) {
    using Kernel = RowsKernel<S, E>;
    constexpr int64_t rows_at_once = Kernel::rows_at_once;
    const Stream stream{weight.row_stride, rows_at_once};
    const Kernel kernel{weight, x, out, out_stride, stream};
    for (int64_t row = 0; row < weight.rows; row += rows_at_once)
        cover<Kernel>(smaller(rows_at_once, weight.rows - row), x.tokens,
                      [&]<int Rows, int Tokens>(int64_t r, int64_t t) { kernel.template tile<Rows, Tokens>(row + r, t); });
}

template <class S>
void rows(const CodedWeight& weight, const FloatTokens& x, float* out, int64_t out_stride) {
    switch (weight.element) {
    case Element::fp32: return rows_of<S, Element::fp32>(weight, x, out, out_stride);
    case Element::fp16: return rows_of<S, Element::fp16>(weight, x, out, out_stride);
    case Element::bf16: return rows_of<S, Element::bf16>(weight, x, out, out_stride);
    case Element::uint8: return rows_of<S, Element::uint8>(weight, x, out, out_stride);
    case Element::fp8_e4m3: return rows_of<S, Element::fp8_e4m3>(weight, x, out, out_stride);
    case Element::fp8_e5m2: return rows_of<S, Element::fp8_e5m2>(weight, x, out, out_stride);
    default: return rows_of<S, Element::int8>(weight, x, out, out_stride);
    }
}

}  // namespace
}  // namespace lowbit::cpu
