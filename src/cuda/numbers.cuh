// Conversions that a GPU has instructions for; the same results as core/numeric.hpp (but for the bits of a NaN).
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "lowbit/types.hpp"

namespace lowbit::cuda {

__device__ inline float half_to_float(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
__device__ inline float bfloat_to_float(uint16_t bits) { return __uint_as_float(uint32_t(bits) << 16); }
__device__ inline uint16_t float_to_half(float value) { return __half_as_ushort(__float2half_rn(value)); }
__device__ inline uint16_t float_to_bfloat(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }

// fp32, fp16 or bf16; in two steps where several are asked for before the first is used.
__device__ inline uint32_t load_bits(Element element, const void* data, int64_t index) {
    return element == Element::fp32 ? static_cast<const uint32_t*>(data)[index] : static_cast<const uint16_t*>(data)[index];
}
__device__ inline float number_from_bits(Element element, uint32_t bits) {
    if (element == Element::fp32) return __uint_as_float(bits);
    return element == Element::fp16 ? half_to_float(uint16_t(bits)) : bfloat_to_float(uint16_t(bits));
}

__device__ inline float load_number(Element element, const void* data, int64_t index) {
    return number_from_bits(element, load_bits(element, data, index));
}

}  // namespace lowbit::cuda
