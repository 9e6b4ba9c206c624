// fp32 numbers as sums of bf16 numbers, and what 4-bit codes stand for as one: for instructions that multiply bf16 and add up in fp32.
//
//     x = high + middle + low        8 bits each, cut off, not rounded; nothing is lost
//
// Those instructions take subnormal numbers for zero.
#pragma once
#include <cstring>

#include "cpu/avx512/vectors.hpp"
#include "cpu/isa.hpp"

namespace lowbit::cpu {
namespace {

// A step is 128 codes, 64 bytes. Seen as 32 words of 16 bits, nibble j of word w is value 4 w + j: one shift and one lookup make 32 bf16
// numbers of nibble j of all words.
constexpr int64_t word_step_values = 128, word_step_bytes = 64;
constexpr int word_nibbles = 4;

// What the codes mean, as bf16, for every zero point there can be. All 32 entries that a lookup distinguishes: the bit above a nibble
// belongs to the next one.
struct WordTables {
    static constexpr int64_t zero_points = 256;
    alignas(64) uint16_t numbers[zero_points][32];

    // False where a number would not be exact.
    bool fill(const Weight4& weight) {
        for (int64_t zero = 0; zero < (weight.zeros ? zero_points : 1); ++zero)
            for (int i = 0; i < 32; ++i) {
                const float number = weight.values[i % 16] - float(zero);
                uint32_t bits;
                std::memcpy(&bits, &number, sizeof bits);
                if (bits & 0xffff) return false;
                numbers[zero][i] = uint16_t(bits >> 16);
            }
        return true;
    }
    __m512i table(int64_t zero) const { return _mm512_load_si512(numbers[zero]); }
};

// Whether no part of a token is subnormal, and no sum overflows before it is scaled that would not do so in the end.
inline bool has_normal_parts(const FloatTokens& x, int64_t columns) {
    const __m512 least = _mm512_set1_ps(0x1p-100f), most = _mm512_set1_ps(0x1p+90f);
    for (int64_t token = 0; token < x.tokens; ++token)
        for (int64_t i = 0; i < columns; i += 16) {  // rows are padded
            const __m512 value = _mm512_abs_ps(_mm512_loadu_ps(x.values + token * x.stride + i));
            const __mmask16 nonzero = _mm512_cmp_ps_mask(value, _mm512_setzero_ps(), _CMP_NEQ_UQ);
            const __mmask16 inside = _mm512_cmp_ps_mask(value, least, _CMP_GE_OQ) & _mm512_cmp_ps_mask(value, most, _CMP_LE_OQ);
            if (nonzero & ~inside) return false;
        }
    return true;
}

// The values of one step of a token in the order of the words, to be taken apart.
class StepParts {
public:
    // `columns` of the token are there.
    StepParts(const float* token, int64_t columns, int64_t step) {
        const float* from = token + step * word_step_values;
        const int64_t there = padded_columns(columns) - step * word_step_values;
        alignas(64) float last[word_step_values];
        if (there < word_step_values) {
            std::memset(last, 0, sizeof last);
            std::memcpy(last, from, size_t(there) * sizeof(float));
            from = last;
        }
        Avx512::pack_nibble_order(from, ordered_);
    }

    // The highest part of what is left of nibble j of all words.
    __m512i next(int j) {
        return _mm512_or_si512(_mm512_srli_epi32(next_of(ordered_ + 16 * j), 16), next_of(ordered_ + 16 * (j + word_nibbles)));
    }

private:
    alignas(64) float ordered_[word_step_values];  // [j][e] = value 8 e + j

    static __m512i next_of(float* values) {
        const __m512 all = _mm512_load_ps(values);
        const __m512i top = _mm512_and_si512(_mm512_castps_si512(all), _mm512_set1_epi32(-0x10000));
        _mm512_store_ps(values, _mm512_sub_ps(all, _mm512_castsi512_ps(top)));
        return top;
    }
};

}  // namespace
}  // namespace lowbit::cpu
