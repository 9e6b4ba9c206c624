// Eight neighbouring plain numbers in registers, in 16-byte accesses: what the fast kernels hold of x and y.
#pragma once
#include <cfloat>

#include "cuda/quantize/units.cuh"
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace lowbit::cuda {

// 16 bytes that are read once: they need no place in the caches.
__device__ inline void load_streaming(const void* from, uint32_t* words) {
    const uint4 loaded = __ldcs(static_cast<const uint4*>(from));
    words[0] = loaded.x, words[1] = loaded.y, words[2] = loaded.z, words[3] = loaded.w;
}

// Conversions in one instruction; the bits of a NaN are the GPU's own.
__device__ inline float half_to_float(uint32_t bits) {
#ifdef __CUDA_ARCH__
    return __half2float(__ushort_as_half(uint16_t(bits)));
#else
    return core::fp16_to_float(uint16_t(bits));
#endif
}

__device__ inline uint32_t float_to_half(float value) {
#ifdef __CUDA_ARCH__
    return __half_as_ushort(__float2half_rn(value));
#else
    return core::float_to_fp16(value);
#endif
}

template <Element element>
struct PlainUnit {
    static constexpr bool wide = element == Element::fp32;
    static constexpr int bytes = wide ? 32 : 16;
    uint32_t words[bytes / 4];

    // Unit `index` of a run of units; `from` is aligned to 16 bytes.
    __device__ static PlainUnit load(const void* from, int64_t index) {
        PlainUnit unit;
        const uint8_t* bytes_from = static_cast<const uint8_t*>(from) + index * bytes;
#pragma unroll
        for (int i = 0; i < bytes / 16; ++i) load_streaming(bytes_from + 16 * i, unit.words + 4 * i);
        return unit;
    }
    __device__ static PlainUnit zeros() {
        PlainUnit unit;
#pragma unroll
        for (int i = 0; i < bytes / 4; ++i) unit.words[i] = 0;
        return unit;
    }
    __device__ void store(void* to, int64_t index) const {
        uint8_t* bytes_to = static_cast<uint8_t*>(to) + index * bytes;
#pragma unroll
        for (int i = 0; i < bytes / 16; ++i) store_words<4>(bytes_to + 16 * i, words + 4 * i);
    }

    __device__ float value(int i) const {
        if constexpr (wide) return core::bits_to_float(words[i]);
        const uint32_t bits = words[i / 2];
        if constexpr (element == Element::bf16) return core::bits_to_float(i % 2 ? bits & 0xffff0000u : bits << 16);
        return half_to_float(i % 2 ? bits >> 16 : bits & 0xffffu);
    }

    // The numbers that eight values round to.
    __device__ static PlainUnit of(const float (&values)[unit_values]) {
        PlainUnit unit;
#pragma unroll
        for (int i = 0; i < bytes / 4; ++i) {
            if constexpr (wide) {
                unit.words[i] = core::float_to_bits(values[i]);
            } else if constexpr (element == Element::bf16) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
                const __nv_bfloat162 pair = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
                unit.words[i] = *reinterpret_cast<const uint32_t*>(&pair);
#else
                unit.words[i] = core::float_to_bf16(values[2 * i]) | uint32_t(core::float_to_bf16(values[2 * i + 1])) << 16;
#endif
            } else {
#ifdef __CUDA_ARCH__
                const __half2 pair = __floats2half2_rn(values[2 * i], values[2 * i + 1]);
                unit.words[i] = *reinterpret_cast<const uint32_t*>(&pair);
#else
                unit.words[i] = core::float_to_fp16(values[2 * i]) | uint32_t(core::float_to_fp16(values[2 * i + 1])) << 16;
#endif
            }
        }
        return unit;
    }

    // The largest magnitude of the eight as the bits of this element, NaN counting as the largest of all. Bit patterns of numbers without
    // sign have the order of the numbers.
    __device__ uint32_t largest_bits() const {
        if constexpr (wide) {
            uint32_t largest = 0;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const uint32_t magnitude = words[i] & 0x7fffffffu;
                largest = magnitude > largest ? magnitude : largest;
            }
            return largest;
        } else {
            uint32_t pair = words[0] & 0x7fff7fffu;
#pragma unroll
            for (int i = 1; i < 4; ++i) pair = __vmaxu2(pair, words[i] & 0x7fff7fffu);
            const uint32_t low = pair & 0xffffu, high = pair >> 16;
            return low > high ? low : high;
        }
    }
    static constexpr uint32_t infinity_bits = wide ? 0x7f800000u : element == Element::bf16 ? 0x7f80u : 0x7c00u;
    // Magnitudes from 2^40 on, infinity and NaN among them, are left to the exact and slow way; fp16 ends long before.
    static constexpr uint32_t extraordinary_bits = wide ? 0x53800000u : element == Element::bf16 ? 0x5380u : 0x7c00u;

    __device__ static float from_bits(uint32_t bits) {
        if constexpr (wide) return core::bits_to_float(bits);
        return element == Element::bf16 ? core::bits_to_float(bits << 16) : half_to_float(bits);
    }
    // Value 1 becomes value 0, and so on: a loop over rare values that is not unrolled has no other way to index registers.
    __device__ void drop_first() {
#pragma unroll
        for (int i = 0; i < bytes / 4 - 1; ++i) words[i] = wide ? words[i + 1] : words[i] >> 16 | words[i + 1] << 16;
        words[bytes / 4 - 1] = wide ? 0 : words[bytes / 4 - 1] >> 16;
    }

    // The largest magnitude of the finite values, or of those that are numbers; `bits` are largest_bits().
    __device__ float largest_finite(uint32_t bits) const { return bits < infinity_bits ? from_bits(bits) : largest_up_to(FLT_MAX); }
    __device__ float largest_number(uint32_t bits) const {
        return bits <= infinity_bits ? from_bits(bits) : largest_up_to(core::infinity());
    }

private:
    __device__ float largest_up_to(float limit) const {
        PlainUnit left = *this;
        float largest = 0.0f;
#pragma unroll 1
        for (int i = 0; i < unit_values; ++i, left.drop_first()) {
            const float magnitude = fabsf(left.value(0));
            if (magnitude <= limit && magnitude > largest) largest = magnitude;
        }
        return largest;
    }
};

// The same of several units; `bits` are the largest of theirs.
template <Element element, int Units>
__device__ inline float largest_finite(const PlainUnit<element> (&units)[Units], uint32_t bits) {
    if (bits < PlainUnit<element>::infinity_bits) return PlainUnit<element>::from_bits(bits);
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < Units; ++i) largest = fmaxf(largest, units[i].largest_finite(units[i].largest_bits()));
    return largest;
}
template <Element element, int Units>
__device__ inline float largest_number(const PlainUnit<element> (&units)[Units], uint32_t bits) {
    if (bits <= PlainUnit<element>::infinity_bits) return PlainUnit<element>::from_bits(bits);
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < Units; ++i) largest = fmaxf(largest, units[i].largest_number(units[i].largest_bits()));
    return largest;
}
template <Element element, int Units>
__device__ inline uint32_t largest_bits(const PlainUnit<element> (&units)[Units]) {
    uint32_t largest = units[0].largest_bits();
#pragma unroll
    for (int i = 1; i < Units; ++i) {
        const uint32_t other = units[i].largest_bits();
        largest = other > largest ? other : largest;
    }
    return largest;
}

}  // namespace lowbit::cuda
