// int4 and uint4 weights times tokens in blocks of int8: an exact integer dot product for each chunk of 32 codes, times both scales, summed
// in fp32.
//
// A step takes S::lanes chunks, one per 128-bit lane of a vector (see weight4.hpp). Low nibbles are the values 0, 2, 4, ... of a chunk and
// high nibbles 1, 3, 5, ...: tokens are packed in that order. Signed codes enter as code + 8, and each int32 starts from -8 * (sum of the
// token's codes that go into it); zero points come off the same sums.
#pragma once
#include <cstring>

#include "cpu/isa.hpp"
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

    // Chunks from `first` on, of which the last ones may be missing.
    void pack(const BlockTokens& x, int64_t token, int64_t first, int32_t offset) {
        const int64_t chunks = x.columns / 32, there = smaller(S::lanes, chunks - first);
        std::memset(this, 0, sizeof *this);
        for (int64_t lane = 0; lane < there; ++lane) {
            const int8_t* codes = x.codes + token * x.columns + (first + lane) * 32;
            for (int64_t i = 0; i < 16; ++i) {
                even[16 * lane + i] = codes[2 * i], odd[16 * lane + i] = codes[2 * i + 1];
                start[4 * lane + i / 4] += codes[2 * i] + codes[2 * i + 1];
            }
            for (int i = 0; i < 4; ++i) scales[4 * lane + i] = x.scales[token * chunks + first + lane];
        }
        for (int i = 0; i < 4 * S::lanes; ++i) sums[i] = float(start[i]), start[i] *= -offset;
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
    using Step = NibbleTokenStep<S>;
    template <int Tokens>
    static constexpr int rows = Tokens == 1 ? S::template tile_rows<1> : S::template scaled_tile_rows<Tokens>;
    static constexpr int64_t step_bytes = 16 * S::lanes, rows_at_once = 8;

    const Weight4& weight;
    const Step* tokens;  // [tile][step][token of the tile]
    int64_t chunks, steps;
    LaneNumbers<S> numbers;
    float* out;
    int64_t out_stride;

    static int64_t steps_of(int64_t columns) { return ceil_div(columns / 32, S::lanes); }

    template <int Rows, int Tokens>
    void tile(int64_t row, int64_t token) const {
        typename S::Float sums[Rows][Tokens] = {};
        const uint8_t* codes = weight.codes + row * weight.row_stride;
        const Stream stream{weight.row_stride, Rows};
        const int64_t whole = chunks / S::lanes;
        const Step* x = tokens + token * steps;
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
        if (whole < steps) {
            typename S::Bytes bytes[Rows];
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                alignas(64) uint8_t last[step_bytes] = {};
                std::memcpy(last, codes + r * weight.row_stride + whole * step_bytes, size_t(16 * (chunks - whole * S::lanes)));
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
    [[gnu::always_inline]] void add(int64_t row, int64_t step, const typename S::Bytes (&bytes)[Rows], const Step* x,
                                    typename S::Float (&sums)[Rows][Tokens]) const {
        const int64_t first = row * weight.scale_stride + numbers.first(step);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const int64_t at = first + r * weight.scale_stride;
            const typename S::Float scale = numbers.at(weight.scales + at, step);
            const typename S::Bytes low = has_zeros ? S::low_nibbles(bytes[r]) : S::flipped_low_nibbles(bytes[r]);
            const typename S::Bytes high = has_zeros ? S::high_nibbles(bytes[r]) : S::flipped_high_nibbles(bytes[r]);
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

    static int64_t packed_bytes(int64_t tokens, int64_t columns) { return tokens * steps_of(columns) * int64_t(sizeof(Step)); }

    // Codes are unsigned where there are zero points, and signed where there are none.
    static void pack(const BlockTokens& x, int64_t columns, int64_t part, int64_t parts, uint8_t* packed) {
        pack_tiles<Step>(x.tokens, steps_of(columns), part, parts, packed,
                         [&](Step& to, int64_t token, int64_t step) { to.pack(x, token, step * S::lanes, has_zeros ? 0 : 8); });
    }

    static void multiply(const Weight4& weight, const uint8_t* packed, int64_t tokens, float* out, int64_t out_stride) {
        const int64_t chunks = weight.columns / 32;
        const Weight4Int8 product{
            weight,    reinterpret_cast<const Step*>(packed), chunks, steps_of(weight.columns), LaneNumbers<S>(weight, chunks), out,
            out_stride};
        for (int64_t row = 0; row < weight.rows; row += rows_at_once)
            cover<Weight4Int8>(smaller(rows_at_once, weight.rows - row), tokens,
                               [&]<int Rows, int Tokens>(int64_t r, int64_t t) { product.template tile<Rows, Tokens>(row + r, t); });
    }

    static BlockLoop<BlockTokens, Weight4> loop() { return {packed_bytes, pack, multiply}; }
};

template <class S>
BlockLoop<BlockTokens, Weight4> weight4_int8(bool has_zeros) {
    return has_zeros ? Weight4Int8<S, true>::loop() : Weight4Int8<S, false>::loop();
}

}  // namespace
}  // namespace lowbit::cpu
