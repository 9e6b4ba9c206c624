// Narrow floating-point numbers, one value at a time, with the rounding of docs/formats.md: nearest, ties to even.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

#include "core/host_device.hpp"

namespace lowbit::core {

LOWBIT_HOST_DEVICE inline float bits_to_float(uint32_t bits) {
#ifdef __CUDA_ARCH__
    return __uint_as_float(bits);
#else
    return std::bit_cast<float>(bits);
#endif
}

LOWBIT_HOST_DEVICE inline uint32_t float_to_bits(float value) {
#ifdef __CUDA_ARCH__
    return __float_as_uint(value);
#else
    return std::bit_cast<uint32_t>(value);
#endif
}

LOWBIT_HOST_DEVICE inline bool is_nan(float value) { return (float_to_bits(value) & 0x7fffffffu) > 0x7f800000u; }
LOWBIT_HOST_DEVICE inline bool is_finite(float value) { return (float_to_bits(value) & 0x7f800000u) != 0x7f800000u; }
LOWBIT_HOST_DEVICE inline float quiet_nan() { return bits_to_float(0x7fc00000u); }
LOWBIT_HOST_DEVICE inline float infinity() { return bits_to_float(0x7f800000u); }

// One operation with one rounding, where a compiler for the GPU might otherwise fuse a product into the sum it goes to.
LOWBIT_HOST_DEVICE inline float product(float a, float b) {
#ifdef __CUDA_ARCH__
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}

LOWBIT_HOST_DEVICE inline float sum(float a, float b) {
#ifdef __CUDA_ARCH__
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}

// The same where the bits of a NaN may be stored. A GPU makes every NaN 0x7fffffff; here it comes out as on x86: a NaN that went in, the
// first of two, or 0xffc00000 where numbers made it.
LOWBIT_HOST_DEVICE inline float nan_as_on_x86(float result, float a, float b) {
    return !is_nan(result) ? result : is_nan(a) ? a : is_nan(b) ? b : bits_to_float(0xffc00000u);
}

LOWBIT_HOST_DEVICE inline float multiply(float a, float b) {
#ifdef __CUDA_ARCH__
    return nan_as_on_x86(__fmul_rn(a, b), a, b);
#else
    return a * b;
#endif
}

LOWBIT_HOST_DEVICE inline float add(float a, float b) {
#ifdef __CUDA_ARCH__
    return nan_as_on_x86(__fadd_rn(a, b), a, b);
#else
    return a + b;
#endif
}

LOWBIT_HOST_DEVICE inline float subtract(float a, float b) {
#ifdef __CUDA_ARCH__
    return nan_as_on_x86(__fsub_rn(a, b), a, b);
#else
    return a - b;
#endif
}

LOWBIT_HOST_DEVICE inline float divide(float a, float b) {
#ifdef __CUDA_ARCH__
    return nan_as_on_x86(__fdiv_rn(a, b), a, b);
#else
    return a / b;
#endif
}

// An 8-bit-or-less float: 1 sign bit, `exponent` bits with `bias`, `mantissa` bits; the codes above `largest` (without sign) are not
// numbers.
template <int Exponent, int Mantissa, int Bias, int Largest>
struct SmallFloat {
    static constexpr int sign_bit = 1 << (Exponent + Mantissa);

    // The code in the place of fp32's exponent and mantissa is the number but for the difference of the biases, subnormal numbers included.
    LOWBIT_HOST_DEVICE static float decode(unsigned code) {
        const uint32_t magnitude = uint32_t(code) & uint32_t(sign_bit - 1);
        const float value = bits_to_float(magnitude << (23 - Mantissa)) * bits_to_float(uint32_t(127 + 127 - Bias) << 23);
        return code & unsigned(sign_bit) ? -value : value;
    }

    // Rounds to nearest even; beyond the largest number, infinity included, saturates. NaN is the caller's business.
    LOWBIT_HOST_DEVICE static unsigned encode(float value) {
        const uint32_t bits = float_to_bits(value), magnitude = bits & 0x7fffffffu;
        // Below the normal numbers, codes count in steps of 2^(1 - Bias - Mantissa), and the fp32 adder rounds to one next to 2^23 of them.
        constexpr uint32_t steps = uint32_t(127 + 1 - Bias - Mantissa + 23) << 23, smallest_normal = uint32_t(127 + 1 - Bias) << 23;
        const uint32_t below_normal = float_to_bits(sum(bits_to_float(magnitude), bits_to_float(steps))) - steps;
        // A carry out of the mantissa moves into the exponent by itself.
        constexpr int dropped = 23 - Mantissa;
        const uint32_t rounded = magnitude + ((1u << (dropped - 1)) - 1) + (magnitude >> dropped & 1);
        const uint32_t normal = (rounded >> dropped) - (uint32_t(127 - Bias) << Mantissa);
        const uint32_t code = magnitude < smallest_normal ? below_normal : normal;
        return (bits >> 31 ? unsigned(sign_bit) : 0u) | (code > uint32_t(Largest) ? unsigned(Largest) : code);
    }
};

using E2M1 = SmallFloat<2, 1, 1, 7>;             // largest 6
using E4M3Numbers = SmallFloat<4, 3, 7, 0x7e>;   // largest 448
using E5M2Numbers = SmallFloat<5, 2, 15, 0x7b>;  // largest 57344

LOWBIT_HOST_DEVICE inline float e2m1_to_float(unsigned code) { return E2M1::decode(code); }
LOWBIT_HOST_DEVICE inline unsigned float_to_e2m1(float value) { return is_nan(value) ? 0 : E2M1::encode(value); }

LOWBIT_HOST_DEVICE inline float e4m3_to_float(uint8_t code) { return (code & 0x7f) == 0x7f ? quiet_nan() : E4M3Numbers::decode(code); }
LOWBIT_HOST_DEVICE inline uint8_t float_to_e4m3(float value) { return is_nan(value) ? 0x7f : uint8_t(E4M3Numbers::encode(value)); }

LOWBIT_HOST_DEVICE inline float e5m2_to_float(uint8_t code) {
    if ((code & 0x7c) != 0x7c) return E5M2Numbers::decode(code);
    if (code & 3) return quiet_nan();
    return code & 0x80 ? -infinity() : infinity();
}
LOWBIT_HOST_DEVICE inline uint8_t float_to_e5m2(float value) { return is_nan(value) ? 0x7f : uint8_t(E5M2Numbers::encode(value)); }

// e8m0: a power of two, 2^(code - 127); 255 is NaN.
LOWBIT_HOST_DEVICE inline float e8m0_to_float(uint8_t code) {
    if (code == 255) return quiet_nan();
    return code == 0 ? bits_to_float(0x00400000u) : bits_to_float(uint32_t(code) << 23);
}

LOWBIT_HOST_DEVICE inline float fp16_to_float(uint16_t half) {
    const uint32_t sign = uint32_t(half & 0x8000) << 16;
    const uint32_t exponent = half >> 10 & 0x1f, mantissa = half & 0x3ff;
    if (exponent == 0x1f) return bits_to_float(sign | 0x7f800000u | mantissa << 13);
    if (exponent != 0) return bits_to_float(sign | (exponent + 112) << 23 | mantissa << 13);
    const float magnitude = float(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
}

LOWBIT_HOST_DEVICE inline uint16_t float_to_fp16(float value) {
    const uint32_t bits = float_to_bits(value);
    const uint16_t sign = uint16_t(bits >> 16 & 0x8000);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return sign | 0x7e00;   // NaN stays NaN
    if (magnitude >= 0x477ff000u) return sign | 0x7c00;  // rounds to 65536 or more: infinity
    if (magnitude < 0x38800000u) {                       // subnormal: let the fp32 adder round at 2^-24
        const float shifted = sum(bits_to_float(magnitude), 0.5f);
        return sign | uint16_t(float_to_bits(shifted) - 0x3f000000u);
    }
    const uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return sign | uint16_t((rounded >> 13) - (112u << 10));
}

LOWBIT_HOST_DEVICE inline float bf16_to_float(uint16_t value) { return bits_to_float(uint32_t(value) << 16); }

LOWBIT_HOST_DEVICE inline uint16_t float_to_bf16(float value) {
    const uint32_t bits = float_to_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return uint16_t(bits >> 16 | 0x40);  // NaN stays NaN
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

}  // namespace lowbit::core
