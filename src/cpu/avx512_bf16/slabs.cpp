// Slabs (avx512/slabs.hpp) for many tokens of bf16: codes, less their zero points, are integers of at most eight bits and so bf16 numbers,
// two neighbouring ones to an element of a vector. (fp16 tokens, sums of two bf16 numbers, would take longer than with vectors of fp32.)
#include "cpu/avx512/slab_sources.hpp"

namespace lowbit::cpu::avx512_bf16 {
namespace {

template <int Span>
struct FloatSlab : Slab<Span> {
    alignas(64) uint16_t pairs[slab_columns / 2][slab_rows][2];
};

template <int Span>
struct FloatToken {
    static constexpr int64_t spans = slab_columns / Span;
    alignas(64) uint16_t numbers[slab_columns];
    float sums[spans];

    template <bool pairs>
    void pack(const float* x, int64_t there) {
        const __m128i order = pairs ? _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15)
                                    : _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        std::memset(sums, 0, sizeof sums);
        for (int64_t k = 0; k < slab_columns; k += 16) {
            const __m512 values = _mm512_maskz_loadu_ps(first_words(there - k), x + (k < there ? k : 0));
            sums[k / Span] += _mm512_reduce_add_ps(values);
            const __m256i top = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(values), 16));
            _mm256_store_si256(reinterpret_cast<__m256i*>(numbers + k), _mm256_shuffle_epi8(top, _mm256_broadcastsi128_si256(order)));
        }
    }
};

inline int32_t load_pair(const uint16_t* numbers) {
    int32_t pair;
    std::memcpy(&pair, numbers, sizeof pair);
    return pair;
}

// _mm512_dpbf16_ps, for which GCC copies its sums from register to register.
inline void add_pairs(__m512& sums, __m512i weight, __m512i token) { asm("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(weight), "v"(token)); }

template <int Span, Extra extra, int Tokens>
[[gnu::noinline]] void multiply_slab(const FloatSlab<Span>& slab, const FloatToken<Span>* x, int64_t columns, bool first, float* sums,
                                     int64_t stride) {
    constexpr int vectors = slab_rows / 16;
    for (int64_t s = 0; s * Span < columns; ++s) {
        __m512 dots[vectors][Tokens];
#pragma GCC unroll 16
        for (int t = 0; t < Tokens; ++t)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; ++v) dots[v][t] = _mm512_setzero_ps();
        const int64_t end = Span > 32 ? smaller((s + 1) * (Span / 2), ceil_div(columns, 2)) : (s + 1) * (Span / 2);
#pragma GCC unroll 2
        for (int64_t pair = s * (Span / 2); pair < end; ++pair) {
            __m512i weight[vectors];
#pragma GCC unroll 2
            for (int v = 0; v < vectors; ++v) weight[v] = _mm512_load_si512(slab.pairs[pair][16 * v]);
#pragma GCC unroll 16
            for (int t = 0; t < Tokens; ++t) {
                const __m512i token = _mm512_set1_epi32(load_pair(x[t].numbers + 2 * pair));
#pragma GCC unroll 2
                for (int v = 0; v < vectors; ++v) add_pairs(dots[v][t], weight[v], token);
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

template <class Source>
struct FloatArithmetic {
    using Slab = FloatSlab<Source::span>;
    using Token = FloatToken<Source::span>;
    using Sum = float;
    static constexpr int most_tokens = most_slab_tokens;

    // Codes become numbers, zero points are taken off them.
    static void prepare(Slab& slab, int64_t columns) {
        if constexpr (Source::extra == Extra::exact) return;
        for (int64_t four = 0; four < ceil_div(columns, 4); ++four)
            for (int v = 0; v < slab_rows; v += 16) {
                const __m512i codes = _mm512_load_si512(slab.codes[four][v]);
                const auto number = [&]<int i>() {
                    const __m512 value = Avx512::byte_numbers<i, Source::offset>(codes);
                    if constexpr (Source::extra != Extra::zeros) return _mm512_castps_si512(value);
                    return _mm512_castps_si512(_mm512_add_ps(value, _mm512_load_ps(slab.extras[4 * four / Source::span] + v)));
                };
                const auto join = [](__m512i low, __m512i high) {
                    return _mm512_ternarylogic_epi32(_mm512_srli_epi32(low, 16), high, _mm512_set1_epi32(-0x10000), 0xf8);
                };
                _mm512_store_si512(slab.pairs[2 * four][v], join(number.template operator()<0>(), number.template operator()<1>()));
                _mm512_store_si512(slab.pairs[2 * four + 1][v], join(number.template operator()<2>(), number.template operator()<3>()));
            }
    }
    template <int Tokens>
    static void multiply(const Slab& slab, const Token* x, int64_t columns, bool first, float* sums, int64_t stride) {
        multiply_slab<Source::span, Source::extra, Tokens>(slab, x, columns, first, sums, stride);
    }
};

// Rows of bf16 as they are.
struct PlainSource {
    static constexpr int span = slab_columns;
    static constexpr Extra extra = Extra::exact;
    static constexpr int32_t offset = 0;
    static constexpr bool pairs = false;
    static constexpr int64_t step = 32;

    const CodedWeight& weight;

    explicit PlainSource(const CodedWeight& w) : weight(w) {}
    static constexpr int64_t bytes(int64_t values) { return 2 * values; }

    void codes(FloatSlab<span>& slab, const SixteenRows& rows, int64_t k, int64_t at, int64_t there) const {
        __m512i words[16];
        const __mmask32 mask = there >= 32 ? ~__mmask32(0) : (__mmask32(1) << there) - 1;
        turn_rows(rows, words, [&](const uint8_t* row, int64_t) { return _mm512_maskz_loadu_epi16(mask, row + bytes(k)); });
#pragma GCC unroll 16
        for (int64_t w = 0; w < 16; ++w) _mm512_store_si512(slab.pairs[at / 2 + w][rows.at], words[w]);
    }
    void scales(FloatSlab<span>&, const SixteenRows&, int64_t, int64_t) const {}
};

template <class Source>
struct FloatProduct : SlabProduct<Source, FloatArithmetic<Source>> {
    using Base = SlabProduct<Source, FloatArithmetic<Source>>;
    static void pack(const FloatTokens& x, int64_t columns, int64_t part, int64_t parts, uint8_t* packed) {
        for (int64_t token = x.tokens * part / parts; token < x.tokens * (part + 1) / parts; ++token)
            for (int64_t k = 0; k < columns; k += slab_columns)
                Base::token_at(packed, x.tokens, token, k)
                    .template pack<Source::pairs>(x.values + token * x.stride + k, smaller(slab_columns, columns - k));
    }
    static FloatSlabs loop() { return {Base::packed_bytes, pack, Base::multiply}; }
};

}  // namespace

FloatSlabs bf16_slabs(const CodedWeight& kind) {
    if (kind.element == Element::bf16) return FloatProduct<PlainSource>::loop();
    return with_source(kind, true, []<class Source>() { return FloatProduct<Source>::loop(); });
}

}  // namespace lowbit::cpu::avx512_bf16
