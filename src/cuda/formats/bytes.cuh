// Four codes of 8 bits in a word become four numbers of 16 bits in two: exactly.
#pragma once
#include <cuda_fp8.h>

#include "cuda/formats/nibbles.cuh"

namespace lowbit::cuda {

// Two fp16 as two bf16 that hold them.
__device__ inline uint32_t half_pair_to_bfloat(uint32_t pair) {
    const float2 values = __half22float2(as_pair<__half2>(pair));
    return as_bits(__floats2bfloat162_rn(values.x, values.y));
}

template <Element E>
__device__ inline uint32_t fp8_pair_to_half(uint32_t two_bytes) {
    const __half2_raw raw = __nv_cvt_fp8x2_to_halfraw2(__nv_fp8x2_storage_t(two_bytes), E == Element::fp8_e4m3 ? __NV_E4M3 : __NV_E5M2);
    return uint32_t(raw.x) | uint32_t(raw.y) << 16;
}

// Signed bytes `first` and first + 2 of a word, first = 0 or 1.
template <class Mma>
__device__ inline uint32_t widen_alternate_bytes(uint32_t word, int first) {
    using Pair = typename Magic<Mma>::Pair;
    const uint32_t moved = first ? word >> 8 : word;
    if constexpr (std::is_same_v<Mma, ptx::MmaBf16>) {
        // The last seven bits in the mantissa of 128 read as 128 + them; the sign, which counts -128 more, makes the 128 that comes off
        // 256.
        const uint32_t number = ptx::mask_or(moved, 0x007f007fu, 0x43004300u), offset = ptx::mask_or(moved, 0x00800080u, 0x43004300u);
        return as_bits(__hsub2(as_pair<Pair>(number), as_pair<Pair>(offset)));
    } else {
        // code + 128 in the low byte of 1024 reads as 1152 + code.
        const uint32_t number = ptx::mask_xor(moved, 0x00ff00ffu, 0x64806480u);
        return as_bits(__hsub2(as_pair<Pair>(number), __float2half2_rn(1152.0f)));
    }
}

// (int8 as bf16: SmallNumbers::bytes.)
template <class Mma, Element E>
__device__ inline void widen_bytes(uint32_t word, uint32_t (&pairs)[2]) {
    constexpr bool bf16 = std::is_same_v<Mma, ptx::MmaBf16>;
    static_assert(!(E == Element::int8 && bf16));
    if constexpr (E == Element::int8) {
        // code + 128 in the low byte of 1024 reads as 1152 + code.
        const uint32_t shifted = word ^ 0x80808080u;
        const __half2 offset = __float2half2_rn(1152.0f);
        pairs[0] = as_bits(__hsub2(as_pair<__half2>(__byte_perm(shifted, 0x64646464u, 0x4140)), offset));
        pairs[1] = as_bits(__hsub2(as_pair<__half2>(__byte_perm(shifted, 0x64646464u, 0x4342)), offset));
    } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint32_t pair = fp8_pair_to_half<E>(i ? word >> 16 : word & 0xffffu);
            pairs[i] = bf16 ? half_pair_to_bfloat(pair) : pair;
        }
    }
}

}  // namespace lowbit::cuda
