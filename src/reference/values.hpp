// One value: what a code stands for, and which code a value becomes. The reference and the CUDA kernels share these.
#pragma once
#include <cfloat>
#include <cstdint>

#include "core/numeric.hpp"
#include "lowbit/types.hpp"

namespace lowbit::reference {

// What sixteen codes stand for.
struct Levels {
    float values[16];
};

// The quantiles of a normal distribution, scaled to [-1, 1], that define NF4.
inline constexpr Levels nf4_levels = {{-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f,
                                       -0.18477343022823334f, -0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f,
                                       0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f,
                                       0.7229568362236023f, 1.0f}};

LOWBIT_HOST_DEVICE inline float nf4_value(unsigned code) {
    static constexpr Levels levels = nf4_levels;  // a copy of its own: device code cannot read the host's
    return levels.values[code];
}
constexpr unsigned nf4_zero = 7;

// The nearest of the sixteen values; exactly between two, the lower.
LOWBIT_HOST_DEVICE inline unsigned float_to_nf4(float value) {
    if (core::is_nan(value)) return nf4_zero;
    unsigned code = 0;
    LOWBIT_UNROLL
    for (unsigned lower = 0; lower < 15; ++lower) code += value > (nf4_value(lower) + nf4_value(lower + 1)) / 2;
    return code;
}

// round(x / scale) to even, kept in [low, high]; NaN gives 0. Adding 1.5 * 2^23 leaves no bits below 1, so the addition rounds.
LOWBIT_HOST_DEVICE inline int round_and_clamp(float quotient, int low, int high) {
    if (core::is_nan(quotient)) return 0;
    constexpr float shift = 0x1.8p23f;
    const float lowest = float(low), highest = float(high);
    const float kept = quotient < lowest ? lowest : highest < quotient ? highest : quotient;
    return int(core::sum(core::sum(kept, shift), -shift));
}

// Before zero point and scale; `code` is the bit pattern of an element of 8 bits or less.
LOWBIT_HOST_DEVICE inline float code_value(Element element, unsigned code) {
    switch (element) {
    case Element::int8: return float(int8_t(code));
    case Element::int4: return float(int(code ^ 8) - 8);
    case Element::int1: return code ? -1.0f : 1.0f;
    case Element::fp8_e4m3: return core::e4m3_to_float(uint8_t(code));
    case Element::fp8_e5m2: return core::e5m2_to_float(uint8_t(code));
    case Element::fp4_e2m1: return core::e2m1_to_float(code);
    case Element::nf4: return nf4_value(code);
    default: return float(code);  // uint8, uint4
    }
}

// The code of x / scale (+ zero_point). `usable`: the scale is a positive normal number; if not, the code is that of zero.
LOWBIT_HOST_DEVICE inline bool is_usable_scale(float scale) { return scale >= FLT_MIN && scale <= FLT_MAX; }

LOWBIT_HOST_DEVICE inline unsigned encode_value(Element element, float x, float scale, bool usable, int zero_point) {
    if (element == Element::int1) return x < 0;  // the sign alone
    const float quotient = core::is_nan(x) ? x : usable ? core::divide(x, scale) : 0.0f;
    switch (element) {
    case Element::int8: return unsigned(round_and_clamp(quotient, -128, 127)) & 0xff;
    case Element::int4: return unsigned(round_and_clamp(quotient, -8, 7)) & 0xf;
    case Element::uint8: return unsigned(round_and_clamp(quotient, -zero_point, 255 - zero_point) + zero_point);
    case Element::uint4: return unsigned(round_and_clamp(quotient, -zero_point, 15 - zero_point) + zero_point);
    case Element::fp8_e4m3: return core::float_to_e4m3(quotient);
    case Element::fp8_e5m2: return core::float_to_e5m2(quotient);
    case Element::fp4_e2m1: return core::float_to_e2m1(quotient);
    default: return float_to_nf4(quotient);
    }
}

// The largest magnitude a scale is fitted to: 127 for int8, 448 for e4m3, ...; for unsigned elements the largest code.
LOWBIT_HOST_DEVICE inline float largest_value(Element element) {
    switch (element) {
    case Element::int8: return 127;
    case Element::uint8: return 255;
    case Element::int4: return 7;
    case Element::uint4: return 15;
    case Element::fp8_e4m3: return 448;
    case Element::fp8_e5m2: return 57344;
    case Element::fp4_e2m1: return 6;
    default: return 1;
    }
}

}  // namespace lowbit::reference
