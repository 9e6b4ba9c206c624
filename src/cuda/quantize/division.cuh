// Two divisions by a number that stays the same for many dividends.
#pragma once
#include <cmath>

#include "core/numeric.hpp"

namespace lowbit::cuda {

LOWBIT_HOST_DEVICE inline float fused(float a, float b, float c) {
#ifdef __CUDA_ARCH__
    return __fmaf_rn(a, b, c);
#else
    return std::fmaf(a, b, c);
#endif
}

// x / divisor, correctly rounded, in four operations. `near` is within one unit of the last place of the quotient, since the reciprocal has
// twice the precision; then its remainder is exact, and one correction with the rounded reciprocal gives the rounded quotient (Markstein's
// theorem). This holds where nothing overflows or loses bits to underflow: for divisors in [2^-80, 2^80] and |x| < 2^40. A quotient below
// 2^-17 may be off by its last bit (of interest to nobody here: it is zero in every format), and a zero may lose its sign.
struct Divisor {
    float divisor, reciprocal, rest;  // 1 / divisor = reciprocal + rest

    LOWBIT_HOST_DEVICE explicit Divisor(float value) : divisor(value) {
#ifdef __CUDA_ARCH__
        reciprocal = __frcp_rn(value);
#else
        reciprocal = 1.0f / value;
#endif
        rest = core::product(fused(-divisor, reciprocal, 1.0f), reciprocal);
    }

    LOWBIT_HOST_DEVICE float quotient(float x) const {
        const float near = fused(x, reciprocal, core::product(x, rest));
        const float remainder = fused(-near, divisor, x);
        return fused(remainder, reciprocal, near);
    }

    LOWBIT_HOST_DEVICE static bool covers_divisor(float value) { return value >= 0x1p-80f && value <= 0x1p80f; }
};
constexpr float largest_dividend = 0x1p40f;  // not included

// n / divisor for n < 2^31, by a multiplication with what the host computed from the divisor.
struct IndexDivisor {
    uint32_t multiplier = 0;
    int shift = 0;

    IndexDivisor() = default;
    explicit IndexDivisor(uint32_t divisor) {
        while (shift < 32 && (uint64_t(1) << shift) < divisor) ++shift;
        multiplier = uint32_t((uint64_t(1) << 32) * ((uint64_t(1) << shift) - divisor) / divisor + 1);
    }

    LOWBIT_HOST_DEVICE uint32_t quotient(uint32_t n) const {
#ifdef __CUDA_ARCH__
        return (__umulhi(n, multiplier) + n) >> shift;
#else
        return (uint32_t(uint64_t(n) * multiplier >> 32) + n) >> shift;
#endif
    }
};

}  // namespace lowbit::cuda
