// AVX2 with FMA and F16C for the templates of cpu/simd.
#pragma once
#include <cstdint>

#include "cpu/simd/intrinsics.hpp"
#include "lowbit/types.hpp"

namespace lowbit::cpu {
namespace {

struct Avx2 {
    using Float = __m256;
    using Int = __m256i;    // int32
    using Bytes = __m256i;  // 32 codes, or 16 of each of `lanes` blocks
    static constexpr int width = 8;
    static constexpr int lanes = 2;

    // Accumulators of a tile and what it loads fit the 16 registers.
    template <int Tokens>
    static constexpr int tile_rows = Tokens == 4 ? 2 : 4;
    template <int Tokens>
    static constexpr int scaled_tile_rows = 2;
    template <int Tokens>
    static constexpr int panel_tile_rows = 2;
    template <int Tokens>
    static constexpr int block_tile_rows = 2;

    static Float set(float value) { return _mm256_set1_ps(value); }
    static Int set_integer(int32_t value) { return _mm256_set1_epi32(value); }
    static Float load(const float* p) { return _mm256_loadu_ps(p); }
    static Int load(const int32_t* p) { return load_int(p); }
    static Int load_int(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
    static void store(float* p, Float v) { _mm256_storeu_ps(p, v); }
    static void store(int32_t* p, Int v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }
    static Float add(Float a, Float b) { return _mm256_add_ps(a, b); }
    static Float sub(Float a, Float b) { return _mm256_sub_ps(a, b); }
    static Float mul(Float a, Float b) { return _mm256_mul_ps(a, b); }
    static Float div(Float a, Float b) { return _mm256_div_ps(a, b); }
    static Float max(Float a, Float b) { return _mm256_max_ps(a, b); }
    static Float min(Float a, Float b) { return _mm256_min_ps(a, b); }
    static Float fma(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
    static Float truncate(Float v) { return _mm256_round_ps(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
    static Float round_to_even(Float v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
    // For magnitudes below 2^22. Adding the number just below 1/2 cannot carry a smaller fraction than 1/2 to the next integer.
    static Float round_half_away(Float v) { return truncate(add(v, _mm256_or_ps(_mm256_and_ps(v, set(-0.0f)), set(0x1.fffffep-2f)))); }
    static Float absolute(Float v) { return _mm256_andnot_ps(set(-0.0f), v); }
    static Float number_or_zero(Float v) { return _mm256_and_ps(v, _mm256_cmp_ps(v, v, _CMP_ORD_Q)); }
    static Float finite_or_zero(Float v) { return _mm256_and_ps(v, _mm256_cmp_ps(absolute(v), set(__builtin_inff()), _CMP_LT_OQ)); }
    static uint32_t equal_elements(Float a, Float b) { return uint32_t(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ))); }
    static float largest_element(Float v) {
        __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        half = _mm_max_ps(half, _mm_movehl_ps(half, half));
        return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
    }
    static Float convert(Int v) { return _mm256_cvtepi32_ps(v); }
    static float sum(Float v) {
        __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        half = _mm_add_ps(half, _mm_movehl_ps(half, half));
        return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
    }
    static int32_t sum(Int v) {
        __m128i half = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
        half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
        return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
    }
    static Int add(Int a, Int b) { return _mm256_add_epi32(a, b); }
    // Hides from the compiler what a vector holds, and keeps it in one register.
    static Int kept(Int v) {
        asm volatile("" : "+x"(v));
        return v;
    }

    // int32 to 16 bits, in order; the values fit.
    static __m128i narrow(Int v) { return _mm_packus_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)); }
    static void store_int8(int8_t* p, Float integers) {
        const __m256i v = _mm256_cvttps_epi32(integers);
        const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
        _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
    }

    // 16 numbers, looked up by a 4-bit code: in both halves of the table by its low three bits, then chosen by the fourth.
    struct Table {
        __m256 low, high;
    };
    static Table table(const float* values, float zero, float scale) {
        return {mul(sub(load(values), set(zero)), set(scale)), mul(sub(load(values + 8), set(zero)), set(scale))};
    }
    static Float look_up(const Table& t, Int index) {
        const __m256 low = _mm256_permutevar8x32_ps(t.low, index), high = _mm256_permutevar8x32_ps(t.high, index);
        return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
    }
    // Nibble j of each int32, with others above it.
    template <int j>
    static Int nibbles(Bytes codes) {
        return j ? _mm256_srli_epi32(codes, 4 * j) : codes;
    }

    // Two chunks of 32 values into the order of `nibbles`: to[j][4 lane + m] = from[lane][16 (j % 2) + 4 m + j / 2].
    static void pack_nibble_order(const float* from, float* to) {
        for (int lane = 0; lane < lanes; ++lane)
            for (int odd = 0; odd < 2; ++odd) {
                const float* values = from + 32 * lane + 16 * odd;
                float* out = to + 4 * lane + width * odd;
                __m128 a = _mm_loadu_ps(values), b = _mm_loadu_ps(values + 4), c = _mm_loadu_ps(values + 8), d = _mm_loadu_ps(values + 12);
                _MM_TRANSPOSE4_PS(a, b, c, d);
                _mm_storeu_ps(out, a);
                _mm_storeu_ps(out + 2 * width, b);
                _mm_storeu_ps(out + 4 * width, c);
                _mm_storeu_ps(out + 6 * width, d);
            }
    }

    // int8, uint8, fp8; code_unit<E> times as large.
    template <Element E>
    static Float load_codes(const uint8_t* codes) {
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
        if constexpr (E == Element::int8) return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
        if constexpr (E == Element::uint8) return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
        // e5m2 is the upper half of fp16; e4m3, moved into place, is fp16 / 256, but for its NaN.
        if constexpr (E == Element::fp8_e5m2) return _mm256_cvtph_ps(_mm_unpacklo_epi8(_mm_setzero_si128(), bytes));
        const __m128i two_signs = _mm_slli_epi16(_mm_cvtepi8_epi16(bytes), 7);
        return _mm256_cvtph_ps(_mm_and_si128(two_signs, _mm_set1_epi16(int16_t(0xbfff))));
    }
    template <Element E>
    static constexpr float code_unit = E == Element::fp8_e4m3 ? 256.0f : 1.0f;
    // The NaN of e4m3 is its largest magnitude.
    static constexpr bool hides_nan = true;
    static Bytes larger_magnitudes(Bytes largest, const uint8_t* codes) {
        return _mm256_max_epu8(largest, _mm256_and_si256(load_bytes(codes), _mm256_set1_epi8(0x7f)));
    }
    static bool has_nan(Bytes largest) { return _mm256_movemask_epi8(_mm256_cmpeq_epi8(largest, _mm256_set1_epi8(0x7f))) != 0; }
    // NaN stays NaN, which one is left to the instruction.
    static Float widen_fp16(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }

    static uint16_t load_half(const uint8_t* p) {
        uint16_t bits;
        __builtin_memcpy(&bits, p, sizeof bits);
        return bits;
    }
    static float half(const uint8_t* p) { return _cvtsh_ss(load_half(p)); }
    static void store_half(float value, uint8_t* p) {
        const auto bits = uint16_t(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(value), _MM_FROUND_TO_NEAREST_INT)));
        __builtin_memcpy(p, &bits, sizeof bits);
    }

    // The instructions set the quiet bit of a NaN, or keep its payload: core/numeric.hpp does not, so NaN is taken out of their hands.
    static Float load_fp16(const uint16_t* p) {
        const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
        const __m256 values = _mm256_cvtph_ps(halves);
        const __m256i bits = _mm256_cvtepu16_epi32(halves);
        const __m256i sign = _mm256_slli_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x8000)), 16);
        const __m256i payload = _mm256_slli_epi32(_mm256_and_si256(bits, _mm256_set1_epi32(0x3ff)), 13);
        const __m256i kept = _mm256_or_si256(_mm256_or_si256(sign, payload), _mm256_set1_epi32(0x7f800000));
        return _mm256_blendv_ps(values, _mm256_castsi256_ps(kept), _mm256_cmp_ps(values, values, _CMP_UNORD_Q));
    }
    static void store_fp16(uint16_t* p, Float v) {
        const __m128i halves = _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const __m256i unordered = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
        const __m128i nan = _mm_packs_epi32(_mm256_castsi256_si128(unordered), _mm256_extracti128_si256(unordered, 1));
        const __m128i quiet = _mm_or_si128(_mm_and_si128(halves, _mm_set1_epi16(-0x8000)), _mm_set1_epi16(0x7e00));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_blendv_epi8(halves, quiet, nan));
    }
    static Float load_bf16(const uint16_t* p) {
        const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
        return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
    }
    static void store_bf16(uint16_t* p, Float v) {
        const __m256i bits = _mm256_castps_si256(v), top = _mm256_srli_epi32(bits, 16);
        const __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
        const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
        const __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
        const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(_mm256_blendv_epi8(rounded, quiet, nan)));
    }

    // Full int8 products overflow the 16 bits of vpmaddubsw, so codes are widened to 16 bits first.
    static constexpr int32_t int8_offset = 0;
    static constexpr int64_t int8_step = 16;
    static constexpr int peak_sums = 10;
    using WeightCodes = __m256i;
    using TokenCodes = __m256i;
    static WeightCodes load_weight_codes(const int8_t* p) {
        return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    }
    static TokenCodes load_token_codes(const int8_t* p) { return load_weight_codes(p); }
    static Int dot(Int acc, WeightCodes weight, TokenCodes token) { return add(acc, _mm256_madd_epi16(weight, token)); }

    static Bytes load_bytes(const void* p) { return load_int(p); }

    static Bytes gather_lanes(const uint8_t* p, int64_t stride, int count) {
        const auto lane = [&](int64_t i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i * stride)); };
        return _mm256_set_m128i(count > 1 ? lane(1) : _mm_setzero_si128(), lane(0));
    }
    static Bytes low_nibbles(Bytes codes) { return _mm256_and_si256(codes, _mm256_set1_epi8(15)); }
    static Bytes high_nibbles(Bytes codes) { return low_nibbles(_mm256_srli_epi16(codes, 4)); }
    // With the highest bit of each turned over.
    static Bytes flipped_low_nibbles(Bytes codes) { return low_nibbles(flip(codes, 0x08)); }
    static Bytes flipped_high_nibbles(Bytes codes) { return high_nibbles(flip(codes, 0x80)); }
    static Bytes add_offset(Bytes codes) { return codes; }

    // Each lane filled with a number of its own: values[indices[lane]], or the fp16 number at p + lane * stride. The indices rise from 0.
    struct LaneIndex {
        int32_t second;  // the first is 0
    };
    static LaneIndex lane_index(const int32_t* indices) { return {indices[1]}; }
    static Float spread(const float* values, const LaneIndex& index) {
        return _mm256_set_m128(_mm_set1_ps(values[index.second]), _mm_set1_ps(values[0]));
    }
    static Float spread_halves(const uint8_t* p, int64_t stride, int count) {
        return _mm256_set_m128(_mm_set1_ps(count > 1 ? half(p + stride) : 0.0f), _mm_set1_ps(half(p)));
    }

    // Nibbles times int8: 2 * 15 * 128 fits 16 bits, and so does the sum of two such.
    static Int dot_nibbles(Int start, Bytes low, Bytes high, Bytes x_low, Bytes x_high) {
        const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(low, x_low), _mm256_maddubs_epi16(high, x_high));
        return add(start, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    static Int dot_bytes(Int start, Bytes low, Bytes high, Bytes x_low, Bytes x_high) {
        return add(add(start, dot_lanes(low, x_low)), dot_lanes(high, x_high));
    }
    // The products of a lane stay in that lane, as the unpacking does.
    static Int dot_lanes(Bytes a, Bytes b) {
        const __m256i zero = _mm256_setzero_si256(), a_sign = _mm256_cmpgt_epi8(zero, a), b_sign = _mm256_cmpgt_epi8(zero, b);
        return add(_mm256_madd_epi16(_mm256_unpacklo_epi8(a, a_sign), _mm256_unpacklo_epi8(b, b_sign)),
                   _mm256_madd_epi16(_mm256_unpackhi_epi8(a, a_sign), _mm256_unpackhi_epi8(b, b_sign)));
    }
    // Codes of up to 7 bits.
    static Int dot_codes(Int start, Bytes codes, Bytes x) {
        return add(start, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1)));
    }

    // Byte i of each int32 less `zero`, or nibble j, as a number.
    template <int i, int zero>
    static Float byte_numbers(Bytes codes) {
        const __m256i shifted = i ? _mm256_srli_epi32(codes, 8 * i) : codes;
        const __m256 numbers = _mm256_cvtepi32_ps(i < 3 ? _mm256_and_si256(shifted, _mm256_set1_epi32(255)) : shifted);
        return zero ? sub(numbers, set(zero)) : numbers;
    }
    template <int j>
    static Float nibble_numbers(Bytes codes) {
        return _mm256_cvtepi32_ps(j < 7 ? _mm256_and_si256(nibbles<j>(codes), _mm256_set1_epi32(15)) : nibbles<j>(codes));
    }

    // The first lanes of both, or the second ones.
    template <int odd>
    static Bytes every_second_lane(Bytes a, Bytes b) {
        return _mm256_permute2x128_si256(a, b, odd ? 0x31 : 0x20);
    }
    static Bytes load_run(const uint8_t* p, int) { return load_int(p); }
    // Bits move down by `places`; those that stay in their byte are right.
    template <int places, int>
    static Bytes move_bits(Bytes v) {
        return places < 0 ? _mm256_slli_epi32(v, -places) : _mm256_srli_epi32(v, places);
    }
    static Bytes flip(Bytes v, int mask) { return _mm256_xor_si256(v, _mm256_set1_epi8(char(mask))); }
    static Bytes keep(Bytes v, int mask) { return _mm256_and_si256(v, _mm256_set1_epi8(char(mask))); }
    static Bytes merge(Bytes a, Bytes b, int mask) { return _mm256_or_si256(a, keep(b, mask)); }
    // 16 more for code i of a lane where bit i of the 16 bits at p + lane * stride is set.
    static Bytes add_fifth_bits(Bytes codes, const uint8_t* p, int64_t stride, int count) {
        const __m128i second = _mm_set1_epi16(short(count > 1 ? load_half(p + stride) : 0));
        const __m256i halves = _mm256_set_m128i(second, _mm_set1_epi16(short(load_half(p))));
        const __m256i bytes = _mm256_shuffle_epi8(halves, _mm256_set_epi64x(0x0101010101010101, 0, 0x0101010101010101, 0));
        const __m256i bit = _mm256_set1_epi64x(int64_t(0x8040201008040201));
        const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
        return merge(codes, is_set, 16);
    }

    // 16 bytes times the first of two fp16 numbers, or, from the ninth on, the second.
    template <bool is_signed>
    static void scale_bytes(uint64_t first, uint64_t last, uint32_t halves, float* out) {
        const auto eight = [](uint64_t bytes, uint32_t factor, float* to) {
            const __m128i eight_bytes = _mm_cvtsi64_si128(int64_t(bytes));
            const __m256i integers = is_signed ? _mm256_cvtepi8_epi32(eight_bytes) : _mm256_cvtepu8_epi32(eight_bytes);
            store(to, mul(_mm256_cvtepi32_ps(integers), set(_cvtsh_ss(uint16_t(factor)))));
        };
        eight(first, halves & 0xffff, out);
        eight(last, halves >> 16, out + 8);
    }
    // Each lane filled with one of 16 numbers.
    template <auto lane>
    static Float spread(const float* numbers) {
        if constexpr (lane.at[0] == lane.at[1]) return set(numbers[lane.at[0]]);
        return _mm256_set_m128(_mm_set1_ps(numbers[lane.at[1]]), _mm_set1_ps(numbers[lane.at[0]]));
    }

    // The bits in which a and b differ, counted: how many a nibble has set is looked up.
    static Int differing_bits(Bytes a, Bytes b) {
        const __m256i counts = _mm256_broadcastsi128_si256(_mm_set_epi64x(0x0403030203020201, 0x0302020102010100));
        const __m256i bits = _mm256_xor_si256(a, b);
        const __m256i low = _mm256_shuffle_epi8(counts, low_nibbles(bits)), high = _mm256_shuffle_epi8(counts, high_nibbles(bits));
        return _mm256_sad_epu8(_mm256_add_epi8(low, high), _mm256_setzero_si256());
    }

    // An integer added to the bits of 1.5 * 2^23 is that number plus the integer, as a float: a dot product that starts there needs no
    // conversion. Taking the 1.5 * 2^23 off again costs nothing either, inside the FMA with the scale: the scale has the 11 bits of an fp16
    // number (19, times an integer of a K type), so its product with 1.5 * 2^23 is exact.
    static constexpr int32_t dot_start = 0x4b400000;
    static Float scaled_dot(Int dot, Float scale) { return fma(_mm256_castsi256_ps(dot), scale, mul(scale, set(-0x1.8p23f))); }
};

}  // namespace
}  // namespace lowbit::cpu
