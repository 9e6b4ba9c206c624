// AVX-512 (F, BW, DQ, VL, VNNI) for the templates of cpu/simd.
#pragma once
#include <cstdint>

#include "cpu/simd/intrinsics.hpp"
#include "lowbit/types.hpp"

namespace lowbit::cpu {
namespace {

struct Avx512 {
    using Float = __m512;
    using Int = __m512i;    // int32
    using Bytes = __m512i;  // 64 codes, or 16 of each of `lanes` blocks
    static constexpr int width = 16;
    static constexpr int lanes = 4;

    // Accumulators of a tile and what it loads fit the 32 registers.
    template <int Tokens>
    static constexpr int tile_rows = Tokens == 1 ? 8 : 4;
    template <int Tokens>
    static constexpr int scaled_tile_rows = 4;
    template <int Tokens>
    static constexpr int panel_tile_rows = 2;
    template <int Tokens>
    static constexpr int block_tile_rows = 4;

    static Float set(float value) { return _mm512_set1_ps(value); }
    static Int set_integer(int32_t value) { return _mm512_set1_epi32(value); }
    static Float load(const float* p) { return _mm512_loadu_ps(p); }
    static Int load(const int32_t* p) { return _mm512_loadu_si512(p); }
    static void store(float* p, Float v) { _mm512_storeu_ps(p, v); }
    static void store(int32_t* p, Int v) { _mm512_storeu_si512(p, v); }
    static Float add(Float a, Float b) { return _mm512_add_ps(a, b); }
    static Float sub(Float a, Float b) { return _mm512_sub_ps(a, b); }
    static Float mul(Float a, Float b) { return _mm512_mul_ps(a, b); }
    static Float div(Float a, Float b) { return _mm512_div_ps(a, b); }
    static Float max(Float a, Float b) { return _mm512_max_ps(a, b); }
    static Float min(Float a, Float b) { return _mm512_min_ps(a, b); }
    static Float fma(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
    static Float truncate(Float v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
    static Float round_to_even(Float v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
    // For magnitudes below 2^22. Adding the number just below 1/2 cannot carry a smaller fraction than 1/2 to the next integer.
    static Float round_half_away(Float v) {
        const __m512 sign = _mm512_and_ps(v, set(-0.0f));
        return truncate(add(v, _mm512_or_ps(sign, set(0x1.fffffep-2f))));
    }
    static Float absolute(Float v) { return _mm512_abs_ps(v); }
    static Float number_or_zero(Float v) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(v, v, _CMP_ORD_Q), v); }
    static Float finite_or_zero(Float v) {
        return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(absolute(v), set(__builtin_inff()), _CMP_LT_OQ), v);
    }
    static float largest_element(Float v) { return _mm512_reduce_max_ps(v); }
    static uint32_t equal_elements(Float a, Float b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
    static void store_int8(int8_t* p, Float integers) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(integers)));
    }
    static Int add(Int a, Int b) { return _mm512_add_epi32(a, b); }
    // Hides from the compiler what a vector holds, and keeps it in one register.
    static Int kept(Int v) {
        asm volatile("" : "+v"(v));
        return v;
    }
    static Int load_int(const void* p) { return _mm512_loadu_si512(p); }
    static Float convert(Int v) { return _mm512_cvtepi32_ps(v); }
    static float sum(Float v) { return _mm512_reduce_add_ps(v); }
    // Modulo 2^32, which _mm512_reduce_add_epi32 is not: GCC's ends in an addition of ints.
    static int32_t sum(Int v) {
        const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
        __m128i quarter = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
        quarter = _mm_add_epi32(quarter, _mm_shuffle_epi32(quarter, 0x4e));
        return _mm_cvtsi128_si32(_mm_add_epi32(quarter, _mm_shuffle_epi32(quarter, 0xb1)));
    }

    // 16 numbers, looked up by a 4-bit code.
    struct Table {
        __m512 values;
    };
    static Table table(const float* values, float zero, float scale) { return {mul(sub(load(values), set(zero)), set(scale))}; }
    // vpermps looks at the lowest four bits of an index only.
    static Float look_up(const Table& t, Int index) { return _mm512_permutexvar_ps(index, t.values); }
    // Nibble j of each int32, with others above it.
    template <int j>
    static Int nibbles(Bytes codes) {
        return j ? _mm512_srli_epi32(codes, 4 * j) : codes;
    }

    // Four chunks of 32 values into the order of `nibbles`: to[j][4 lane + m] = from[lane][16 (j % 2) + 4 m + j / 2].
    static void pack_nibble_order(const float* from, float* to) {
        const __m512i transposed = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
        for (int odd = 0; odd < 2; ++odd) {
            const auto chunk = [&](int lane) { return _mm512_permutexvar_ps(transposed, load(from + 32 * lane + 16 * odd)); };
            const __m512 a = chunk(0), b = chunk(1), c = chunk(2), d = chunk(3);
            const __m512 ab = _mm512_shuffle_f32x4(a, b, 0x44), cd = _mm512_shuffle_f32x4(c, d, 0x44);
            const __m512 ab_high = _mm512_shuffle_f32x4(a, b, 0xee), cd_high = _mm512_shuffle_f32x4(c, d, 0xee);
            store(to + 16 * odd, _mm512_shuffle_f32x4(ab, cd, 0x88));
            store(to + 16 * (2 + odd), _mm512_shuffle_f32x4(ab, cd, 0xdd));
            store(to + 16 * (4 + odd), _mm512_shuffle_f32x4(ab_high, cd_high, 0x88));
            store(to + 16 * (6 + odd), _mm512_shuffle_f32x4(ab_high, cd_high, 0xdd));
        }
    }

    // int8, uint8, fp8; code_unit<E> times as large.
    template <Element E>
    static Float load_codes(const uint8_t* codes) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes));
        if constexpr (E == Element::int8) return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
        if constexpr (E == Element::uint8) return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
        // e5m2 is the upper half of fp16; e4m3, moved into place, is fp16 / 256, but for its NaN.
        if constexpr (E == Element::fp8_e5m2) return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8));
        const __m256i two_signs = _mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7);
        return _mm512_cvtph_ps(_mm256_and_si256(two_signs, _mm256_set1_epi16(int16_t(0xbfff))));
    }
    template <Element E>
    static constexpr float code_unit = E == Element::fp8_e4m3 ? 256.0f : 1.0f;
    // The NaN of e4m3 is its largest magnitude.
    static constexpr bool hides_nan = true;
    static Bytes larger_magnitudes(Bytes largest, const uint8_t* codes) {
        return _mm512_max_epu8(largest, _mm512_and_si512(load_bytes(codes), _mm512_set1_epi8(0x7f)));
    }
    static bool has_nan(Bytes largest) { return _mm512_cmpeq_epi8_mask(largest, _mm512_set1_epi8(0x7f)) != 0; }
    // NaN stays NaN, which one is left to the instruction.
    static Float widen_fp16(const uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }

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
        const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
        const __m512 values = _mm512_cvtph_ps(halves);
        const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
        const __m512i bits = _mm512_cvtepu16_epi32(halves);
        const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(bits, _mm512_set1_epi32(0x8000)), 16);
        const __m512i payload = _mm512_slli_epi32(_mm512_and_si512(bits, _mm512_set1_epi32(0x3ff)), 13);
        const __m512i kept = _mm512_or_si512(_mm512_or_si512(sign, payload), _mm512_set1_epi32(0x7f800000));
        return _mm512_mask_mov_ps(values, nan, _mm512_castsi512_ps(kept));
    }
    static void store_fp16(uint16_t* p, Float v) {
        const __m256i halves = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
        const __m256i quiet = _mm256_or_si256(_mm256_and_si256(halves, _mm256_set1_epi16(-0x8000)), _mm256_set1_epi16(0x7e00));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_mask_mov_epi16(halves, nan, quiet));
    }
    static Float load_bf16(const uint16_t* p) {
        const __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
        return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
    }
    static void store_bf16(uint16_t* p, Float v) {
        const __m512i bits = _mm512_castps_si512(v), top = _mm512_srli_epi32(bits, 16);
        const __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
        const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
        const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
        const __m512i result = _mm512_mask_or_epi32(rounded, nan, top, _mm512_set1_epi32(0x40));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(result));
    }

    // vpdpbusd multiplies unsigned by signed bytes, so weights enter as code + 128.
    static constexpr int32_t int8_offset = 128;
    static constexpr int64_t int8_step = 64;
    static constexpr int peak_sums = 12;
    using WeightCodes = __m512i;
    using TokenCodes = __m512i;
    static WeightCodes load_weight_codes(const int8_t* p) { return _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_set1_epi8(-128)); }
    static TokenCodes load_token_codes(const int8_t* p) { return _mm512_loadu_si512(p); }
    static Int dot(Int acc, WeightCodes weight, TokenCodes token) { return _mm512_dpbusd_epi32(acc, weight, token); }

    static Bytes load_bytes(const void* p) { return _mm512_loadu_si512(p); }

    static __m512i gather_lanes(const uint8_t* p, int64_t stride) {
        const auto lane = [&](int64_t i) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + i * stride)); };
        __m512i bytes = _mm512_castsi128_si512(lane(0));
        bytes = _mm512_inserti32x4(bytes, lane(1), 1);
        bytes = _mm512_inserti32x4(bytes, lane(2), 2);
        return _mm512_inserti32x4(bytes, lane(3), 3);
    }
    static __m512i gather_lanes(const uint8_t* p, int64_t stride, int count) {
        if (count == lanes) return gather_lanes(p, stride);
        alignas(64) uint8_t bytes[64] = {};
        for (int i = 0; i < count; ++i) __builtin_memcpy(bytes + 16 * i, p + i * stride, 16);
        return _mm512_load_si512(bytes);
    }

    static Bytes low_nibbles(Bytes codes) { return _mm512_and_si512(codes, _mm512_set1_epi8(15)); }
    static Bytes high_nibbles(Bytes codes) { return low_nibbles(_mm512_srli_epi16(codes, 4)); }
    // With the highest bit of each turned over: (nibble & 15) ^ 8 in one instruction.
    static Bytes flipped_low_nibbles(Bytes codes) {
        return _mm512_ternarylogic_epi32(codes, _mm512_set1_epi8(15), _mm512_set1_epi8(8), 0x6a);
    }
    static Bytes flipped_high_nibbles(Bytes codes) { return flipped_low_nibbles(_mm512_srli_epi16(codes, 4)); }
    static Bytes add_offset(Bytes codes) { return _mm512_xor_si512(codes, _mm512_set1_epi8(-128)); }

    // Each lane filled with a number of its own: values[indices[lane]], or the fp16 number at p + lane * stride. The indices rise from 0.
    struct LaneIndex {
        __m512i elements;
        __mmask8 there;
    };
    static LaneIndex lane_index(const int32_t* indices) {
        const __m512i four = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(indices)));
        return {_mm512_permutexvar_epi32(four_times(), four), __mmask8((2u << indices[lanes - 1]) - 1)};
    }
    static Float spread(const float* values, const LaneIndex& index) {
        return _mm512_permutexvar_ps(index.elements, _mm512_castps128_ps512(_mm_maskz_loadu_ps(index.there, values)));
    }
    static __m512i four_times() { return _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0); }
    static uint64_t load_halves(const uint8_t* p, int64_t stride, int count) {
        if (count == lanes)
            return load_half(p) | uint64_t(load_half(p + stride)) << 16 | uint64_t(load_half(p + 2 * stride)) << 32 |
                   uint64_t(load_half(p + 3 * stride)) << 48;
        uint64_t halves = 0;
        for (int i = 0; i < count; ++i) halves |= uint64_t(load_half(p + i * stride)) << 16 * i;
        return halves;
    }
    static Float spread_halves(const uint8_t* p, int64_t stride, int count) {
        const __m128 numbers = _mm_cvtph_ps(_mm_cvtsi64_si128(int64_t(load_halves(p, stride, count))));
        return _mm512_permutexvar_ps(four_times(), _mm512_castps128_ps512(numbers));
    }

    static Int dot_nibbles(Int start, Bytes low, Bytes high, Bytes x_low, Bytes x_high) {
        return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(start, low, x_low), high, x_high);
    }
    static Int dot_bytes(Int start, Bytes low, Bytes high, Bytes x_low, Bytes x_high) {
        return dot_nibbles(start, low, high, x_low, x_high);
    }
    static Int dot_codes(Int start, Bytes codes, Bytes x) { return _mm512_dpbusd_epi32(start, codes, x); }

    // Byte i of each int32 less `zero`, or nibble j, as a number. The dot product with a 1 in place i finds a byte and subtracts at once.
    template <int i, int zero>
    static Float byte_numbers(Bytes codes) {
        return _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(_mm512_set1_epi32(-zero), codes, _mm512_set1_epi32(1 << 8 * i)));
    }
    template <int j>
    static Float nibble_numbers(Bytes codes) {
        const __m512 digits = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        return _mm512_permutexvar_ps(nibbles<j>(codes), digits);
    }

    // Lanes 0 and 2 of both, or 1 and 3.
    template <int odd>
    static Bytes every_second_lane(Bytes a, Bytes b) {
        return _mm512_shuffle_i64x2(a, b, odd ? 0xdd : 0x88);
    }
    // 32 bytes, in both halves.
    static Bytes load_run(const uint8_t* p, int) { return _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
    // Bits move down by `first` places in the first half and by `second` in the second; those that stay in their byte are right.
    template <int first, int second>
    static Bytes move_bits(Bytes v) {
        constexpr int a = (first + 32) % 32, b = (second + 32) % 32;
        if constexpr (a == b) return _mm512_ror_epi32(v, a);
        return _mm512_rorv_epi32(v, _mm512_set_epi32(b, b, b, b, b, b, b, b, a, a, a, a, a, a, a, a));
    }
    static Bytes flip(Bytes v, int mask) { return _mm512_xor_si512(v, _mm512_set1_epi8(char(mask))); }
    static Bytes keep(Bytes v, int mask) { return _mm512_and_si512(v, _mm512_set1_epi8(char(mask))); }
    // a | (b & mask), in one instruction.
    static Bytes merge(Bytes a, Bytes b, int mask) { return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi8(char(mask)), 0xf8); }
    // 16 more for code i of a lane where bit i of the 16 bits at p + lane * stride is set.
    static Bytes add_fifth_bits(Bytes codes, const uint8_t* p, int64_t stride, int count) {
        return _mm512_mask_add_epi8(codes, __mmask64(load_halves(p, stride, count)), codes, _mm512_set1_epi8(16));
    }

    // 16 bytes times the first of two fp16 numbers, or, from the ninth on, the second.
    template <bool is_signed>
    static void scale_bytes(uint64_t first, uint64_t last, uint32_t halves, float* out) {
        const __m128i bytes = _mm_set_epi64x(int64_t(last), int64_t(first));
        const __m512 factors = _mm512_permutexvar_ps(_mm512_set_epi32(1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0),
                                                     _mm512_castps128_ps512(_mm_cvtph_ps(_mm_cvtsi32_si128(int(halves)))));
        store(out, mul(_mm512_cvtepi32_ps(is_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes)), factors));
    }
    // The eight scales and eight minimums of a block of q4_k or q5_k in each of four rows, times the two fp16 numbers in front of them. Of
    // 12 bytes, words a b c, the lower six bits of a and b are the first four of each; the others have four bits in c, two in a or b.
    static void affine_numbers(const uint8_t* p, int64_t stride, float* const (&out)[4]) {
        const __m512i blocks = gather_lanes(p, stride);
        const auto in_lanes = [](int64_t last, int64_t first) { return _mm512_broadcast_i32x4(_mm_set_epi64x(last, first)); };
        const __m512i words = _mm512_shuffle_epi8(blocks, in_lanes(0x0f0e0d0c0b0a0908, 0x0f0e0d0c07060504));
        const __m512i upper = _mm512_maskz_shuffle_epi8(0xf0f0f0f0f0f0f0f0, blocks, in_lanes(0x0b0a090800000000, 0x0706050400000000));
        const __m512i low =
            _mm512_and_si512(_mm512_srlv_epi32(words, in_lanes(int64_t(4) << 32, 0)), in_lanes(0x0f0f0f0f3f3f3f3f, 0x0f0f0f0f3f3f3f3f));
        const __m512i bytes = merge(low, _mm512_srli_epi32(upper, 2), 0x30);
        const __m512i first_words = _mm512_permutexvar_epi32(_mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0), blocks);
        const __m512 halves = _mm512_castps256_ps512(_mm256_cvtph_ps(_mm512_castsi512_si128(first_words)));
        const auto row = [&]<int r>(const __m128i codes) {
            constexpr int a = 2 * r, b = 2 * r + 1;
            const __m512 factors = _mm512_permutexvar_ps(_mm512_set_epi32(b, b, b, b, b, b, b, b, a, a, a, a, a, a, a, a), halves);
            store(out[r], mul(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes)), factors));
        };
        row.template operator()<0>(_mm512_castsi512_si128(bytes));
        row.template operator()<1>(_mm512_extracti32x4_epi32(bytes, 1));
        row.template operator()<2>(_mm512_extracti32x4_epi32(bytes, 2));
        row.template operator()<3>(_mm512_extracti32x4_epi32(bytes, 3));
    }
    // Each lane filled with one of 16 numbers.
    template <auto lane>
    static Float spread(const float* numbers) {
        constexpr int a = lane.at[0], b = lane.at[1], c = lane.at[2], d = lane.at[3];
        return _mm512_permutexvar_ps(_mm512_set_epi32(d, d, d, d, c, c, c, c, b, b, b, b, a, a, a, a), load(numbers));
    }

    // The bits in which a and b differ, counted: how many a nibble has set is looked up.
    static Int differing_bits(Bytes a, Bytes b) {
        const __m512i counts = _mm512_broadcast_i32x4(_mm_set_epi64x(0x0403030203020201, 0x0302020102010100));
        const __m512i bits = _mm512_xor_si512(a, b);
        const __m512i low = _mm512_shuffle_epi8(counts, low_nibbles(bits)), high = _mm512_shuffle_epi8(counts, high_nibbles(bits));
        return _mm512_sad_epu8(_mm512_add_epi8(low, high), _mm512_setzero_si512());
    }

    // An integer added to the bits of 1.5 * 2^23 is that number plus the integer, as a float: a dot product that starts there needs no
    // conversion. Taking the 1.5 * 2^23 off again costs nothing either, inside the FMA with the scale: the scale has the 11 bits of an fp16
    // number (19, times an integer of a K type), so its product with 1.5 * 2^23 is exact.
    static constexpr int32_t dot_start = 0x4b400000;
    static Float scaled_dot(Int dot, Float scale) { return fma(_mm512_castsi512_ps(dot), scale, mul(scale, set(-0x1.8p23f))); }
};

}  // namespace
}  // namespace lowbit::cpu
