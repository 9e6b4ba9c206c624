// Weights in the GGML types of block_formats.hpp times few tokens: the weight is decoded in registers as it streams by.
//
// fp32 tokens: the codes of a lane become fp32 numbers, their products with the tokens are added up and multiplied by the lane's scale.
// int8 tokens in blocks of 32: an exact integer dot product per lane, times both scales. What a type adds to each value of a group is
// multiplied by the sum of the group's tokens, once. One token of a type whose scales and minimums are 16 numbers side by side: these are
// multiplied by what the token has for them, all at once, before they go to their lanes.
//
// Tokens are prepared once for all rows, unit by unit, in the order of the codes: [tile][unit][token of the tile].
#pragma once
#include <utility>

#include "cpu/isa.hpp"
#include "cpu/simd/block_formats.hpp"
#include "cpu/simd/stream.hpp"
#include "cpu/simd/tiles.hpp"

namespace lowbit::cpu {
namespace {

// body<0>(), body<1>(), ...
template <int count, class Body>
[[gnu::always_inline]] inline void unrolled(const Body& body) {
    [&]<int... i>(std::integer_sequence<int, i...>) __attribute__((always_inline)) { (body.template operator()<i>(), ...); }
    (std::make_integer_sequence<int, count>{});
}

template <class Format>
constexpr int64_t unit_values = Format::block_values* Format::unit_blocks;
template <class Format>
constexpr int64_t unit_bytes = Format::block_bytes* Format::unit_blocks;

// The sums of a unit's groups of tokens, where Format::minimum wants them.
template <class S, class Format>
struct GroupSums {
    alignas(64) float values[Format::minimum_vectors * S::width];

    template <class Sum>  // sum(group)
    void pack(const Sum& sum) {
        for (int v = 0; v < Format::minimum_vectors; ++v)
            for (int i = 0; i < S::width; ++i) {
                const int group = Format::minimum_group(v, i);
                values[v * S::width + i] = group < 0 ? 0.0f : Format::minimum_sign * sum(group);
            }
    }
    typename S::Float operator[](int v) const { return S::load(values + v * S::width); }
};
template <class S, class Format>
requires(Format::minimum_vectors == 0) struct GroupSums<S, Format> {
    template <class Sum>
    void pack(const Sum&) {}
};

// What the 16 numbers of a unit are multiplied by: the scales of the token's groups, and their sums.
template <class S, class Format>
struct NumberFactors {
    alignas(64) float values[16], ones[16];  // ones: which of the products are results by themselves

    template <class Sum>
    void pack(const float* scales, const Sum& sum) {
        for (int group = 0; group < 8; ++group) {
            values[group] = scales[group], values[8 + group] = Format::minimum_sign * sum(group);
            ones[group] = 0, ones[8 + group] = 1;
        }
    }
    [[gnu::always_inline]] void multiply(typename Format::Terms& terms) const {
#pragma GCC unroll 8
        for (int i = 0; i < 16; i += S::width) S::store(terms.numbers + i, S::mul(S::load(terms.numbers + i), S::load(values + i)));
    }
};
template <class S, class Format>
requires(!Format::has_numbers) struct NumberFactors<S, Format> {
};

// A unit of one token, in fp32.
template <class S, class Format>
struct FloatUnit {
    using Tokens = FloatTokens;
    template <int Tokens>
    static constexpr bool multiplies_numbers = false;
    static constexpr int64_t step_values = 32 * S::lanes;

    alignas(64) float values[unit_values<Format>];  // by steps, each in the order of S::pack_nibble_order
    [[no_unique_address]] GroupSums<S, Format> sums;

    void pack(const FloatTokens& x, int64_t token, int64_t first, int64_t there) {
        alignas(64) float source[unit_values<Format>] = {}, step_source[step_values];
        std::memcpy(source, x.values + token * x.stride + first, size_t(there) * sizeof(float));
        for (int step = 0; step < Format::steps; ++step) {
            for (int lane = 0; lane < S::lanes; ++lane)
                for (int half = 0; half < 2; ++half)
                    std::memcpy(step_source + 16 * (2 * lane + half), source + 16 * Format::sixteen(step, half, lane), 16 * sizeof(float));
            S::pack_nibble_order(step_source, values + step * step_values);
        }
        sums.pack([&](int group) {
            typename S::Float sum = S::load(source + group * Format::group);
            for (int i = S::width; i < Format::group; i += S::width) sum = S::add(sum, S::load(source + group * Format::group + i));
            return S::sum(sum);
        });
    }

    // Numbers 4 m + i of each lane, m = 0 .. 3.
    template <int half, int i>
    static typename S::Float numbers(const BlockCodes<S>& codes) {
        if constexpr (Format::nibbles) return S::template nibble_numbers<2 * i + half>(codes.packed);
        return S::template byte_numbers<i, Format::zero>(half ? codes.high : codes.low);
    }

    template <int step, int Rows, int Tokens>
    [[gnu::always_inline]] static void add_step(const FloatUnit* x, const BlockCodes<S> (&codes)[Rows],
                                                const typename Format::Terms (&terms)[Rows], typename S::Float (&sums)[Rows][Tokens]) {
        // Few tokens: their sums are scaled. More: the numbers are, which takes fewer registers.
        constexpr bool scales_numbers = Tokens > 2;
        unrolled<2>([&]<int half>() __attribute__((always_inline)) {
            typename S::Float scales[Rows], parts[Rows][Tokens];
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) scales[r] = Format::template scale<step, half>(terms[r]);
            unrolled<4>([&]<int i>() __attribute__((always_inline)) {
                typename S::Float values[Tokens];
#pragma GCC unroll 8
                for (int t = 0; t < Tokens; ++t) values[t] = S::load(x[t].values + step * step_values + (2 * i + half) * S::width);
#pragma GCC unroll 8
                for (int r = 0; r < Rows; ++r) {
                    const typename S::Float number = numbers<half, i>(codes[r]);
                    const typename S::Float scaled = scales_numbers ? S::mul(number, scales[r]) : number;
#pragma GCC unroll 8
                    for (int t = 0; t < Tokens; ++t) {
                        if constexpr (scales_numbers)
                            sums[r][t] = S::fma(scaled, values[t], sums[r][t]);
                        else
                            parts[r][t] = i ? S::fma(number, values[t], parts[r][t]) : S::mul(number, values[t]);
                    }
                }
            });
            if constexpr (scales_numbers) return;
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
                for (int t = 0; t < Tokens; ++t) sums[r][t] = S::fma(parts[r][t], scales[r], sums[r][t]);
        });
    }
};

// What dot products of codes with a token start from: -zero * (sum of the token's codes that go into an element).
template <class S, int zero>
struct DotStarts {
    alignas(16 * S::lanes) int32_t values[4 * S::lanes];

    void set(int element, int32_t sum) { values[element] = S::dot_start - zero * sum; }
    void add(const DotStarts& other) {
        for (int i = 0; i < 4 * S::lanes; ++i) values[i] += other.values[i] - S::dot_start;
    }
    [[gnu::always_inline]] typename S::Int load() const { return S::load(values); }
};
template <class S>
struct DotStarts<S, 0> {
    void set(int, int32_t) {}
    void add(const DotStarts&) {}
    [[gnu::always_inline]] typename S::Int load() const { return S::set_integer(S::dot_start); }
};

// A unit of one token, in int8 with a scale for every 32 values.
template <class S, class Format>
struct IntegerUnit {
    using Tokens = BlockTokens;
    static constexpr int elements = 4 * S::lanes;

    struct Half {
        alignas(16 * S::lanes) int8_t codes[16 * S::lanes];
        [[no_unique_address]] DotStarts<S, Format::zero> starts;
        alignas(16 * S::lanes) float scales[elements];  // each four times
    };
    Half halves[Format::steps][2];
    [[no_unique_address]] GroupSums<S, Format> sums;
    [[no_unique_address]] NumberFactors<S, Format> factors;

    template <int Tokens>
    static constexpr bool multiplies_numbers = Format::has_numbers&& Tokens == 1;

    void pack(const BlockTokens& x, int64_t token, int64_t first, int64_t there) {
        const int8_t* codes = x.codes + token * x.columns + first;
        const float* scales = x.scales + (token * x.columns + first) / 32;
        for (int step = 0; step < Format::steps; ++step)
            for (int half = 0; half < 2; ++half)
                for (int lane = 0; lane < S::lanes; ++lane) {
                    const int sixteen = Format::sixteen(step, half, lane);
                    const bool is_there = 16 * sixteen < there;
                    pack(halves[step][half], lane, is_there ? codes + 16 * sixteen : nullptr, is_there ? scales[sixteen / 2] : 0.0f);
                }
        if constexpr (Format::halves_share_scales)
            for (Half(&both)[2] : halves) both[0].starts.add(both[1].starts);
        const auto group_sum = [&](int group) {
            int32_t sum = 0;
            for (int i = group * Format::group; i < (group + 1) * Format::group && i < there; ++i) sum += codes[i];
            return group * Format::group < there ? float(sum) * scales[group * Format::group / 32] : 0.0f;
        };
        sums.pack(group_sum);
        if constexpr (Format::has_numbers) factors.pack(scales, group_sum);
    }

    template <int step, int Rows, int Tokens>
    [[gnu::always_inline]] static void add_step(const IntegerUnit* x, const BlockCodes<S> (&codes)[Rows],
                                                const typename Format::Terms (&terms)[Rows], typename S::Float (&sums)[Rows][Tokens]) {
        // Where both halves have the same scales, one product takes both.
        unrolled<Format::halves_share_scales ? 1 : 2>([&]<int half>() __attribute__((always_inline)) {
            typename S::Float scales[Rows];
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) scales[r] = Format::template scale<step, half>(terms[r]);
            if constexpr (multiplies_numbers<Tokens>) {
                const typename S::Bytes token_codes = S::load_bytes(x->halves[step][half].codes);
#pragma GCC unroll 8
                for (int r = 0; r < Rows; ++r) {
                    const typename S::Int dot = S::dot_codes(typename S::Int{}, codes[r].of(half), token_codes);
                    sums[r][0] = S::fma(S::convert(dot), scales[r], sums[r][0]);
                }
                return;
            }
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) {
                const Half& token = x[t].halves[step][half];
                const typename S::Bytes token_codes = S::load_bytes(token.codes), others = S::load_bytes(x[t].halves[step][1].codes);
                const typename S::Int start = token.starts.load();
                const typename S::Float token_scales = S::load(token.scales);
#pragma GCC unroll 8
                for (int r = 0; r < Rows; ++r) {
                    const typename S::Int dot = Format::halves_share_scales
                                                    ? S::dot_nibbles(start, codes[r].low, codes[r].high, token_codes, others)
                                                    : S::dot_codes(start, codes[r].of(half), token_codes);
                    sums[r][t] = S::fma(S::scaled_dot(dot, scales[r]), token_scales, sums[r][t]);
                }
            }
        });
    }

    // One token and both steps of a pair: products of the same groups are added as integers.
    template <int step, int Rows>
    [[gnu::always_inline]] static void add_pair(const IntegerUnit* x, const BlockCodes<S> (&first)[Rows],
                                                const BlockCodes<S> (&second)[Rows], const typename Format::Terms (&terms)[Rows],
                                                typename S::Float (&sums)[Rows][1]) {
        unrolled<2>([&]<int half>() __attribute__((always_inline)) {
            const typename S::Bytes first_token = S::load_bytes(x->halves[step][half].codes);
            const typename S::Bytes second_token = S::load_bytes(x->halves[step + 1][half].codes);
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                const typename S::Int dot =
                    S::dot_nibbles(typename S::Int{}, first[r].of(half), second[r].of(half), first_token, second_token);
                sums[r][0] = S::fma(S::convert(dot), Format::template scale<step, half>(terms[r]), sums[r][0]);
            }
        });
    }

private:
    static void pack(Half& half, int lane, const int8_t* codes, float scale) {
        if (codes)
            std::memcpy(half.codes + 16 * lane, codes, 16);
        else
            std::memset(half.codes + 16 * lane, 0, 16);
        for (int m = 0; m < 4; ++m) {
            const int8_t* four = half.codes + 16 * lane + 4 * m;
            half.starts.set(4 * lane + m, four[0] + four[1] + four[2] + four[3]);
            half.scales[4 * lane + m] = scale;
        }
    }
};

template <class S, class Format, class Unit>
struct BlockProduct {
    template <int Tokens>
    static constexpr int rows = S::template block_tile_rows<Tokens>;
    static constexpr int64_t rows_at_once = 8, tokens_at_once = 16;  // packed tokens stay in the second-level cache

    const BlockWeight& weight;
    const Unit* x;
    float* out;
    int64_t out_stride;

    static int64_t units(int64_t columns) { return ceil_div(columns, unit_values<Format>); }

    template <int Rows, int Tokens>
    void tile(int64_t row, int64_t token) const {
        const int64_t count = units(weight.columns), blocks = weight.columns / Format::block_values, whole = blocks / Format::unit_blocks;
        const Unit* tokens = x + token * count;
        typename S::Float sums[Rows][Tokens] = {};
        for (int64_t unit = 0; unit < whole; ++unit) add_unit(row, unit, int(Format::unit_blocks), tokens + unit * Tokens, sums);
        if (Format::unit_blocks > 1 && whole < count)
            add_unit(row, whole, int(blocks - whole * Format::unit_blocks), tokens + whole * Tokens, sums);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) out[(row + r) * out_stride + token + t] = S::sum(sums[r][t]);
    }

    template <int Rows, int Tokens>
    [[gnu::always_inline]] void add_unit(int64_t row, int64_t unit, int blocks, const Unit* tokens,
                                         typename S::Float (&sums)[Rows][Tokens]) const {
        const Stream stream{weight.row_stride, Rows};
        const uint8_t* bytes = weight.codes + row * weight.row_stride + unit * unit_bytes<Format>;
        typename Format::Terms terms[Rows];
        constexpr bool rows_together = requires { Format::terms(bytes, weight.row_stride, terms); };
        if constexpr (rows_together) Format::terms(bytes, weight.row_stride, terms);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            stream.prefetch_ahead(weight.codes + (row + r) * weight.row_stride, unit * unit_bytes<Format>, unit_bytes<Format>);
            if constexpr (!rows_together) terms[r] = Format::terms(bytes + r * weight.row_stride, blocks);
            if constexpr (Unit::template multiplies_numbers<Tokens>) tokens->factors.multiply(terms[r]);
        }
        constexpr bool pairs = Format::paired && Unit::template multiplies_numbers<Tokens>;
        unrolled<Format::steps / (pairs ? 2 : 1)>([&]<int i>() __attribute__((always_inline)) {
            constexpr int step = pairs ? 2 * i : i;
            BlockCodes<S> codes[Rows], next[Rows];
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                codes[r] = Format::template codes<step>(bytes + r * weight.row_stride, blocks);
                if constexpr (pairs) next[r] = Format::template codes<step + 1>(bytes + r * weight.row_stride, blocks);
            }
            if constexpr (pairs)
                Unit::template add_pair<step>(tokens, codes, next, terms, sums);
            else
                Unit::template add_step<step>(tokens, codes, terms, sums);
        });
        if constexpr (Format::minimum_vectors > 0) add_minimums(terms, tokens, sums);
    }

    template <int Rows, int Tokens>
    [[gnu::always_inline]] static void add_minimums(const typename Format::Terms (&terms)[Rows], const Unit* tokens,
                                                    typename S::Float (&sums)[Rows][Tokens]) {
#pragma GCC unroll 8
        for (int v = 0; v < Format::minimum_vectors; ++v)
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
                for (int t = 0; t < Tokens; ++t) {
                    if constexpr (Unit::template multiplies_numbers<Tokens>)
                        sums[r][t] = S::fma(Format::minimum(terms[r], v),
                                            S::load(tokens->factors.ones + Format::minimums_at + v * S::width), sums[r][t]);
                    else
                        sums[r][t] = S::fma(Format::minimum(terms[r], v), tokens[t].sums[v], sums[r][t]);
                }
    }

    static int64_t packed_bytes(int64_t tokens, int64_t columns) { return tokens * units(columns) * int64_t(sizeof(Unit)); }

    static void pack(const typename Unit::Tokens& x, int64_t columns, int64_t part, int64_t parts, uint8_t* packed) {
        pack_tiles<Unit>(x.tokens, units(columns), part, parts, packed, [&](Unit& to, int64_t token, int64_t unit) {
            const int64_t first = unit * unit_values<Format>;
            to.pack(x, token, first, smaller(unit_values<Format>, columns - first));
        });
    }

    static void multiply(const BlockWeight& weight, const uint8_t* packed, int64_t tokens, float* out, int64_t out_stride) {
        const BlockProduct product{weight, reinterpret_cast<const Unit*>(packed), out, out_stride};
        for (int64_t token = 0; token < tokens; token += tokens_at_once)
            for (int64_t row = 0; row < weight.rows; row += rows_at_once)
                cover<BlockProduct>(
                    smaller(rows_at_once, weight.rows - row), smaller(tokens_at_once, tokens - token),
                    [&]<int Rows, int Tokens>(int64_t r, int64_t t) { product.template tile<Rows, Tokens>(row + r, token + t); });
    }

    static BlockLoop<typename Unit::Tokens> loop() { return {packed_bytes, pack, multiply}; }
};

template <class S, template <class, class> class Unit>
auto block_loop(Element weight) {
    const auto loop_of = []<class Format>() { return BlockProduct<S, Format, Unit<S, Format>>::loop(); };
    switch (weight) {
    case Element::q4_1: return loop_of.template operator()<Q4_1<S>>();
    case Element::q5_0: return loop_of.template operator()<Q5_0<S>>();
    case Element::q5_1: return loop_of.template operator()<Q5_1<S>>();
    case Element::q2_k: return loop_of.template operator()<Q2_K<S>>();
    case Element::q3_k: return loop_of.template operator()<Q3_K<S>>();
    case Element::q5_k: return loop_of.template operator()<Q5_K<S>>();
    case Element::q6_k: return loop_of.template operator()<Q6_K<S>>();
    default: return loop_of.template operator()<Q4_K<S>>();
    }
}

}  // namespace
}  // namespace lowbit::cpu
