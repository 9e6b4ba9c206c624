// int4 and uint4 weights times tokens in blocks of int8: an exact integer dot product for each chunk of 32 codes, times both scales, summed
// in fp32.
//
// A step takes S::lanes chunks, one per 128-bit lane of a vector (see weight4.hpp). Low nibbles are the values 0, 2, 4, ... of a chunk and
// high nibbles 1, 3, 5, ...: tokens are packed in that order. Signed codes enter as code + 8, and each int32 starts from -8 * (sum of the
// token's codes that go into it); zero points come off the same sums.
#pragma once
#include <cstring>

#include "cpu/isa.hpp"
#include "cpu/simd/scratch.hpp"
#include "cpu/simd/stream.hpp"
#include "cpu/simd/tiles.hpp"

namespace lowbit::cpu {
namespace {

template <class S>
struct NibbleTokenStep {
    alignas(64) int8_t even[16 * S::lanes], odd[16 * S::lanes];
    int32_t start[4 * S::lanes];
    float sums[4 * S::lanes];    // of the codes that go into an int32
    float scales[4 * S::lanes];  // each four times
};

template <class S>
struct NibbleTokens {
    static constexpr int64_t values_of_chunk = 32;
    int64_t chunks, steps;
    Scratch<NibbleTokenStep<S>> values;  // [tile][step][token of the tile]

    NibbleTokens(const BlockTokens& x, int32_t offset)
        : chunks(x.columns / values_of_chunk), steps(ceil_div(chunks, S::lanes)), values(x.tokens * steps) {
        for (int64_t token = 0, width; token < x.tokens; token += width) {
            width = tile_width(x.tokens - token);
            for (int64_t t = 0; t < width; ++t)
                for (int64_t step = 0; step < steps; ++step)
                    pack(x, token + t, step * S::lanes, offset, values.data()[token * steps + step * width + t]);
        }
    }

private:
    void pack(const BlockTokens& x, int64_t token, int64_t first, int32_t offset, NibbleTokenStep<S>& step) const {
        const int64_t there = smaller(S::lanes, chunks - first);
        std::memset(&step, 0, sizeof step);
        for (int64_t lane = 0; lane < there; ++lane) {
            const int8_t* codes = x.codes + token * x.columns + (first + lane) * values_of_chunk;
            for (int64_t i = 0; i < 16; ++i) {
                step.even[16 * lane + i] = codes[2 * i], step.odd[16 * lane + i] = codes[2 * i + 1];
                step.start[4 * lane + i / 4] += codes[2 * i] + codes[2 * i + 1];
            }
            for (int i = 0; i < 4; ++i) step.scales[4 * lane + i] = x.scales[token * chunks + first + lane];
        }
        for (int i = 0; i < 4 * S::lanes; ++i) step.sums[i] = float(step.start[i]), step.start[i] *= -offset;
    }
};

// Scales, or zero points, of the lanes of a step: groups are whole steps, or a step is whole groups.
template <class S>
struct LaneNumbers {
    const Weight4& weight;
    int64_t steps;
    int64_t group_steps, step_groups;  // one of them is 0
    typename S::LaneIndex each, last;

    LaneNumbers(const Weight4& w, int64_t chunks) : weight(w), steps(ceil_div(chunks, S::lanes)) {
        const int64_t group_chunks = weight.group >= weight.columns ? steps * S::lanes : weight.group / 32;
        group_steps = group_chunks / S::lanes;
        step_groups = group_steps ? 0 : S::lanes / group_chunks;
        const auto index = [&](int64_t step) {
            int32_t groups[S::lanes] = {};
            for (int64_t lane = 0; lane < S::lanes && step_groups; ++lane)
                groups[lane] = int32_t(smaller(lane, chunks - 1 - step * S::lanes) / group_chunks);
            return S::lane_index(groups);
        };
        each = index(0);
        last = index(steps - 1);
    }

    // Where the numbers of a step begin, in a row of them.
    int64_t first(int64_t step) const { return step_groups ? step * step_groups : step / group_steps; }
    typename S::Float at(const float* numbers, int64_t step) const {
        return step_groups ? S::spread(numbers, step + 1 == steps ? last : each) : S::set(*numbers);
    }
};

template <class S, bool has_zeros>
struct Weight4Int8 {
    template <int Tokens>
    static constexpr int rows = S::template scaled_tile_rows<Tokens>;
    static constexpr int64_t step_bytes = 16 * S::lanes;

    const Weight4& weight;
    const NibbleTokens<S>& tokens;
    LaneNumbers<S> numbers;
    float* out;
    int64_t out_stride;

    template <int Rows, int Tokens>
    void tile(int64_t row, int64_t token) const {
        typename S::Float sums[Rows][Tokens] = {};
        const uint8_t* codes = weight.codes + row * weight.row_stride;
        const Stream stream{weight.row_stride, Rows};
        const int64_t whole = tokens.chunks / S::lanes;
        const NibbleTokenStep<S>* x = tokens.values.data() + token * tokens.steps;
        for (int64_t step = 0; step < whole; ++step, x += Tokens) {
            const int64_t ahead = stream.ahead(step * step_bytes);
            typename S::Bytes bytes[Rows];
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                Stream::prefetch(codes + r * weight.row_stride, ahead, step_bytes);
                bytes[r] = S::load_bytes(codes + r * weight.row_stride + step * step_bytes);
            }
            add(row, step, bytes, x, sums);
        }
        if (whole < tokens.steps) {
            typename S::Bytes bytes[Rows];
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                alignas(64) uint8_t last[step_bytes] = {};
                std::memcpy(last, codes + r * weight.row_stride + whole * step_bytes, size_t(16 * (tokens.chunks - whole * S::lanes)));
                bytes[r] = S::load_bytes(last);
            }
            add(row, whole, bytes, x, sums);
        }
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) out[(row + r) * out_stride + token + t] = S::sum(sums[r][t]);
    }

    template <int Rows, int Tokens>
    [[gnu::always_inline]] void add(int64_t row, int64_t step, const typename S::Bytes (&bytes)[Rows], const NibbleTokenStep<S>* x,
                                    typename S::Float (&sums)[Rows][Tokens]) const {
        const int64_t first = row * weight.scale_stride + numbers.first(step);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const int64_t at = first + r * weight.scale_stride;
            const typename S::Float scale = numbers.at(weight.scales + at, step);
            const typename S::Bytes codes = has_zeros ? bytes[r] : S::flip(bytes[r], 0x88);
            const typename S::Bytes low = S::low_nibbles(codes), high = S::high_nibbles(codes);
            typename S::Float minus_zero = {};
            if constexpr (has_zeros) minus_zero = S::sub(typename S::Float{}, numbers.at(weight.zeros + at, step));
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) {
                const typename S::Int start = has_zeros ? typename S::Int{} : S::load(x[t].start);
                typename S::Float dot = S::convert(S::dot_nibbles(start, low, high, S::load_bytes(x[t].even), S::load_bytes(x[t].odd)));
                if constexpr (has_zeros) dot = S::fma(minus_zero, S::load(x[t].sums), dot);
                sums[r][t] = S::fma(S::mul(dot, scale), S::load(x[t].scales), sums[r][t]);
            }
        }
    }
};

template <class S, bool has_zeros>
void weight4_int8_of(const Weight4& weight, const BlockTokens& x, float* out, int64_t out_stride) {
    constexpr int64_t rows_at_once = 8;
    using Product = Weight4Int8<S, has_zeros>;
    const NibbleTokens<S> tokens(x, has_zeros ? 0 : 8);
    const Product product{weight, tokens, LaneNumbers<S>(weight, tokens.chunks), out, out_stride};
    for (int64_t row = 0; row < weight.rows; row += rows_at_once)
        cover<Product>(smaller(rows_at_once, weight.rows - row), x.tokens,
                       [&]<int Rows, int Tokens>(int64_t r, int64_t t) { product.template tile<Rows, Tokens>(row + r, t); });
}

// Codes are unsigned where there are zero points, and signed where there are none.
template <class S>
void weight4_int8(const Weight4& weight, const BlockTokens& x, float* out, int64_t out_stride) {
    if (weight.zeros)
        weight4_int8_of<S, true>(weight, x, out, out_stride);
    else
        weight4_int8_of<S, false>(weight, x, out, out_stride);
}

}  // namespace
}  // namespace lowbit::cpu
