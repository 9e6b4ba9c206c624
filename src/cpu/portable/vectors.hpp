// Plain C++ for the templates of cpu/simd: vectors of four, by the vector extensions of GCC and Clang, which every processor has or can do
// without.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "core/numeric.hpp"
#include "lowbit/types.hpp"

namespace lowbit::cpu {
namespace {

struct Portable {
    typedef float Float __attribute__((vector_size(16)));
    typedef int32_t Int __attribute__((vector_size(16)));
    typedef int8_t Bytes __attribute__((vector_size(16)));
    typedef int8_t Signed4 __attribute__((vector_size(4)));
    typedef uint8_t Unsigned4 __attribute__((vector_size(4)));
    typedef int16_t Words8 __attribute__((vector_size(16)));
    typedef uint16_t UnsignedWords8 __attribute__((vector_size(16)));
    typedef uint32_t Unsigned __attribute__((vector_size(16)));
    static constexpr int width = 4;
    static constexpr int lanes = 1;

    template <int Tokens>
    static constexpr int tile_rows = Tokens == 4 ? 2 : 4;
    template <int Tokens>
    static constexpr int scaled_tile_rows = Tokens == 4 ? 1 : 2;
    template <int Tokens>
    static constexpr int panel_tile_rows = 2;
    template <int Tokens>
    static constexpr int block_tile_rows = 1;

    template <class Vector, class Value>
    static Vector load_as(const Value* p) {
        Vector v;
        std::memcpy(&v, p, sizeof v);
        return v;
    }

    static Float set(float value) { return Float{value, value, value, value}; }
    static Int set_integer(int32_t value) { return Int{} + value; }
    static Float load(const float* p) { return load_as<Float>(p); }
    static Int load(const int32_t* p) { return load_as<Int>(p); }
    static Int load_int(const void* p) { return load_as<Int>(static_cast<const char*>(p)); }
    static void store(float* p, Float v) { std::memcpy(p, &v, sizeof v); }
    static void store(int32_t* p, Int v) { std::memcpy(p, &v, sizeof v); }
    static Float add(Float a, Float b) { return a + b; }
    static Float sub(Float a, Float b) { return a - b; }
    static Float mul(Float a, Float b) { return a * b; }
    static Float div(Float a, Float b) { return a / b; }
    static Float max(Float a, Float b) { return a > b ? a : b; }
    static Float min(Float a, Float b) { return a < b ? a : b; }
    static Float fma(Float a, Float b, Float c) { return a * b + c; }
    static Float truncate(Float v) { return __builtin_convertvector(__builtin_convertvector(v, Int), Float); }
    // Numbers next to 1.5 * 2^23 lie one apart, so the addition itself rounds to an integer, ties to even.
    static Float round_to_even(Float v) {
        const Float shift = set(0x1.8p23f);
        return (v + shift) - shift;
    }
    // For magnitudes below 2^22. Adding the number just below 1/2 cannot carry a smaller fraction than 1/2 to the next integer.
    static Float round_half_away(Float v) { return truncate(v + (v < set(0.0f) ? set(-0x1.fffffep-2f) : set(0x1.fffffep-2f))); }
    static Float absolute(Float v) { return v < set(0.0f) ? -v : v; }
    static Float number_or_zero(Float v) { return v == v ? v : set(0.0f); }
    static Float finite_or_zero(Float v) { return absolute(v) < set(HUGE_VALF) ? v : set(0.0f); }
    static float largest_element(Float v) {
        float largest = v[0];
        for (int i = 1; i < width; ++i) largest = v[i] > largest ? v[i] : largest;
        return largest;
    }
    static uint32_t equal_elements(Float a, Float b) {
        uint32_t bits = 0;
        for (int i = 0; i < width; ++i) bits |= uint32_t(a[i] == b[i]) << i;
        return bits;
    }
    static Float convert(Int v) { return __builtin_convertvector(v, Float); }
    static float sum(Float v) { return (v[0] + v[2]) + (v[1] + v[3]); }
    static int32_t sum(Int v) { return int32_t(uint32_t(v[0]) + uint32_t(v[1]) + uint32_t(v[2]) + uint32_t(v[3])); }
    // int32 sums are modulo 2^32 everywhere.
    static Int add(Int a, Int b) { return Int(Unsigned(a) + Unsigned(b)); }
    // Hides from the compiler what a vector holds.
    template <class Vector>
    static Vector kept(Vector v) {
#if defined(__x86_64__)
        asm volatile("" : "+x"(v));
#else
        asm volatile("" : "+m"(v));
#endif
        return v;
    }
    static void store_int8(int8_t* p, Float integers) {
        for (int i = 0; i < width; ++i) p[i] = int8_t(integers[i]);
    }

    struct Table {
        float values[16];
    };
    static Table table(const float* values, float zero, float scale) {
        Table t;
        for (int i = 0; i < 16; ++i) t.values[i] = (values[i] - zero) * scale;
        return t;
    }
    static Float look_up(const Table& t, Int index) {
        return Float{t.values[index[0] & 15], t.values[index[1] & 15], t.values[index[2] & 15], t.values[index[3] & 15]};
    }
    template <int j>
    static Int nibbles(Bytes codes) {
        return Int(codes) >> 4 * j;
    }

    // A chunk of 32 values into the order of `nibbles`.
    static void pack_nibble_order(const float* from, float* to) {
        for (int j = 0; j < 8; ++j)
            for (int m = 0; m < 4; ++m) to[4 * j + m] = from[16 * (j % 2) + 4 * m + j / 2];
    }

    // int8, uint8, fp8.
    template <Element E>
    static Float load_codes(const uint8_t* p) {
        if constexpr (E == Element::int8) return __builtin_convertvector(__builtin_convertvector(load_as<Signed4>(p), Int), Float);
        if constexpr (E == Element::uint8) return __builtin_convertvector(__builtin_convertvector(load_as<Unsigned4>(p), Int), Float);
        const auto number = [](uint8_t code) { return E == Element::fp8_e4m3 ? core::e4m3_to_float(code) : core::e5m2_to_float(code); };
        return Float{number(p[0]), number(p[1]), number(p[2]), number(p[3])};
    }
    template <Element>
    static constexpr float code_unit = 1.0f;
    static constexpr bool hides_nan = false;
    static Float widen_fp16(const uint16_t* p) { return load_fp16(p); }

    static uint16_t load_half(const uint8_t* p) {
        uint16_t bits;
        std::memcpy(&bits, p, sizeof bits);
        return bits;
    }
    static float half(const uint8_t* p) { return core::fp16_to_float(load_half(p)); }
    static void store_half(float value, uint8_t* p) {
        const uint16_t bits = core::float_to_fp16(value);
        std::memcpy(p, &bits, sizeof bits);
    }
    static Float load_fp16(const uint16_t* p) {
        return Float{core::fp16_to_float(p[0]), core::fp16_to_float(p[1]), core::fp16_to_float(p[2]), core::fp16_to_float(p[3])};
    }
    static Float load_bf16(const uint16_t* p) {
        return Float{core::bf16_to_float(p[0]), core::bf16_to_float(p[1]), core::bf16_to_float(p[2]), core::bf16_to_float(p[3])};
    }
    static void store_fp16(uint16_t* p, Float v) {
        for (int i = 0; i < width; ++i) p[i] = core::float_to_fp16(v[i]);
    }
    static void store_bf16(uint16_t* p, Float v) {
        for (int i = 0; i < width; ++i) p[i] = core::float_to_bf16(v[i]);
    }

    static constexpr int32_t int8_offset = 0;
    static constexpr int64_t int8_step = 16;
    static constexpr int peak_sums = 4;
    using WeightCodes = Bytes;
    using TokenCodes = Bytes;
    static Bytes load_weight_codes(const int8_t* p) { return load_as<Bytes>(p); }
    static Bytes load_token_codes(const int8_t* p) { return load_as<Bytes>(p); }
    // Numbers are widened where they stand, by shifts: __builtin_convertvector would first gather them, at several times the cost. A
    // product of two int8 fits 16 bits. Which of the four sums it goes into does not matter, as a vector holds one block only.
    static Int dot(Int acc, Bytes a, Bytes b) {
        const Words8 low = low_bytes(a) * low_bytes(b), high = high_bytes(a) * high_bytes(b);
        acc = add(acc, add(low_words(low), high_words(low)));
        return add(acc, add(low_words(high), high_words(high)));
    }
    static Words8 low_bytes(Bytes v) { return Words8(UnsignedWords8(v) << 8) >> 8; }
    static Words8 high_bytes(Bytes v) { return Words8(v) >> 8; }
    static Int low_words(Words8 v) { return Int(Unsigned(v) << 16) >> 16; }
    static Int high_words(Words8 v) { return Int(v) >> 16; }

    static Bytes load_bytes(const void* p) { return load_as<Bytes>(static_cast<const char*>(p)); }
    static Bytes gather_lanes(const uint8_t* p, int64_t, int) { return load_as<Bytes>(p); }
    static Bytes low_nibbles(Bytes codes) { return codes & 15; }
    static Bytes high_nibbles(Bytes codes) { return (codes >> 4) & 15; }
    // With the highest bit of each turned over.
    static Bytes flipped_low_nibbles(Bytes codes) { return low_nibbles(flip(codes, 0x08)); }
    static Bytes flipped_high_nibbles(Bytes codes) { return high_nibbles(flip(codes, 0x80)); }
    static Bytes add_offset(Bytes codes) { return codes; }
    struct LaneIndex {};
    static LaneIndex lane_index(const int32_t*) { return {}; }
    static Float spread(const float* values, const LaneIndex&) { return set(values[0]); }
    static Float spread_halves(const uint8_t* p, int64_t, int) { return set(half(p)); }

    static Int dot_nibbles(Int start, Bytes low, Bytes high, Bytes x_low, Bytes x_high) {
        return dot(dot(start, low, x_low), high, x_high);
    }
    static Int dot_bytes(Int start, Bytes low, Bytes high, Bytes x_low, Bytes x_high) {
        return dot_nibbles(start, low, high, x_low, x_high);
    }
    static Int dot_codes(Int start, Bytes codes, Bytes x) { return dot(start, codes, x); }

    // Byte i of each int32 less `zero`, or nibble j, as a number.
    template <int i, int zero>
    static Float byte_numbers(Bytes codes) {
        return __builtin_convertvector(Int(Unsigned(codes) >> 8 * i & 255) - zero, Float);
    }
    template <int j>
    static Float nibble_numbers(Bytes codes) {
        return __builtin_convertvector(Int(Unsigned(codes) >> 4 * j & 15), Float);
    }

    // There is one lane: all of a, or of b.
    template <int odd>
    static Bytes every_second_lane(Bytes a, Bytes b) {
        return odd ? b : a;
    }
    // The 16 bytes of a run of 32 that belong to a chunk.
    static Bytes load_run(const uint8_t* p, int chunk) { return load_bytes(p + chunk % 2 * 16); }
    // Bits move down by `places`; those that stay in their byte are right.
    template <int places, int>
    static Bytes move_bits(Bytes v) {
        if constexpr (places < 0) return Bytes(Unsigned(v) << -places);
        return Bytes(Unsigned(v) >> (places < 0 ? 0 : places));
    }
    static Bytes flip(Bytes v, int mask) { return v ^ int8_t(mask); }
    static Bytes keep(Bytes v, int mask) { return v & int8_t(mask); }
    static Bytes merge(Bytes a, Bytes b, int mask) { return a | keep(b, mask); }
    // 16 more for code i where bit i of the 16 bits at p is set.
    static Bytes add_fifth_bits(Bytes codes, const uint8_t* p, int64_t, int) {
        const int bits = load_half(p);
        for (int i = 0; i < 16; ++i) codes[i] = int8_t(codes[i] | (bits >> i & 1) << 4);
        return codes;
    }

    // 16 bytes times the first of two fp16 numbers, or, from the ninth on, the second.
    template <bool is_signed>
    static void scale_bytes(uint64_t first, uint64_t last, uint32_t halves, float* out) {
        for (int i = 0; i < 16; ++i) {
            const auto byte = uint8_t((i < 8 ? first : last) >> i % 8 * 8);
            out[i] = core::fp16_to_float(uint16_t(i < 8 ? halves : halves >> 16)) * (is_signed ? float(int8_t(byte)) : float(byte));
        }
    }
    template <auto lane>
    static Float spread(const float* numbers) {
        return set(numbers[lane.at[0]]);
    }

    // The bits in which a and b differ, counted: in pairs, nibbles, bytes, and then in all four of them.
    static Int differing_bits(Bytes a, Bytes b) {
        Unsigned v = Unsigned(a ^ b);
        v = v - (v >> 1 & 0x55555555);
        v = (v & 0x33333333) + (v >> 2 & 0x33333333);
        v = (v + (v >> 4)) & 0x0f0f0f0f;
        v = v + (v >> 8);
        return Int((v + (v >> 16)) & 0x3f);
    }

    static constexpr int32_t dot_start = 0;
    static Float scaled_dot(Int dot, Float scale) { return __builtin_convertvector(dot, Float) * scale; }
};

}  // namespace
}  // namespace lowbit::cpu
