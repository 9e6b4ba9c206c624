// 4-bit codes times fp32 tokens: each code is looked up in a table of 16 numbers.
//
// A step takes S::lanes chunks of 32 values, one per 128-bit lane of a vector. Seen as int32, such a vector holds eight nibbles per
// element, and one shift and one lookup find the numbers of nibble j of all elements:
//
//     element 4 lane + m, nibble j:  byte 4 m + j / 2 of the lane's chunk, its low half where j is even, its high half where j is odd
//                                    = value 16 (j % 2) + 4 m + j / 2 of the chunk, in the order of the tokens
//
// The tokens are brought into that order once per call: [tile][step][token of the tile][j][element].
#pragma once
#include <cstring>
#include <utility>

#include "cpu/isa.hpp"
#include "cpu/simd/scratch.hpp"
#include "cpu/simd/stream.hpp"
#include "cpu/simd/tiles.hpp"

namespace lowbit::cpu {
namespace {

constexpr int64_t chunk_values = 32, chunk_bytes = 16, block_bytes = 18;
constexpr int nibble_count = 8;

// How the scales of a weight lie towards the steps.
enum class Scales4 {
    step,  // a step has one scale (and zero point) per row: both go into the table
    lane,  // the lanes of a step may differ: the sum over a step is scaled
    lane_with_zero,
    block  // as lane, and the scale stands before the codes of each chunk
};

// A batch of tokens in the order of the nibbles.
template <class S>
struct Tokens4 {
    static constexpr int64_t step_values = chunk_values * S::lanes;
    static constexpr int64_t most = 16;  // tokens at a time: one megabyte of them, for 14336 columns

    int64_t steps;
    Scratch<float> values;

    Tokens4(int64_t columns, int64_t tokens) : steps(ceil_div(columns, step_values)), values(smaller(most, tokens) * steps * step_values) {}

    // The tile that begins with a token.
    const float* tile(int64_t token) const { return values.data() + token * steps * step_values; }

    void pack(const FloatTokens& x, int64_t first, int64_t count, int64_t columns) {
        for (int64_t token = 0, width; token < count; token += width) {
            width = tile_width(count - token);
            for (int64_t t = 0; t < width; ++t)
                pack(x.values + (first + token + t) * x.stride, columns, values.data() + token * steps * step_values + t * step_values,
                     width * step_values);
        }
    }

private:
    void pack(const float* from, int64_t columns, float* to, int64_t stride) const {
        const int64_t padded = ceil_div(columns, chunk_values) * chunk_values, whole = padded / step_values;
        for (int64_t step = 0; step < whole; ++step) S::pack_nibble_order(from + step * step_values, to + step * stride);
        if (whole == steps) return;
        float last[step_values] = {};
        std::memcpy(last, from + whole * step_values, size_t(padded - whole * step_values) * sizeof(float));
        S::pack_nibble_order(last, to + whole * stride);
    }
};

// One step of a few rows.
template <class S, int Rows>
struct Codes4 {
    static constexpr int64_t step_bytes = chunk_bytes * S::lanes;
    const uint8_t* first;
    int64_t stride;
    uint8_t last[Rows][step_bytes];

    // The end of a row is copied, with zeros behind it.
    void load(const Weight4& weight, int64_t row, int64_t step, bool is_last) {
        first = weight.codes + row * weight.row_stride + step * step_bytes;
        stride = weight.row_stride;
        if (!is_last) return;
        const int64_t bytes = (weight.columns + 1) / 2 - step * step_bytes;
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            std::memset(last[r], 0, step_bytes);
            std::memcpy(last[r], first + r * stride, size_t(bytes));
        }
        first = last[0];
        stride = step_bytes;
    }

    template <int j>
    typename S::Int nibbles(int r) const {
        return S::template nibbles<j>(S::load_bytes(first + r * stride));
    }
};

template <class S, Scales4 kind>
struct Weight4Kernel {
    using Float = typename S::Float;
    using Int = typename S::Int;
    static constexpr int64_t step_values = chunk_values * S::lanes, step_bytes = chunk_bytes * S::lanes;
    template <int Tokens>
    static constexpr int rows = kind == Scales4::step ? S::template tile_rows<Tokens> : S::template scaled_tile_rows<Tokens>;

    const Weight4& weight;
    const Tokens4<S>& tokens;
    float* out;
    int64_t out_stride;
    Stream stream;

    const uint8_t* row_codes(int64_t row) const { return weight.codes + row * weight.row_stride; }
    int64_t chunks() const { return ceil_div(weight.columns, chunk_values); }

    // Adds number * token for the eight nibbles of every element.
    template <int Rows, int Tokens, class Numbers>
    [[gnu::always_inline]] void add_step(int64_t token, int64_t step, const Numbers& numbers, Float (&sums)[Rows][Tokens]) const {
        const float* x = tokens.tile(token) + step * Tokens * step_values;
        const auto add = [&]<int j>() __attribute__((always_inline)) {
            Float values[Tokens];
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) values[t] = S::load(x + t * step_values + j * S::width);
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                const Float number = numbers.template operator()<j>(r);
#pragma GCC unroll 8
                for (int t = 0; t < Tokens; ++t) sums[r][t] = S::fma(number, values[t], sums[r][t]);
            }
        };
        [&]<int... j>(std::integer_sequence<int, j...>) __attribute__((always_inline)) { (add.template operator()<j>(), ...); }
        (std::make_integer_sequence<int, nibble_count>{});
    }

    template <int Rows, int Tokens>
    void tile(int64_t row, int64_t token) const {
        Float sums[Rows][Tokens] = {};
        if constexpr (kind == Scales4::step)
            add_groups(row, token, sums);
        else if constexpr (kind == Scales4::block)
            add_blocks(row, token, sums);
        else
            add_lanes(row, token, sums);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) out[(row + r) * out_stride + token + t] = S::sum(sums[r][t]);
    }

    template <int Rows, int Tokens>
    [[gnu::always_inline]] void add_groups(int64_t row, int64_t token, Float (&sums)[Rows][Tokens]) const {
        const int64_t steps = tokens.steps, group_steps = weight.group >= weight.columns ? steps : weight.group / step_values;
        Codes4<S, Rows> codes;
        for (int64_t group = 0, step = 0; step < steps; ++group) {
            typename S::Table tables[Rows];
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                const int64_t index = (row + r) * weight.scale_stride + group;
                tables[r] = S::table(weight.values, weight.zeros ? weight.zeros[index] : 0.0f, weight.scales[index]);
            }
            for (const int64_t end = smaller(steps, step + group_steps); step < end; ++step) {
#pragma GCC unroll 8
                for (int r = 0; r < Rows; ++r) stream.prefetch_ahead(row_codes(row + r), step * step_bytes, step_bytes);
                codes.load(weight, row, step, step + 1 == steps);
                add_step(
                    token,
                    step, [&]<int j>(int r) __attribute__((always_inline)) { return S::look_up(tables[r], codes.template nibbles<j>(r)); },
                    sums);
            }
        }
    }

    template <int Rows, int Tokens>
    [[gnu::always_inline]] void add_blocks(int64_t row, int64_t token, Float (&sums)[Rows][Tokens]) const {
        const typename S::Table table = S::table(weight.values, 0.0f, 1.0f);
        for (int64_t step = 0; step < tokens.steps; ++step) {
            const int64_t offset = step * S::lanes * block_bytes;
            const int there = int(smaller(S::lanes, chunks() - step * S::lanes));
            typename S::Bytes codes[Rows];
            Float scales[Rows];
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                stream.prefetch_ahead(row_codes(row + r), offset, S::lanes * block_bytes);
                const uint8_t* block = row_codes(row + r) + offset;
                codes[r] = S::gather_lanes(block + sizeof(uint16_t), block_bytes, there);
                scales[r] = S::spread_halves(block, block_bytes, there);
            }
            Float parts[Rows][Tokens] = {};
            add_step(
                token,
                step, [&]<int j>(int r) __attribute__((always_inline)) { return S::look_up(table, S::template nibbles<j>(codes[r])); },
                parts);
            add_scaled(parts, scales, sums);
        }
    }

    template <int Rows, int Tokens>
    [[gnu::always_inline]] void add_lanes(int64_t row, int64_t token, Float (&sums)[Rows][Tokens]) const {
        constexpr bool has_zeros = kind == Scales4::lane_with_zero;
        const typename S::Table table = S::table(weight.values, 0.0f, 1.0f);
        const int64_t group_chunks = weight.group / chunk_values, groups = ceil_div(chunks(), group_chunks);
        const auto groups_of_lanes = [&](int64_t step) {
            const int64_t first = step * S::lanes / group_chunks;
            int32_t lane_groups[S::lanes];
            for (int lane = 0; lane < S::lanes; ++lane)
                lane_groups[lane] = int32_t(smaller((step * S::lanes + lane) / group_chunks, groups - 1) - first);
            return S::lane_index(lane_groups);
        };
        // Mostly the lanes of every step lie towards its first group as those of step 0 do.
        const bool is_regular = S::lanes % group_chunks == 0;
        const int64_t step_groups = S::lanes / group_chunks;
        typename S::LaneIndex index = groups_of_lanes(0);
        Codes4<S, Rows> codes;
        for (int64_t step = 0; step < tokens.steps; ++step) {
            const int64_t first = is_regular ? step * step_groups : step * S::lanes / group_chunks;
            if (!is_regular || step + 1 == tokens.steps) index = groups_of_lanes(step);
            codes.load(weight, row, step, step + 1 == tokens.steps);
            Float scales[Rows], zeros[Rows];
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                stream.prefetch_ahead(row_codes(row + r), step * step_bytes, step_bytes);
                const int64_t at = (row + r) * weight.scale_stride + first;
                scales[r] = S::spread(weight.scales + at, index);
                if constexpr (has_zeros) zeros[r] = S::spread(weight.zeros + at, index);
            }
            Float parts[Rows][Tokens] = {};
            add_step(
                token, step,
                [&]<int j>(int r) __attribute__((always_inline)) {
                    const Float number = S::look_up(table, codes.template nibbles<j>(r));
                    if constexpr (has_zeros) return S::sub(number, zeros[r]);
                    return number;
                },
                parts);
            add_scaled(parts, scales, sums);
        }
    }

    template <int Rows, int Tokens>
    [[gnu::always_inline]] static void add_scaled(const Float (&parts)[Rows][Tokens], const Float (&scales)[Rows],
                                                  Float (&sums)[Rows][Tokens]) {
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) sums[r][t] = S::fma(parts[r][t], scales[r], sums[r][t]);
    }
};

template <class S, Scales4 kind>
void weight4_of(const Weight4& weight, const FloatTokens& x, float* out, int64_t out_stride) {
    constexpr int64_t rows_at_once = 8;
    Tokens4<S> tokens(weight.columns, x.tokens);
    for (int64_t token = 0; token < x.tokens; token += tokens.most) {
        const int64_t tokens_here = smaller(tokens.most, x.tokens - token);
        tokens.pack(x, token, tokens_here, weight.columns);
        const Stream stream{weight.row_stride, rows_at_once};
        const Weight4Kernel<S, kind> kernel{weight, tokens, out + token, out_stride, stream};
        for (int64_t row = 0; row < weight.rows; row += rows_at_once)
            cover<Weight4Kernel<S, kind>>(
                smaller(rows_at_once, weight.rows - row), tokens_here,
                [&]<int Rows, int Tokens>(int64_t r, int64_t t) { kernel.template tile<Rows, Tokens>(row + r, t); });
    }
}

template <class S>
void weight4(const Weight4& weight, const FloatTokens& x, float* out, int64_t out_stride) {
    if (weight.block_bytes)
        weight4_of<S, Scales4::block>(weight, x, out, out_stride);
    else if (weight.group >= weight.columns || weight.group % (chunk_values * S::lanes) == 0)
        weight4_of<S, Scales4::step>(weight, x, out, out_stride);
    else if (weight.zeros)
        weight4_of<S, Scales4::lane_with_zero>(weight, x, out, out_stride);
    else
        weight4_of<S, Scales4::lane>(weight, x, out, out_stride);
}

}  // namespace
}  // namespace lowbit::cpu
