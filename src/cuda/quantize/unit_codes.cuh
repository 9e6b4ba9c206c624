// Eight codes with one scale, the fast way: what the kernels for rows and groups do between reading and writing.
#pragma once
#include "cuda/quantize/division.cuh"
#include "cuda/quantize/plain_unit.cuh"
#include "cuda/quantize/reduce.cuh"
#include "reference/scales.hpp"
#ifdef __CUDACC__
#include <cuda_fp8.h>
#endif

namespace lowbit::cuda {

// Adding this leaves an integer, rounded to even, in the low bits of a float's pattern, in two's complement.
constexpr float rounding_shift = 0x1.8p23f;

__device__ inline uint32_t rounded_bits(float value, float low, float high) {
    return core::float_to_bits(core::sum(fminf(fmaxf(value, low), high), rounding_shift));
}

// The low bytes of four words.
__device__ inline uint32_t low_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

// The low nibbles of eight bytes, in order.
__device__ inline uint32_t low_nibbles(uint32_t first, uint32_t second) {
    first &= 0x0f0f0f0fu, second &= 0x0f0f0f0fu;
    return __byte_perm(first | first >> 4, second | second >> 4, 0x6420);
}

// The quotient keeps the sign of x where it is zero.
__device__ inline float with_sign_of(float magnitude, float x) {
    return core::bits_to_float((core::float_to_bits(magnitude) & 0x7fffffffu) | (core::float_to_bits(x) & 0x80000000u));
}

template <Element element>
__device__ inline uint32_t fp8_pair(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    return __nv_cvt_float2_to_fp8x2(make_float2(low, high), __NV_SATFINITE, element == Element::fp8_e4m3 ? __NV_E4M3 : __NV_E5M2);
#else
    if constexpr (element == Element::fp8_e4m3)
        return core::float_to_e4m3(low) | uint32_t(core::float_to_e4m3(high)) << 8;
    else
        return core::float_to_e5m2(low) | uint32_t(core::float_to_e5m2(high)) << 8;
#endif
}

LOWBIT_HOST_DEVICE constexpr int unit_code_bits(Element element) {
    return element == Element::int8 || element == Element::fp8_e4m3 || element == Element::fp8_e5m2 ? 8 : 4;
}

// Codes of a unit: 8 bytes or 4.
template <Element element>
struct UnitCodes {
    static constexpr int words = unit_code_bits(element) / 4;
    uint32_t word[words];

    // Whether encode() may be called: values below 2^40, a scale that the divisor covers, and an element whose codes are quick to find.
    template <Element Input>
    __device__ static bool is_ordinary(uint32_t largest_bits, float scale) {
        return element != Element::nf4 && Divisor::covers_divisor(scale) && largest_bits < PlainUnit<Input>::extraordinary_bits;
    }

    template <Element Input>
    __device__ static UnitCodes encode(const PlainUnit<Input>& x, const Divisor& scale) {
        UnitCodes codes;
        uint32_t bytes[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float q[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) q[i] = scale.quotient(x.value(4 * half + i));
            if constexpr (element == Element::int8 || element == Element::int4) {
                constexpr float low = element == Element::int8 ? -128.0f : -8.0f, high = element == Element::int8 ? 127.0f : 7.0f;
                bytes[half] = low_bytes(rounded_bits(q[0], low, high), rounded_bits(q[1], low, high), rounded_bits(q[2], low, high),
                                        rounded_bits(q[3], low, high));
            } else {
#pragma unroll
                for (int i = 0; i < 4; ++i) q[i] = with_sign_of(q[i], x.value(4 * half + i));
                if constexpr (element == Element::fp4_e2m1)
                    bytes[half] = low_bytes(core::float_to_e2m1(q[0]), core::float_to_e2m1(q[1]), core::float_to_e2m1(q[2]),
                                            core::float_to_e2m1(q[3]));
                else
                    bytes[half] = fp8_pair<element>(q[0], q[1]) | fp8_pair<element>(q[2], q[3]) << 16;
            }
        }
        codes.set(bytes[0], bytes[1]);
        return codes;
    }

    // For everything else, value by value as the reference does.
    template <Element Input>
    __device__ static UnitCodes encode_slowly(PlainUnit<Input> x, float scale) {
        const bool usable = reference::is_usable_scale(scale);
        uint32_t bytes[2] = {0, 0};
#pragma unroll 1
        for (int i = 0; i < unit_values; ++i, x.drop_first()) {
            // Codes come in from the top, the first ends at the bottom.
            bytes[0] = bytes[0] >> 8 | bytes[1] << 24;
            bytes[1] = bytes[1] >> 8 | reference::encode_value(element, x.value(0), scale, usable, 0) << 24;
        }
        UnitCodes codes;
        codes.set(bytes[0], bytes[1]);
        return codes;
    }

    __device__ void set(uint32_t first, uint32_t second) {
        if constexpr (words == 2)
            word[0] = first, word[1] = second;
        else
            word[0] = low_nibbles(first, second);
    }
    // As unit `index` of a run; `to` is aligned to a unit.
    __device__ void store(uint8_t* to, int64_t index) const { store_words<words>(to + index * words * 4, word); }
};

__device__ __noinline__ inline reference::Scale make_scale_slowly(Element element, Element type, float largest, float tensor_scale) {
    core::Format format;
    format.element = element;
    format.scale = type;
    Range range;
    range.highest = largest;
    return reference::make_scale(format, range, 0.0f, tensor_scale);
}

// amax / largest code, then rounded to the type it is stored in: reference::make_scale for symmetric formats, with the operations that a
// GPU is fast at where they give the same bits.
__device__ inline reference::Scale symmetric_scale(const core::Format& format, float largest, const Divisor& largest_code,
                                                   float tensor_scale) {
    const bool simple = format.scale == Element::fp32 || format.scale == Element::fp16;
    if (!simple || !(largest >= 0x1p-60f && largest < largest_dividend))
        return make_scale_slowly(format.element, format.scale, largest, tensor_scale);
    const float fitted = largest_code.quotient(largest);
    if (format.scale == Element::fp32) return {core::float_to_bits(fitted), fitted, 0};
    const uint32_t bits = float_to_half(fminf(fitted, 65504.0f));
    return {bits, half_to_float(bits), 0};
}

}  // namespace lowbit::cuda
