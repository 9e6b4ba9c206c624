// Slabs of bf16 numbers (avx512/number_slabs.hpp), for bf16 tokens: codes, less their zero points, are integers of at most eight bits and
// so bf16 numbers. (fp16 tokens, sums of two bf16 numbers, would take longer than with vectors of fp32.)
#include "cpu/avx512/number_slabs.hpp"

namespace lowbit::cpu::avx512_bf16 {
namespace {

struct Bf16 {
    using Stored = uint16_t;
    static constexpr int together = 2, most_tokens = most_slab_tokens;

    template <bool pairs>
    static void pack(__m512 x, uint16_t* to) {
        const __m128i order = pairs ? _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15)
                                    : _mm_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        const __m256i top = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(x), 16));
        _mm256_store_si256(reinterpret_cast<__m256i*>(to), _mm256_shuffle_epi8(top, _mm256_broadcastsi128_si256(order)));
    }
    template <class Slab, class Value>
    static void put(Slab& slab, int64_t four, int row, const Value& value) {
        const auto join = [](__m512 low, __m512 high) {
            return _mm512_ternarylogic_epi32(_mm512_srli_epi32(_mm512_castps_si512(low), 16), _mm512_castps_si512(high),
                                             _mm512_set1_epi32(-0x10000), 0xf8);
        };
        _mm512_store_si512(slab.numbers[2 * four][row], join(value.template operator()<0>(), value.template operator()<1>()));
        _mm512_store_si512(slab.numbers[2 * four + 1][row], join(value.template operator()<2>(), value.template operator()<3>()));
    }
    // _mm512_dpbf16_ps, for which GCC copies its sums from register to register.
    static void add(__m512& sums, __m512i weight, __m512i token) { asm("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(weight), "v"(token)); }
};

// 32 numbers of a row as they are.
struct LoadRow {
    static constexpr int64_t bytes = 2;

    static __m512i load(const uint8_t* p, int64_t there) {
        return _mm512_maskz_loadu_epi16(there >= 32 ? ~__mmask32(0) : (__mmask32(1) << there) - 1, p);
    }
};

}  // namespace

FloatSlabs bf16_slabs(const CodedWeight& kind) {
    const auto use = []<class Source>() { return NumberProduct<Bf16, Source>::loop(); };
    if (kind.element == Element::bf16) return use.template operator()<NumberRows<Bf16, LoadRow>>();
    return with_source(kind, true, use);
}

}  // namespace lowbit::cpu::avx512_bf16
