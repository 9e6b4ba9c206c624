// Slabs (slabs.hpp) of numbers in place of codes, for tokens of numbers: codes, less their zero points, are converted once for all tokens.
// A Kind says which numbers:
//     Stored, together               as which type, and how many neighbouring ones make 32 bits
//     most_tokens                    for which there are registers at once
//     pack<pairs>(x, to)             16 numbers of a token, pairs: in the order of the codes of a Source with `pairs`
//     put(slab, four, row, value)    value<i>() are the numbers of four neighbouring columns, i = 0 .. 3, and 16 rows
//     add(sums, weight, token)       products of 32 bits each
#pragma once
#include "cpu/avx512/slab_sources.hpp"

namespace lowbit::cpu {
namespace {

template <class Kind, int Span>
struct NumberSlab : Slab<Span> {
    alignas(64) typename Kind::Stored numbers[slab_columns / Kind::together][slab_rows][Kind::together];
};

template <class Kind, int Span>
struct NumberToken {
    static constexpr int64_t spans = slab_columns / Span;
    alignas(64) typename Kind::Stored numbers[slab_columns];
    float sums[spans];

    template <bool pairs>
    void pack(const float* x, int64_t there) {
        std::memset(sums, 0, sizeof sums);
        for (int64_t k = 0; k < slab_columns; k += 16) {
            const __m512 values = _mm512_maskz_loadu_ps(first_words(there - k), x + (k < there ? k : 0));
            sums[k / Span] += _mm512_reduce_add_ps(values);
            Kind::template pack<pairs>(values, numbers + k);
        }
    }
};

template <class Kind, int Span, Extra extra, int Tokens>
[[gnu::noinline]] void multiply_numbers(const NumberSlab<Kind, Span>& slab, const NumberToken<Kind, Span>* x, int64_t columns, bool first,
                                        float* sums, int64_t stride) {
    constexpr int64_t vectors = slab_rows / 16, together = Kind::together;
    for (int64_t s = 0; s * Span < columns; ++s) {
        __m512 dots[vectors][Tokens];
#pragma GCC unroll 16
        for (int t = 0; t < Tokens; ++t)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; ++v) dots[v][t] = _mm512_setzero_ps();
        // A long span may end early.
        constexpr int64_t steps = Span / together;
        const int64_t end = Span > 32 ? smaller((s + 1) * steps, ceil_div(columns, together)) : (s + 1) * steps;
#pragma GCC unroll 2
        for (int64_t i = s * steps; i < end; ++i) {
            __m512i weight[vectors];
#pragma GCC unroll 2
            for (int v = 0; v < vectors; ++v) weight[v] = _mm512_load_si512(slab.numbers[i][16 * v]);
#pragma GCC unroll 16
            for (int t = 0; t < Tokens; ++t) {
                const __m512i token = _mm512_set1_epi32(load_four(x[t].numbers + together * i));
#pragma GCC unroll 2
                for (int v = 0; v < vectors; ++v) Kind::add(dots[v][t], weight[v], token);
            }
        }
        const auto begun = __mmask16(first && s == 0 ? 0 : 0xffff);
#pragma GCC unroll 2
        for (int v = 0; v < vectors; ++v) {
            const __m512 scales = extra == Extra::exact ? _mm512_set1_ps(1.0f) : _mm512_load_ps(slab.scales[s] + 16 * v);
            const __m512 minimums = extra == Extra::minimums ? _mm512_load_ps(slab.extras[s] + 16 * v) : __m512{};
#pragma GCC unroll 16
            for (int t = 0; t < Tokens; ++t) {
                float* to = sums + t * stride + 16 * v;
                __m512 total = _mm512_fmadd_ps(dots[v][t], scales, _mm512_maskz_loadu_ps(begun, to));
                if constexpr (extra == Extra::minimums) total = _mm512_fmadd_ps(minimums, _mm512_set1_ps(x[t].sums[s]), total);
                _mm512_storeu_ps(to, total);
            }
        }
    }
}

// Codes of a Source are integers, or what its Numbers::number(words) makes of the lowest byte of each word.
template <class Kind, class Source>
struct NumberArithmetic {
    using Slab = NumberSlab<Kind, Source::span>;
    using Token = NumberToken<Kind, Source::span>;
    using Sum = float;
    static constexpr int most_tokens = Kind::most_tokens;

    static void prepare(Slab& slab, int64_t columns) {
        if constexpr (Source::extra == Extra::exact) return;  // numbers already
        for (int64_t four = 0; four < ceil_div(columns, 4); ++four)
            for (int row = 0; row < slab_rows; row += 16) {
                const __m512i codes = _mm512_load_si512(slab.codes[four][row]);
                Kind::put(slab, four, row, [&]<int i>() {
                    __m512 value;
                    if constexpr (requires { Source::Numbers::number(codes); })
                        value = Source::Numbers::number(_mm512_srli_epi32(codes, 8 * i));
                    else
                        value = Avx512::byte_numbers<i, Source::offset>(codes);
                    if constexpr (Source::extra != Extra::zeros) return value;
                    return _mm512_add_ps(value, _mm512_load_ps(slab.extras[4 * four / Source::span] + row));
                });
            }
    }
    template <int Tokens>
    static void multiply(const Slab& slab, const Token* x, int64_t columns, bool first, float* sums, int64_t stride) {
        multiply_numbers<Kind, Source::span, Source::extra, Tokens>(slab, x, columns, first, sums, stride);
    }
};

// Rows that are numbers of a Kind, or become some: load(p, there) makes 64 bytes of them.
template <class Kind, class Load>
struct NumberRows {
    static constexpr int span = slab_columns;
    static constexpr Extra extra = Extra::exact;
    static constexpr int32_t offset = 0;
    static constexpr bool pairs = false;
    static constexpr int64_t step = 16 * Kind::together;

    const CodedWeight& weight;

    explicit NumberRows(const CodedWeight& w) : weight(w) {}
    static constexpr int64_t bytes(int64_t values) { return values * Load::bytes; }

    void codes(NumberSlab<Kind, span>& slab, const SixteenRows& rows, int64_t k, int64_t at, int64_t there) const {
        __m512i words[16];
        turn_rows(rows, words, [&](const uint8_t* row, int64_t) { return Load::load(row + bytes(k), there); });
#pragma GCC unroll 16
        for (int64_t w = 0; w < 16; ++w) _mm512_store_si512(slab.numbers[at / Kind::together + w][rows.at], words[w]);
    }
    void scales(NumberSlab<Kind, span>&, const SixteenRows&, int64_t, int64_t) const {}
};

template <class Kind, class Source>
struct NumberProduct : SlabProduct<Source, NumberArithmetic<Kind, Source>> {
    using Base = SlabProduct<Source, NumberArithmetic<Kind, Source>>;
    static void pack(const FloatTokens& x, int64_t columns, int64_t part, int64_t parts, uint8_t* packed) {
        for (int64_t token = x.tokens * part / parts; token < x.tokens * (part + 1) / parts; ++token)
            for (int64_t k = 0; k < columns; k += slab_columns)
                Base::token_at(packed, x.tokens, token, k)
                    .template pack<Source::pairs>(x.values + token * x.stride + k, smaller(slab_columns, columns - k));
    }
    static FloatSlabs loop() { return {Base::packed_bytes, pack, Base::multiply}; }
};

}  // namespace
}  // namespace lowbit::cpu
