// Integers of up to eight bits as bf16 numbers, without an instruction.
//
// The bf16 numbers whose exponent is 0 or 1 count evenly, in steps of 2^-133: the bits of an integer alone are integer * 2^-133, and so are
// those of a 4-bit float, further up, its value times a power of two. One multiply-add makes weights of them, rounded once:
//     scale * (integer - zero) = integer * 2^-133 * (scale * 2^133) - zero * scale
// where zero * scale is exact, because the zero is a power of two (or it is rounded, as the minimums of blocks are). scale * 2^133 would be
// beyond bf16 for scales of 1/32 and more; so weights stay divided by `product_unit`, which the epilogue puts back, and scales may be from
// 2^-94 up to 2^27. Numbers of fp16 leave no such room.
#pragma once
#include "cuda/formats/bytes.cuh"

namespace lowbit::cuda {

// Scales of 16 bits, as they lie in memory, as two bf16 numbers. No branch: those in fp16 are converted whether they are there or not.
__device__ inline uint32_t halves_to_bfloat(uint32_t pair, bool fp16) {
    const uint32_t converted = half_pair_to_bfloat(pair);
    return fp16 ? converted : pair;
}

template <class Mma>
struct SmallNumbers {
    static constexpr bool possible = false;
    static constexpr float product_unit = 1.0f;
};
template <>
struct SmallNumbers<ptx::MmaBf16> {
    using Pairs = PairsOf<ptx::MmaBf16>;
    static constexpr bool possible = true;
    static constexpr float product_unit = 0x1p32f;

    // Of scales: what integers that stand `up` bits (0 or 4) above the lowest in their half word are multiplied with.
    __device__ static uint32_t factor(uint32_t scales, int up) { return Pairs::multiply(scales, Pairs::both(up ? 0x1p97f : 0x1p101f)); }
    // What is added then, for integers less `zero`.
    __device__ static uint32_t offset(uint32_t scales, float zero) { return Pairs::multiply(scales, Pairs::both(-zero / product_unit)); }
    __device__ static uint32_t weight(uint32_t integers, uint32_t factor, uint32_t offset) {
#if LOWBIT_TURING
        return 0;  // no product of bf16 runs there
#else
        return Pairs::multiply_add(integers, factor, offset);
#endif
    }

    // Four signed bytes of a word, as numbers that are a 64th of them (`byte_unit`).
    static constexpr float byte_unit = 64.0f;
    __device__ static void bytes(uint32_t word, uint32_t (&pairs)[2]) {
        const uint32_t shifted = word ^ 0x80808080u;
#pragma unroll
        for (int i = 0; i < 2; ++i)  // times 2^127, less the 128 that they are too large by
            pairs[i] = weight(__byte_perm(shifted, 0, i ? 0x4342 : 0x4140), 0x7f007f00u, Pairs::both(-128.0f / byte_unit));
    }

    // Codes of 4 bits less 8, as a word of a fragment has them (nibbles.cuh).
    struct SignedNibbles {
        uint32_t factor, offset;  // two numbers, of rows g and g + 8; so are their scales
        __device__ void set(uint32_t scales) {
            constexpr uint32_t powers = 0x70007200u;  // 2^101, and 2^97 for the codes four bits further up
            factor = Pairs::multiply(scales, powers), offset = SmallNumbers::offset(scales, 8.0f);
        }
        __device__ void decode(uint32_t (&a)[4], uint32_t word) const {
#pragma unroll
            for (int j = 0; j < 4; ++j)
                a[j] = weight(word >> (j / 2 * 8) & (j % 2 ? 0x00f000f0u : 0x000f000fu), Pairs::twice(factor, j % 2),
                              Pairs::twice(offset, j % 2));
        }
    };

    // fp4 (e2m1), whose bits are numbers too (nibbles.cuh).
    struct Fp4 {
        uint32_t factor;  // as above
        // Of scales in two bytes: powers of two (e8m0), or e4m3 times `unit`.
        __device__ void set_e8m0(uint32_t scales) {
            // A bf16 number has the same exponent; beyond its end, infinity. 255 is NaN.
            const uint32_t codes = __byte_perm(scales, 0, 0x4140);
            const uint32_t exponents = __vminu2(codes + power * 0x10001u, 0x00ff00ffu), is_nan = (codes + 0x10001u) >> 2 & 0x00400040u;
            factor = exponents * 128 + is_nan;
        }
        __device__ void set_e4m3(uint32_t scales, float unit) {
            const float2 numbers = __half22float2(as_pair<__half2>(fp8_pair_to_half<Element::fp8_e4m3>(scales)));
            unit *= __uint_as_float((127 + power) << 23);
            factor = as_bits(__floats2bfloat162_rn(numbers.x * unit, numbers.y * unit));
        }
        __device__ void decode(uint32_t (&a)[4], uint32_t word) const {
            Fp4Number<ptx::MmaBf16>::decode(a, word);
#pragma unroll
            for (int j = 0; j < 4; ++j) a[j] = Pairs::multiply(a[j], Pairs::twice(factor, j % 2));
        }

    private:
        static constexpr uint32_t power = 126 - 32;
    };
};

}  // namespace lowbit::cuda
