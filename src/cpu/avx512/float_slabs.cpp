// Slabs (slabs.hpp) of fp32 numbers, for many tokens of any kind: a column of 16 rows is a vector, a value of a token a broadcast.
#include "cpu/avx512/slab_sources.hpp"
#include "reference/values.hpp"

namespace lowbit::cpu {
namespace {

template <int Span>
struct NumberSlab : Slab<Span> {
    alignas(64) float numbers[slab_columns][slab_rows];
};

template <int Span>
struct NumberToken {
    static constexpr int64_t spans = slab_columns / Span;
    alignas(64) float numbers[slab_columns];
    float sums[spans];

    template <bool pairs>
    void pack(const float* x, int64_t there) {
        const __m512i even_first = _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
        std::memset(sums, 0, sizeof sums);
        for (int64_t k = 0; k < slab_columns; k += 16) {
            const __m512 values = _mm512_maskz_loadu_ps(first_words(there - k), x + (k < there ? k : 0));
            sums[k / Span] += _mm512_reduce_add_ps(values);
            _mm512_store_ps(numbers + k, pairs ? _mm512_permutexvar_ps(even_first, values) : values);
        }
    }
};

template <int Span, Extra extra, int Tokens>
[[gnu::noinline]] void multiply_numbers(const NumberSlab<Span>& slab, const NumberToken<Span>* x, int64_t columns, bool first, float* sums,
                                        int64_t stride) {
    constexpr int vectors = slab_rows / 16;
    for (int64_t s = 0; s * Span < columns; ++s) {
        __m512 dots[vectors][Tokens];
#pragma GCC unroll 16
        for (int t = 0; t < Tokens; ++t)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; ++v) dots[v][t] = _mm512_setzero_ps();
        const int64_t end = smaller((s + 1) * Span, columns);
        for (int64_t k = s * Span; k < end; ++k) {
            __m512 weight[vectors];
#pragma GCC unroll 2
            for (int v = 0; v < vectors; ++v) weight[v] = _mm512_load_ps(slab.numbers[k] + 16 * v);
#pragma GCC unroll 16
            for (int t = 0; t < Tokens; ++t) {
                const __m512 token = _mm512_set1_ps(x[t].numbers[k]);
#pragma GCC unroll 2
                for (int v = 0; v < vectors; ++v) dots[v][t] = _mm512_fmadd_ps(weight[v], token, dots[v][t]);
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
struct NumberArithmetic {
    using Slab = NumberSlab<Source::span>;
    using Token = NumberToken<Source::span>;
    using Sum = float;
    static constexpr int most_tokens = 12;

    static void prepare(Slab& slab, int64_t columns) {
        if constexpr (Source::extra == Extra::exact) return;
        for (int64_t four = 0; four < ceil_div(columns, 4); ++four)
            for (int v = 0; v < slab_rows; v += 16) {
                const __m512i codes = _mm512_load_si512(slab.codes[four][v]);
                const auto put = [&]<int i>() {
                    __m512 value = number<i>(codes);
                    if constexpr (Source::extra == Extra::zeros)
                        value = _mm512_add_ps(value, _mm512_load_ps(slab.extras[4 * four / Source::span] + v));
                    _mm512_store_ps(slab.numbers[4 * four + i] + v, value);
                };
                put.template operator()<0>();
                put.template operator()<1>();
                put.template operator()<2>();
                put.template operator()<3>();
            }
    }
    template <int Tokens>
    static void multiply(const Slab& slab, const Token* x, int64_t columns, bool first, float* sums, int64_t stride) {
        multiply_numbers<Source::span, Source::extra, Tokens>(slab, x, columns, first, sums, stride);
    }

private:
    // What byte i of each word means.
    template <int i>
    static __m512 number(__m512i codes) {
        if constexpr (requires { Source::Numbers::number(codes); })
            return Source::Numbers::number(_mm512_srli_epi32(codes, 8 * i));
        else
            return Avx512::byte_numbers<i, Source::offset>(codes);
    }
};

// Codes that are no integers: number(words) is what the lowest byte of each means.
struct Nf4Codes : Uint4Codes {
    static __m512 number(__m512i words) { return _mm512_permutexvar_ps(words, _mm512_loadu_ps(reference::nf4_levels.values)); }
};
struct E5m2Codes : Uint8Codes {
    static __m512 number(__m512i words) { return lower_halves(_mm512_slli_epi32(words, 8)); }
};
struct E4m3Codes : Uint8Codes {
    static __m512 number(__m512i words) {
        const __m512i sign = _mm512_and_si512(words, _mm512_set1_epi32(0x80)), magnitude = _mm512_and_si512(words, _mm512_set1_epi32(0x7f));
        // The exponent of fp16 is offset by 8 more.
        const __m512i half = _mm512_or_si512(_mm512_slli_epi32(sign, 8), _mm512_slli_epi32(magnitude, 7));
        const __m512 value = _mm512_mul_ps(lower_halves(half), _mm512_set1_ps(256.0f));
        return _mm512_mask_mov_ps(value, _mm512_cmpeq_epi32_mask(magnitude, _mm512_set1_epi32(0x7f)), _mm512_set1_ps(__builtin_nanf("")));
    }
};

// Rows of numbers as they are.
template <Element element>
struct NumberSource {
    static constexpr int span = slab_columns;
    static constexpr Extra extra = Extra::exact;
    static constexpr int32_t offset = 0;
    static constexpr bool pairs = false;
    static constexpr int64_t step = 16;

    const CodedWeight& weight;

    explicit NumberSource(const CodedWeight& w) : weight(w) {}
    static constexpr int64_t bytes(int64_t values) { return values * (element == Element::fp32 ? 4 : 2); }

    void codes(NumberSlab<span>& slab, const SixteenRows& rows, int64_t k, int64_t at, int64_t there) const {
        __m512i columns[16];
        const __mmask16 mask = first_words(there);
        turn_rows(rows, columns, [&](const uint8_t* row, int64_t) {
            const uint8_t* p = row + bytes(k);
            if constexpr (element == Element::fp32) return _mm512_maskz_loadu_epi32(mask, p);
            const __m256i halves = _mm256_maskz_loadu_epi16(mask, p);
            if constexpr (element == Element::fp16) return _mm512_castps_si512(_mm512_cvtph_ps(halves));
            return _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
        });
#pragma GCC unroll 16
        for (int64_t i = 0; i < 16; ++i) _mm512_store_si512(slab.numbers[at + i] + rows.at, columns[i]);
    }
    void scales(NumberSlab<span>&, const SixteenRows&, int64_t, int64_t) const {}
};

template <class Source>
struct NumberProduct : SlabProduct<Source, NumberArithmetic<Source>> {
    using Base = SlabProduct<Source, NumberArithmetic<Source>>;
    static void pack(const FloatTokens& x, int64_t columns, int64_t part, int64_t parts, uint8_t* packed) {
        for (int64_t token = x.tokens * part / parts; token < x.tokens * (part + 1) / parts; ++token)
            for (int64_t k = 0; k < columns; k += slab_columns)
                Base::token_at(packed, x.tokens, token, k)
                    .template pack<Source::pairs>(x.values + token * x.stride + k, smaller(slab_columns, columns - k));
    }
    static FloatSlabs loop() { return {Base::packed_bytes, pack, Base::multiply}; }
};

}  // namespace

FloatSlabs avx512_float_slabs(const CodedWeight& kind) {
    const auto use = []<class Source>() { return NumberProduct<Source>::loop(); };
    switch (kind.element) {
    case Element::fp32: return NumberProduct<NumberSource<Element::fp32>>::loop();
    case Element::fp16: return NumberProduct<NumberSource<Element::fp16>>::loop();
    case Element::bf16: return NumberProduct<NumberSource<Element::bf16>>::loop();
    case Element::nf4: return with_running_source<Nf4Codes, Extra::none>(kind, true, use);
    case Element::fp8_e4m3: return with_running_source<E4m3Codes, Extra::none>(kind, true, use);
    case Element::fp8_e5m2: return with_running_source<E5m2Codes, Extra::none>(kind, true, use);
    default: return with_source(kind, true, use);
    }
}

}  // namespace lowbit::cpu
