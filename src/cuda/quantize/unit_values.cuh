// Eight codes as numbers, the fast way: what the dequantizers do between reading and writing.
#pragma once
#include "cuda/quantize/plain_unit.cuh"
#include "reference/values.hpp"
#ifdef __CUDACC__
#include <cuda_fp8.h>
#endif

namespace lowbit::cuda {

// A byte in the low bits of 2^23's pattern is 2^23 + byte: the subtraction leaves byte - zero, exactly.
__device__ inline float byte_less(uint32_t bytes, int i, float shifted_zero) {
    return core::sum(core::bits_to_float(__byte_perm(bytes, 0x4b000000u, 0x7650u | uint32_t(i))), -shifted_zero);
}
constexpr float byte_shift = 0x1p23f;

// Eight nibbles as bytes: those at even places, then those at odd places.
struct SpreadNibbles {
    uint32_t even, odd;
    __device__ explicit SpreadNibbles(uint32_t packed) : even(packed & 0x0f0f0f0fu), odd(packed >> 4 & 0x0f0f0f0fu) {}
    __device__ uint32_t bytes(int i) const { return i % 2 ? odd : even; }
};

template <Element element>
__device__ inline void fp8_pair_values(uint32_t pair, float& low, float& high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    const __half2_raw halves = __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t(pair), element == Element::fp8_e4m3 ? __NV_E4M3 : __NV_E5M2);
    const float2 values = __half22float2(__half2(halves));
    low = values.x, high = values.y;
#else
    low = reference::code_value(element, pair & 0xff);
    high = reference::code_value(element, pair >> 8 & 0xff);
#endif
}

LOWBIT_HOST_DEVICE constexpr bool has_byte_codes(Element element) {
    return element == Element::int8 || element == Element::uint8 || element == Element::fp8_e4m3 || element == Element::fp8_e5m2;
}

// Values less the zero point, before the scale. `words` are the unit's codes: two words of bytes, or one of nibbles.
template <Element element>
__device__ inline void decode_unit(const uint32_t* words, int zero_point, float (&values)[unit_values]) {
    if constexpr (element == Element::int8 || element == Element::uint8) {
        const uint32_t flip = element == Element::int8 ? 0x80808080u : 0;  // two's complement, 128 up
        const float zero = byte_shift + (element == Element::int8 ? 128.0f : float(zero_point));
#pragma unroll
        for (int i = 0; i < unit_values; ++i) values[i] = byte_less(words[i / 4] ^ flip, i % 4, zero);
    } else if constexpr (element == Element::int4 || element == Element::uint4) {
        const SpreadNibbles nibbles(words[0] ^ (element == Element::int4 ? 0x88888888u : 0));
        const float zero = byte_shift + (element == Element::int4 ? 8.0f : float(zero_point));
#pragma unroll
        for (int i = 0; i < unit_values; ++i) values[i] = byte_less(nibbles.bytes(i), i / 2, zero);
    } else if constexpr (has_byte_codes(element)) {
#pragma unroll
        for (int i = 0; i < unit_values; i += 2)
            fp8_pair_values<element>(words[i / 4] >> (8 * (i % 4)) & 0xffffu, values[i], values[i + 1]);
    } else {
#pragma unroll
        for (int i = 0; i < unit_values; ++i) values[i] = reference::code_value(element, words[0] >> (4 * i) & 15);
    }
}

}  // namespace lowbit::cuda
