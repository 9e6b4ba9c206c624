// q4_0 and q8_0 weights times tokens in blocks of int8: an integer dot product per block, times both scales, summed in fp32.
//
// A step takes S::lanes blocks, one per 128-bit lane of a vector; a lane of `low` holds the first 16 codes of its block, the same lane of
// `high` the other 16. The dot product of a block is then the sum of the four int32 of its lane:
//
//     bytes 0 .. 15 of low and high:   block i          16 .. 31:  block i + 1     ...
//     int32 0 .. 3 of the products:    block i           4 .. 7:   block i + 1
//
// Weight codes are unsigned where the instruction wants it (code + offset). Each int32 therefore starts from -offset * (sum of the token's
// codes that go into it), which leaves no large numbers to cancel later, in fp32.
//
// For few tokens a tile decodes its weights itself; for many, a panel of rows is decoded once. Both add up in the same order.
#pragma once
#include <cstring>

#include "cpu/isa.hpp"
#include "cpu/simd/panels.hpp"
#include "cpu/simd/scratch.hpp"
#include "cpu/simd/stream.hpp"

namespace lowbit::cpu {
namespace {

constexpr int64_t block_values = 32, half_block = 16;

// One step of a row.
template <class S>
struct WeightStep {
    typename S::Bytes low, high;
    typename S::Float scales;  // each four times
};

template <class S>
struct TokenStep {
    alignas(64) int8_t low[half_block * S::lanes], high[half_block * S::lanes];
    int32_t start[4 * S::lanes];
    float scales[4 * S::lanes];  // each four times
};

template <class S>
struct Q4_0 {
    static constexpr int64_t bytes = 18;
    static constexpr int32_t offset = 8;

    [[gnu::always_inline]] static WeightStep<S> decode(const uint8_t* block, int count) {
        const typename S::Bytes codes = S::gather_lanes(block + 2, bytes, count);
        return {S::low_nibbles(codes), S::high_nibbles(codes), S::spread_halves(block, bytes, count)};
    }
    static typename S::Int dot(typename S::Int start, const WeightStep<S>& w, typename S::Bytes x_low, typename S::Bytes x_high) {
        return S::dot_nibbles(start, w.low, w.high, x_low, x_high);
    }
};

template <class S>
struct Q8_0 {
    static constexpr int64_t bytes = 34;
    static constexpr int32_t offset = S::int8_offset;

    [[gnu::always_inline]] static WeightStep<S> decode(const uint8_t* block, int count) {
        return {S::add_offset(S::gather_lanes(block + 2, bytes, count)),
                S::add_offset(S::gather_lanes(block + 2 + half_block, bytes, count)), S::spread_halves(block, bytes, count)};
    }
    static typename S::Int dot(typename S::Int start, const WeightStep<S>& w, typename S::Bytes x_low, typename S::Bytes x_high) {
        return S::dot_bytes(start, w.low, w.high, x_low, x_high);
    }
};

// A batch of tokens as vectors want them. The tokens of a tile follow each other within each step: [tile][step][token of the tile].
template <class S, class Format>
struct PackedTokens {
    int64_t blocks, steps;
    Scratch<TokenStep<S>> values;

    explicit PackedTokens(const BlockTokens& x)
        : blocks(x.columns / block_values), steps(ceil_div(blocks, S::lanes)), values(smaller(batch_tokens, x.tokens) * steps) {}

    template <int Tokens>
    const TokenStep<S>* at(int64_t token, int64_t step) const {
        return values.data() + token * steps + step * Tokens;
    }

    void pack(const BlockTokens& x, int64_t first, int64_t count) {
        for (int64_t token = 0, width; token < count; token += width) {
            width = tile_width(count - token);
            for (int64_t t = 0; t < width; ++t)
                for (int64_t step = 0; step < steps; ++step)
                    pack(x, first + token + t, step * S::lanes, values.data()[token * steps + step * width + t]);
        }
    }

private:
    void pack(const BlockTokens& x, int64_t token, int64_t first, TokenStep<S>& step) const {
        const int64_t there = smaller(S::lanes, blocks - first);
        if (there < S::lanes) std::memset(&step, 0, sizeof step);
        for (int64_t lane = 0; lane < there; ++lane) {
            const int8_t* codes = x.codes + token * x.columns + (first + lane) * block_values;
            std::memcpy(step.low + lane * half_block, codes, half_block);
            std::memcpy(step.high + lane * half_block, codes + half_block, half_block);
            for (int i = 0; i < 4; ++i) step.scales[4 * lane + i] = x.scales[token * blocks + first + lane];
        }
        alignas(64) uint8_t ones[half_block * S::lanes];
        std::memset(ones, 1, sizeof ones);
        const typename S::Bytes one = S::load_bytes(ones);
        S::store(step.start, S::dot_nibbles(typename S::Int{}, one, one, S::load_bytes(step.low), S::load_bytes(step.high)));
        for (int32_t& start : step.start) start = S::dot_start - Format::offset * start;
    }
};

// The loops over the rows and tokens of a tile are unrolled by hand here and below: the compiler keeps arrays in registers only when it has
// no loops over them left.
template <class S, class Format, int Rows, int Tokens>
[[gnu::always_inline]] inline void add_step(const WeightStep<S> (&weights)[Rows], const TokenStep<S>* x,
                                            typename S::Float (&sums)[Rows][Tokens]) {
#pragma GCC unroll 8
    for (int t = 0; t < Tokens; ++t) {
        const TokenStep<S>& token = x[t];
        const typename S::Bytes low = S::load_bytes(token.low), high = S::load_bytes(token.high);
        const typename S::Int start = S::load(token.start);
        const typename S::Float scales = S::load(token.scales);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const typename S::Int dot = Format::dot(start, weights[r], low, high);
            sums[r][t] = S::fma(S::scaled_dot(dot, weights[r].scales), scales, sums[r][t]);
        }
    }
}

// Decodes and multiplies whole rows.
template <class S, class Format>
struct DirectBlocks {
    template <int Tokens>
    static constexpr int rows = S::template scaled_tile_rows<Tokens>;

    const uint8_t* weight;
    int64_t row_stride;
    const PackedTokens<S, Format>& x;
    float* out;
    int64_t out_stride;

    template <int Rows, int Tokens>
    void tile(int64_t row, int64_t token) const {
        typename S::Float sums[Rows][Tokens] = {};
        const int64_t whole = x.blocks / S::lanes;
        for (int64_t step = 0; step < whole; ++step) add(row, token, step, S::lanes, sums);
        if (whole < x.steps) add(row, token, whole, int(x.blocks - whole * S::lanes), sums);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) out[(row + r) * out_stride + token + t] = S::sum(sums[r][t]);
    }

private:
    template <int Rows, int Tokens>
    [[gnu::always_inline]] void add(int64_t row, int64_t token, int64_t step, int count, typename S::Float (&sums)[Rows][Tokens]) const {
        constexpr int64_t step_bytes = S::lanes * Format::bytes;
        const Stream stream{row_stride, panel_rows};
        WeightStep<S> weights[Rows];
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const uint8_t* codes = weight + (row + r) * row_stride;
            stream.prefetch_ahead(codes, step * step_bytes, step_bytes);
            weights[r] = Format::decode(codes + step * step_bytes, count);
        }
        add_step<S, Format>(weights, x.template at<Tokens>(token, step), sums);
    }
};

template <class S, class Format>
struct BlockPanels {
    using Sum = typename S::Float;
    static constexpr int64_t chunk = 8;
    template <int Tokens>
    static constexpr int rows = S::template panel_tile_rows<Tokens>;

    const uint8_t* weight;
    int64_t row_stride;
    const BlockTokens& tokens;
    PackedTokens<S, Format>& x;
    float* out;
    int64_t out_stride;
    WeightStep<S> panel[panel_rows][chunk];

    void begin_tokens(int64_t token, int64_t count) { x.pack(tokens, token, count); }

    void decode(int64_t row, int64_t count, int64_t first, int64_t steps) {
        constexpr int64_t step_bytes = S::lanes * Format::bytes;
        const Stream stream{row_stride, panel_rows};
        for (int64_t r = 0; r < count; ++r) {
            const uint8_t* codes = weight + (row + r) * row_stride;
            stream.prefetch_ahead(codes, first * step_bytes, steps * step_bytes);
            for (int64_t s = 0; s < steps; ++s)
                panel[r][s] = Format::decode(codes + (first + s) * step_bytes, int(smaller(S::lanes, x.blocks - (first + s) * S::lanes)));
        }
    }

    template <int Rows, int Tokens>
    [[gnu::always_inline]] void multiply(int64_t row, int64_t token, int64_t first, int64_t steps, Sum (&sums)[Rows][Tokens]) const {
        for (int64_t s = 0; s < steps; ++s) {
            WeightStep<S> weights[Rows];
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) weights[r] = panel[row + r][s];
            add_step<S, Format>(weights, x.template at<Tokens>(token, first + s), sums);
        }
    }

    void finish(int64_t row, int64_t token, Sum sum) const { out[row * out_stride + token] = S::sum(sum); }
};

template <class S, class Format>
void multiply_blocks(const uint8_t* weight, int64_t row_stride, int64_t rows, const BlockTokens& x, float* out, int64_t out_stride) {
    PackedTokens<S, Format> packed(x);
    if (x.tokens > 4) {
        BlockPanels<S, Format> panels{weight, row_stride, x, packed, out, out_stride, {}};
        multiply_panels(panels, rows, packed.steps, x.tokens);
        return;
    }
    packed.pack(x, 0, x.tokens);
    const DirectBlocks<S, Format> direct{weight, row_stride, packed, out, out_stride};
    for (int64_t row = 0; row < rows; row += panel_rows)
        cover<DirectBlocks<S, Format>>(smaller(panel_rows, rows - row), x.tokens,
                                       [&]<int Rows, int Tokens>(int64_t r, int64_t t) { direct.template tile<Rows, Tokens>(row + r, t); });
}

template <class S>
void q4_0_q8(const uint8_t* weight, int64_t row_stride, int64_t rows, const BlockTokens& x, float* out, int64_t out_stride) {
    multiply_blocks<S, Q4_0<S>>(weight, row_stride, rows, x, out, out_stride);
}

template <class S>
void q8_0_q8(const uint8_t* weight, int64_t row_stride, int64_t rows, const BlockTokens& x, float* out, int64_t out_stride) {
    multiply_blocks<S, Q8_0<S>>(weight, row_stride, rows, x, out, out_stride);
}

}  // namespace
}  // namespace lowbit::cpu
