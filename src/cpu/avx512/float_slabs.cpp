// Slabs of fp32 numbers (number_slabs.hpp), for tokens of any kind.
#include "cpu/avx512/number_slabs.hpp"
#include "reference/values.hpp"

namespace lowbit::cpu {
namespace {

struct Fp32 {
    using Stored = float;
    static constexpr int together = 1, most_tokens = 12;

    template <bool pairs>
    static void pack(__m512 x, float* to) {
        const __m512i even_first = _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
        _mm512_store_ps(to, pairs ? _mm512_permutexvar_ps(even_first, x) : x);
    }
    template <class Slab, class Value>
    static void put(Slab& slab, int64_t four, int row, const Value& value) {
        _mm512_store_ps(slab.numbers[4 * four][row], value.template operator()<0>());
        _mm512_store_ps(slab.numbers[4 * four + 1][row], value.template operator()<1>());
        _mm512_store_ps(slab.numbers[4 * four + 2][row], value.template operator()<2>());
        _mm512_store_ps(slab.numbers[4 * four + 3][row], value.template operator()<3>());
    }
    static void add(__m512& sums, __m512i weight, __m512i token) {
        sums = _mm512_fmadd_ps(_mm512_castsi512_ps(weight), _mm512_castsi512_ps(token), sums);
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

// Sixteen numbers of a row.
template <Element element>
struct LoadRow {
    static constexpr int64_t bytes = element == Element::fp32 ? 4 : 2;

    static __m512i load(const uint8_t* p, int64_t there) {
        const __mmask16 mask = first_words(there);
        if constexpr (element == Element::fp32) return _mm512_maskz_loadu_epi32(mask, p);
        const __m256i halves = _mm256_maskz_loadu_epi16(mask, p);
        if constexpr (element == Element::fp16) return _mm512_castps_si512(_mm512_cvtph_ps(halves));
        return _mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16);
    }
};

}  // namespace

FloatSlabs avx512_float_slabs(const CodedWeight& kind) {
    const auto use = []<class Source>() { return NumberProduct<Fp32, Source>::loop(); };
    const auto use_rows = [&]<Element element>() { return use.template operator()<NumberRows<Fp32, LoadRow<element>>>(); };
    switch (kind.element) {
    case Element::fp32: return use_rows.template operator()<Element::fp32>();
    case Element::fp16: return use_rows.template operator()<Element::fp16>();
    case Element::bf16: return use_rows.template operator()<Element::bf16>();
    case Element::nf4: return with_running_source<Nf4Codes, Extra::none>(kind, true, use);
    case Element::fp8_e4m3: return with_running_source<E4m3Codes, Extra::none>(kind, true, use);
    case Element::fp8_e5m2: return with_running_source<E5m2Codes, Extra::none>(kind, true, use);
    default: return with_source(kind, true, use);
    }
}

}  // namespace lowbit::cpu
