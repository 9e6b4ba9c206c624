// Weights with integer codes times many tokens in blocks of int8: rows of the weight in the elements of vectors.
//
// The loops for few tokens hold a run of a row in a vector, and so need one more operation or two for each 64 products to scale them. Here
// 32 rows are decoded once for all tokens into a slab, in which four neighbouring codes of 16 rows are a vector:
//
//     codes   k = 0..3   row 0 .. row 15 | row 16 .. row 31       64 bytes each
//             k = 4..7   row 0 .. row 15 | row 16 .. row 31
//             ...
//     scales  span 0     row 0 .. row 31                          a span: `span` values of K that share a scale on both sides
//
// Four codes of a token, broadcast, are multiplied with 16 rows at once, and a span of 32 x 16 products takes eight instructions and three
// to scale them. Slabs and the tokens beside them are cut along K, so that both stay near: 16 KB of codes, 512 bytes for each token.
//
// Codes enter unsigned, as code + offset: each sum starts from -offset * (sum of the token's codes), and is then an exact integer.
#pragma once
#include <cstring>
#include <type_traits>
#include <utility>

#include "cpu/avx512/transpose.hpp"
#include "cpu/avx512/vectors.hpp"
#include "cpu/isa.hpp"
#include "cpu/simd/arithmetic.hpp"
#include "cpu/simd/scratch.hpp"
#include "cpu/simd/stream.hpp"

namespace lowbit::cpu {
namespace {

constexpr int64_t slab_columns = 512, block_of_tokens = 32;
constexpr int64_t near_bytes = 768 << 10;  // fits the second-level cache beside other things
constexpr int most_slab_tokens = 6;        // at once: a vector multiplies faster than sums of more of them can be kept

// What a type has besides scale * (code - offset) for each span of a row.
enum class Extra {
    none,
    zeros,     // integers that are subtracted from the codes
    minimums,  // numbers that are added to the values
    exact,     // no scale either: sums stay integers, modulo 2^32
};
template <Extra extra>
using SlabSum = std::conditional_t<extra == Extra::exact, int32_t, float>;

template <int Span>
struct Slab {
    static constexpr int span = Span;
    static constexpr int64_t spans = slab_columns / span;
    alignas(64) uint8_t codes[slab_columns / 4][slab_rows][4];
    alignas(64) float scales[spans][slab_rows];
    alignas(64) float extras[spans][slab_rows];  // -zero, or the minimum
};

// As many columns of one token.
template <int Span>
struct SlabToken {
    static constexpr int64_t spans = slab_columns / Span;
    alignas(64) int8_t codes[slab_columns];
    int32_t starts[spans];
    float scales[spans];
    float sums[spans];  // of the codes, times the scale where minimums want them

    // `there` codes, and a scale for each block of them.
    template <Extra extra, bool pairs>
    void pack(const int8_t* x, const float* block_scales, int64_t there, int32_t offset) {
        std::memset(this, 0, sizeof *this);
        std::memcpy(codes, x, size_t(there));
        for (int64_t s = 0; s * Span < there; ++s) {
            int32_t sum = 0;
            for (int64_t i = 0; i < Span; ++i) sum += codes[s * Span + i];
            starts[s] = -offset * sum;
            if constexpr (extra == Extra::exact) continue;
            scales[s] = block_scales[s * Span / block_of_tokens];
            sums[s] = extra == Extra::minimums ? scales[s] * float(sum) : float(sum);
        }
        if constexpr (pairs) {
            const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
            for (int64_t i = 0; i < slab_columns; i += 64)
                _mm512_store_si512(codes + i, _mm512_shuffle_epi8(_mm512_load_si512(codes + i), _mm512_broadcast_i32x4(order)));
        }
    }
};

// Four bytes.
template <class Stored>
int32_t load_four(const Stored* codes) {
    int32_t four;
    std::memcpy(&four, codes, sizeof four);
    return four;
}

// _mm512_dpbusd_epi32, for which GCC copies its sums from register to register.
inline void add_products(__m512i& sums, __m512i codes, __m512i token) { asm("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(codes), "v"(token)); }

// Adds the products of some spans to sums[token][row], or begins them. The loops over vectors and tokens are unrolled for the integer sums
// to stay in registers, which those in fp32 would not fit into beside them.
template <int Span, Extra extra, int Tokens>
[[gnu::noinline]] void multiply_slab(const Slab<Span>& slab, const SlabToken<Span>* x, int64_t columns, bool first, SlabSum<extra>* sums,
                                     int64_t stride) {
    constexpr int vectors = slab_rows / 16;
    constexpr bool has_start = extra == Extra::none || extra == Extra::exact;
    for (int64_t s = 0; s * Span < columns; ++s) {
        __m512i dots[vectors][Tokens];
#pragma GCC unroll 16
        for (int t = 0; t < Tokens; ++t)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; ++v) dots[v][t] = has_start ? _mm512_set1_epi32(x[t].starts[s]) : _mm512_setzero_si512();
        // A long span may end early.
        const int64_t end = Span > 32 ? smaller((s + 1) * (Span / 4), ceil_div(columns, 4)) : (s + 1) * (Span / 4);
#pragma GCC unroll 2
        for (int64_t four = s * (Span / 4); four < end; ++four) {
            __m512i codes[vectors];
#pragma GCC unroll 2
            for (int v = 0; v < vectors; ++v) codes[v] = _mm512_load_si512(slab.codes[four][16 * v]);
#pragma GCC unroll 16
            for (int t = 0; t < Tokens; ++t) {
                const __m512i token = _mm512_set1_epi32(load_four(x[t].codes + 4 * four));
#pragma GCC unroll 2
                for (int v = 0; v < vectors; ++v) add_products(dots[v][t], codes[v], token);
            }
        }
        const auto begun = __mmask16(first && s == 0 ? 0 : 0xffff);
        if constexpr (extra == Extra::exact) {
#pragma GCC unroll 16
            for (int t = 0; t < Tokens; ++t)
#pragma GCC unroll 2
                for (int v = 0; v < vectors; ++v) {
                    int32_t* to = sums + t * stride + 16 * v;
                    _mm512_storeu_si512(to, _mm512_add_epi32(dots[v][t], _mm512_maskz_loadu_epi32(begun, to)));
                }
            continue;
        }
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) {
            const __m512 scales = _mm512_load_ps(slab.scales[s] + 16 * v);
            const __m512 extras = extra == Extra::none ? __m512{} : _mm512_load_ps(slab.extras[s] + 16 * v);
#pragma GCC unroll 16
            for (int t = 0; t < Tokens; ++t) {
                auto* to = reinterpret_cast<float*>(sums + t * stride + 16 * v);
                __m512 dot = _mm512_cvtepi32_ps(dots[v][t]), total = _mm512_maskz_loadu_ps(begun, to);
                const __m512 sum = _mm512_set1_ps(x[t].sums[s]);
                // Integers below 2^24: exact.
                if constexpr (extra == Extra::zeros) dot = _mm512_fmadd_ps(extras, sum, dot);
                total = _mm512_fmadd_ps(_mm512_mul_ps(dot, _mm512_set1_ps(x[t].scales[s])), scales, total);
                if constexpr (extra == Extra::minimums) total = _mm512_fmadd_ps(extras, sum, total);
                _mm512_storeu_ps(to, total);
            }
        }
    }
}

// Bytes of some rows that will be read soon: asked for in the order of their addresses, a few whole lines at a time, they arrive while
// something else is done. Processors do not see by themselves that 32 rows at once are read on.
struct Ahead {
    static constexpr int64_t line = 64;
    const uint8_t* at = nullptr;
    int64_t bytes = 0, rows = 0, stride = 0;

    // What falls to one of `parts` parts. GCC takes a function that does nothing else for one that does nothing, and drops calls of it.
    [[gnu::always_inline]] void ask(int64_t index, int64_t parts) const {
        if (bytes <= 0) return;  // rows may lie in the other order
        const int64_t in_row = ceil_div(bytes, line), lines = rows * in_row, first = lines * index / parts;
        const uint8_t* row = at + first / in_row * stride;
        int64_t i = first % in_row;
        for (int64_t left = lines * (index + 1) / parts - first; left > 0; --left, ++i) {
            if (i == in_row) {
                row += stride;
                i = 0;
            }
            __builtin_prefetch(row + i * line, 0, 2);
        }
    }
};

// What a Source's slabs are multiplied with: tokens of int8.
template <class Source>
struct IntegerArithmetic {
    using Slab = cpu::Slab<Source::span>;
    using Token = SlabToken<Source::span>;
    using Sum = SlabSum<Source::extra>;
    static constexpr int most_tokens = most_slab_tokens;

    static void prepare(Slab&, int64_t) {}
    template <int Tokens>
    static void multiply(const Slab& slab, const Token* x, int64_t columns, bool first, Sum* sums, int64_t stride) {
        multiply_slab<Source::span, Source::extra, Tokens>(slab, x, columns, first, sums, stride);
    }
};

// The tokens of a piece in groups of about the same size.
template <class Arithmetic>
void multiply_tokens(const typename Arithmetic::Slab& slab, const typename Arithmetic::Token* x, int64_t tokens, int64_t columns,
                     bool first, typename Arithmetic::Sum* sums, int64_t stride, const Ahead& ahead) {
    const int64_t groups = ceil_div(tokens, Arithmetic::most_tokens);
    for (int64_t group = 0; group < groups; ++group) {
        const int64_t token = tokens * group / groups, count = tokens * (group + 1) / groups - token;
        ahead.ask(group, groups);
        [&]<int... Some>(std::integer_sequence<int, Some...>) {
            const auto some = [&]<int Tokens>() {
                if (count == Tokens) Arithmetic::template multiply<Tokens>(slab, x + token, columns, first, sums + token * stride, stride);
            };
            (some.template operator()<Some + 1>(), ...);
        }
        (std::make_integer_sequence<int, Arithmetic::most_tokens>());
    }
}

// A Source decodes rows of a weight:
//     span, extra, offset, pairs
//     codes(slab, rows, k, at, there)      `step` codes of 16 rows from column k on, unsigned, of which `there` are in the rows; `at` is
//                                          their place in the slab
//     scales(slab, rows, first, columns)   scales and extras that codes() has not brought
//     bytes(values)                        where a value stands in its row
// Rows beyond the last one are the last one once more.
struct SixteenRows {
    int at;  // in the slab
    const uint8_t* codes[16];
    int64_t numbers[16];

    SixteenRows(const CodedWeight& weight, int64_t first, int place) : at(place) {
        for (int64_t i = 0; i < 16; ++i) {
            numbers[i] = smaller(first + i, weight.rows - 1);
            codes[i] = weight.codes + numbers[i] * weight.row_stride;
        }
    }
};

template <class Source, class Arithmetic = IntegerArithmetic<Source>>
struct SlabProduct {
    using Slab = typename Arithmetic::Slab;
    using Token = typename Arithmetic::Token;
    using Sum = typename Arithmetic::Sum;

    static int64_t slabs(int64_t columns) { return ceil_div(columns, slab_columns); }
    static int64_t packed_bytes(int64_t tokens, int64_t columns) { return tokens * slabs(columns) * int64_t(sizeof(Token)); }

    // Tokens lie as [slab along K][token].
    static Token& token_at(uint8_t* packed, int64_t tokens, int64_t token, int64_t k) {
        return reinterpret_cast<Token*>(packed)[k / slab_columns * tokens + token];
    }

    static void decode(const Source& source, Slab& slab, int64_t row, int64_t first, int64_t columns, const Ahead& ahead) {
        constexpr int64_t step = Source::step, halves = slab_rows / 16;
        const int64_t steps = ceil_div(columns, step);
        for (int half = 0; half < halves; ++half) {
            const SixteenRows sixteen(source.weight, row + 16 * half, 16 * half);
            for (int64_t i = 0; i < steps; ++i) {
                ahead.ask(half * steps + i, halves * steps);
                source.codes(slab, sixteen, first + i * step, i * step, columns - i * step);
            }
            source.scales(slab, sixteen, first, columns);
        }
    }

    static void multiply(const CodedWeight& weight, const uint8_t* packed, int64_t tokens, int64_t first, int64_t count, Sum* sums,
                         int64_t stride) {
        const Source source(weight);
        const Scratch<Slab> memory(1);
        Slab& slab = *memory.data();
        const auto one = [&](int64_t row, int64_t k, const Ahead& while_decoding, const Ahead& while_multiplying) {
            const int64_t columns = smaller(slab_columns, weight.columns - k);
            const Token* x = reinterpret_cast<const Token*>(packed) + k / slab_columns * tokens + first;
            decode(source, slab, row, k, columns, while_decoding);
            Arithmetic::prepare(slab, columns);
            multiply_tokens<Arithmetic>(slab, x, count, columns, k == 0, sums + row, stride, while_multiplying);
        };
        // What is read after columns k of some rows: as much of other rows, from `next_k` on.
        const auto as_much = [&](int64_t row, int64_t next_k) {
            const int64_t columns = smaller(slab_columns, weight.columns - next_k), rows = smaller(slab_rows, weight.rows - row);
            return Ahead{weight.codes + row * weight.row_stride + source.bytes(next_k), source.bytes(columns), rows, weight.row_stride};
        };
        // Where a slab is kilobytes of each row, tokens had better come from farther away than the next slab.
        const int64_t near_tokens = (source.bytes(slab_columns) >= 1024 ? 4 : 1) * near_bytes;
        if (count <= few_slab_tokens && packed_bytes(count, weight.columns) <= near_tokens) {
            // Few tokens stay near as a whole: rows are multiplied to their ends, and meanwhile the next ones are brought.
            const bool near_rows = 6 * slab_rows * weight.row_stride <= near_bytes;
            for (int64_t row = 0; row < weight.rows; row += slab_rows)
                for (int64_t k = 0; k < weight.columns; k += slab_columns) {
                    const int64_t next = smaller(row + slab_rows, weight.rows), next_k = k + slab_columns;
                    Ahead ahead = next_k < weight.columns ? as_much(row, next_k) : as_much(next, 0);
                    if (near_rows) {
                        const int64_t part = smaller(slab_rows, weight.rows - next) * weight.row_stride / slabs(weight.columns);
                        ahead = {weight.codes + next * weight.row_stride + k / slab_columns * part, part, 1, 0};
                    }
                    one(row, k, ahead, {});
                }
        } else {
            for (int64_t k = 0; k < weight.columns; k += slab_columns)
                for (int64_t row = 0; row < weight.rows; row += slab_rows) {
                    const int64_t next = row + slab_rows, next_k = smaller(k + slab_columns, weight.columns);
                    one(row, k, {}, next < weight.rows ? as_much(next, k) : as_much(0, next_k));
                }
        }
    }
};

template <class Source>
struct BlockProduct : SlabProduct<Source> {
    using Base = SlabProduct<Source>;
    static void pack(const BlockTokens& x, int64_t columns, int64_t part, int64_t parts, uint8_t* packed) {
        for (int64_t token = x.tokens * part / parts; token < x.tokens * (part + 1) / parts; ++token)
            for (int64_t k = 0; k < columns; k += slab_columns) {
                const int64_t first = token * columns + k;
                Base::token_at(packed, x.tokens, token, k)
                    .template pack<Source::extra, Source::pairs>(x.codes + first, x.scales + first / block_of_tokens,
                                                                 smaller(slab_columns, columns - k), Source::offset);
            }
    }
    static BlockSlabs loop() { return {Base::packed_bytes, pack, Base::multiply}; }
};

template <class Source>
struct ExactProduct : SlabProduct<Source> {
    using Base = SlabProduct<Source>;
    static void pack(const IntegerTokens& x, int64_t columns, int64_t part, int64_t parts, uint8_t* packed) {
        for (int64_t token = x.tokens * part / parts; token < x.tokens * (part + 1) / parts; ++token)
            for (int64_t k = 0; k < columns; k += slab_columns)
                Base::token_at(packed, x.tokens, token, k)
                    .template pack<Source::extra, Source::pairs>(x.codes + token * x.stride + k, nullptr,
                                                                 smaller(slab_columns, columns - k), Source::offset);
    }
    static ExactSlabs loop() { return {Base::packed_bytes, pack, Base::multiply}; }
};

}  // namespace
}  // namespace lowbit::cpu
