// The tensor core's product of a 16-row and an 8-column operand, as a warp issues it (mma.sync). Every kind has the same shape in bytes: a
// step is 32 bytes of K, the fragments are
//     a[4]   rows g and g + 8 (a[0], a[2] and a[1], a[3]), bytes 4t .. 4t+3 (a[0], a[1]) and 16 + 4t .. (a[2], a[3])
//     b[2]   column g, bytes 4t .. 4t+3 and 16 + 4t ..
//     c[4]   row g: columns 2t, 2t + 1; row g + 8: the same
// where g = lane / 4 and t = lane % 4. cuda::ptx has no mma, hence these.
#pragma once
#include <cstdint>
#include <type_traits>

namespace lowbit::cuda::ptx {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define LOWBIT_TURING 1
#else
#define LOWBIT_TURING 0
#endif

struct MmaBf16 {
    using Accumulator = float;
    static constexpr int values_per_step = 16;
    static constexpr bool integer = false;

    // Chips before sm_80 have no bf16; the registry keeps them away from here.
    __device__ static void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if !LOWBIT_TURING
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
    }
};

struct MmaFp16 {
    using Accumulator = float;
    static constexpr int values_per_step = 16;
    static constexpr bool integer = false;

    __device__ static void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if LOWBIT_TURING
        // Half as deep: the two halves of a step one after the other.
        for (int half = 0; half < 2; ++half)
            asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
#else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
    }
};

struct MmaInt8 {
    using Accumulator = int32_t;
    static constexpr int values_per_step = 32;
    static constexpr bool integer = true;

    __device__ static void multiply(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if LOWBIT_TURING
        for (int half = 0; half < 2; ++half)
            for (int rows = 0; rows < 2; ++rows)
                asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0,%1}, {%2}, {%3}, {%0,%1};"
                    : "+r"(c[2 * rows]), "+r"(c[2 * rows + 1])
                    : "r"(a[2 * half + rows]), "r"(b[half]));
#else
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
    }
};

// fp8_e4m3, from sm_89 on. Older chips run an empty kernel, which the registry keeps away from them.
struct MmaFp8 {
    using Accumulator = float;
    static constexpr int values_per_step = 32;
    static constexpr bool integer = false;

    __device__ static void multiply(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
        asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
    }
};

// The 16-row operand without sign; chips from sm_80 on.
struct MmaUint8Int8 {
    using Accumulator = int32_t;
    static constexpr int values_per_step = 32;
    static constexpr bool integer = true;

    __device__ static void multiply(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if !LOWBIT_TURING
        asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
    }
};

// The same half as deep: a[0], a[1] and b[0] alone.
struct MmaUint8Int8Short {
    using Accumulator = int32_t;
    static constexpr int values_per_step = 16;
    static constexpr bool integer = true;

    __device__ static void multiply(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if !LOWBIT_TURING
        asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(b[0]));
#endif
    }
};

// 256 pairs of bits per step: the accumulator counts the places where they differ.
struct MmaInt1 {
    using Accumulator = int32_t;
    static constexpr int values_per_step = 256;
    static constexpr bool integer = true;

    __device__ static void multiply(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if LOWBIT_TURING
        for (int half = 0; half < 2; ++half)
            for (int rows = 0; rows < 2; ++rows)
                asm("mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc {%0,%1}, {%2}, {%3}, {%0,%1};"
                    : "+r"(c[2 * rows]), "+r"(c[2 * rows + 1])
                    : "r"(a[2 * half + rows]), "r"(b[half]));
#else
        asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
    }
};

// The same, but it counts the places where both are 1. Turing cannot, and makes it of three counts of places that differ:
//     |a and b| = (|a xor 0| + |0 xor b| + |a xor not b| - 256) / 2
// where a step leaves `twice` times the count plus `surplus`.
struct MmaCommonBits {
#if LOWBIT_TURING
    static constexpr int twice = 2, surplus = 256;
#else
    static constexpr int twice = 1, surplus = 0;
#endif
    __device__ static void multiply(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if LOWBIT_TURING
        const uint32_t zeros[4] = {}, none[2] = {}, others[2] = {~b[0], ~b[1]};
        MmaInt1::multiply(c, a, none);
        MmaInt1::multiply(c, zeros, b);
        MmaInt1::multiply(c, a, others);
#else
        asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
    }
};

}  // namespace lowbit::cuda::ptx
