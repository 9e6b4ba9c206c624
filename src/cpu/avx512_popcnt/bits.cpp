#include "cpu/simd/bits.hpp"

#include "cpu/avx512/vectors.hpp"

namespace lowbit::cpu {
namespace {

struct Avx512Popcnt : Avx512 {
    static Int differing_bits(Bytes a, Bytes b) { return _mm512_popcnt_epi32(_mm512_xor_si512(a, b)); }
};

}  // namespace

void avx512_popcnt_bits(const BitRows& weight, const BitRows& x, int32_t* out, int64_t out_stride) {
    bits<Avx512Popcnt>(weight, x, out, out_stride);
}

}  // namespace lowbit::cpu
