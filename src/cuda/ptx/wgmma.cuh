// The tensor core's product as a warpgroup of sm_90a issues it: D[64 x n] += A[64 x 32 bytes] * B[n x 32 bytes]^T, on its own until a wait.
// Thread t of warp w holds, for every eight columns c,
//     d[c/2 + 0..1] = D[16w + t/4    ][c + 2(t%4) + 0..1]
//     d[c/2 + 2..3] = D[16w + t/4 + 8][the same columns]
// B is read from shared memory; A from there too, or from four registers of each thread, in the order of mma.cuh's a[4] for its 16 rows.
#pragma once
#include <cstdint>

#include "cuda/ptx/shared_memory.cuh"

namespace lowbit::cuda::ptx {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define LOWBIT_WGMMA 1
#else
#define LOWBIT_WGMMA 0
#endif

// What is multiplied.
struct WgmmaBf16 {
    using Accumulator = float;
    static constexpr int bytes = 2;
};
struct WgmmaFp16 {
    using Accumulator = float;
    static constexpr int bytes = 2;
};
struct WgmmaInt8 {
    using Accumulator = int32_t;
    static constexpr int bytes = 1;
};
struct WgmmaInt8Uint8 {  // B without sign
    using Accumulator = int32_t;
    static constexpr int bytes = 1;
};
struct WgmmaUint8Int8 : WgmmaInt8Uint8 {};  // A without sign
struct WgmmaE4m3 {
    using Accumulator = float;
    static constexpr int bytes = 1;
};
struct WgmmaE4m3E5m2 : WgmmaE4m3 {};  // A, B
struct WgmmaE5m2E4m3 : WgmmaE4m3 {};
struct WgmmaE5m2 : WgmmaE4m3 {};
struct WgmmaInt1 {  // bytes of bits: how many are set in both
    using Accumulator = int32_t;
    static constexpr int bytes = 1;
};

constexpr int wgmma_row_bytes = 128;  // of a tile in shared memory, swizzled
constexpr int wgmma_step_bytes = 32;  // what one instruction takes of a row
constexpr int wgmma_steps_per_row = wgmma_row_bytes / wgmma_step_bytes;

// A tile of rows of 128 bytes, swizzled as the copy engine does it (eight rows, 1024 bytes, are an atom). Moving by `bytes` inside of the
// tile adds bytes / 16 to what is returned.
__device__ inline uint64_t wgmma_tile(const void* tile) {
    return uint64_t((shared_address(tile) & 0x3ffffu) >> 4) | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}

// Rows of 16 bytes without a swizzle, one after the other; an instruction takes two such columns, `distance` apart. Both in units of 16
// bytes.
__device__ inline uint64_t wgmma_cells(uint32_t address, uint32_t distance) {
    return uint64_t(address & 0x3fffu) | uint64_t(distance & 0x3fffu) << 16 | uint64_t(128 >> 4) << 32;
}

__device__ inline void wgmma_fence() {
#if LOWBIT_WGMMA
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
__device__ inline void wgmma_commit() {
#if LOWBIT_WGMMA
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
template <int Pending>
__device__ inline void wgmma_wait() {
#if LOWBIT_WGMMA
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
#endif
}

// Keeps the compiler from moving uses of a register across the asynchronous instructions that own it.
__device__ inline void own(float& r) { asm volatile("" : "+f"(r)::"memory"); }
__device__ inline void own(int32_t& r) { asm volatile("" : "+r"(r)::"memory"); }
__device__ inline void own(uint32_t& r) { asm volatile("" : "+r"(r)::"memory"); }

template <class Kind, int Columns>
struct Wgmma;

// Lists of operands, by doubling: LOWBIT_TEXT_* are their places in the instruction, LOWBIT_LIST_* what stands there.
#define LOWBIT_TEXT_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define LOWBIT_TEXT_32 LOWBIT_TEXT_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define LOWBIT_TEXT_48 LOWBIT_TEXT_32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define LOWBIT_TEXT_64                                                                                                      \
    LOWBIT_TEXT_32                                                                                                          \
    ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60," \
    "%61,%62,%63"
#define LOWBIT_TEXT_128                                                                                                     \
    LOWBIT_TEXT_64                                                                                                          \
    ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92," \
    "%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,"     \
    "%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define LOWBIT_LIST_4(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define LOWBIT_LIST_16(c, i) LOWBIT_LIST_4(c, i), LOWBIT_LIST_4(c, i + 4), LOWBIT_LIST_4(c, i + 8), LOWBIT_LIST_4(c, i + 12)
#define LOWBIT_LIST_32(c, i) LOWBIT_LIST_16(c, i), LOWBIT_LIST_16(c, i + 16)
#define LOWBIT_LIST_48(c, i) LOWBIT_LIST_32(c, i), LOWBIT_LIST_16(c, i + 32)
#define LOWBIT_LIST_64(c, i) LOWBIT_LIST_32(c, i), LOWBIT_LIST_32(c, i + 32)
#define LOWBIT_LIST_128(c, i) LOWBIT_LIST_64(c, i), LOWBIT_LIST_64(c, i + 64)

// `count` accumulators; i0 .. i5 are the numbers of the operands behind them. Without `accumulate` what was in the accumulators is dropped.
#if LOWBIT_WGMMA
#define LOWBIT_WGMMA_ONE(kind, columns, count, types, shared_tail, register_tail, constraint, i0, i1, i2, i3, i4, i5)          \
    template <>                                                                                                                \
    struct Wgmma<kind, columns> {                                                                                              \
        __device__ static void shared(kind::Accumulator (&d)[count], uint64_t a, uint64_t b, bool accumulate) {                \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #i2 ", 0; wgmma.mma_async.sync.aligned.m64n" #columns types        \
                         " {" LOWBIT_TEXT_##count "}, %" #i0 ", %" #i1 ", p" shared_tail "; }"                                 \
                         : LOWBIT_LIST_##count(constraint, 0)                                                                  \
                         : "l"(a), "l"(b), "r"(int(accumulate)));                                                              \
        }                                                                                                                      \
        __device__ static void registers(kind::Accumulator (&d)[count], const uint32_t (&a)[4], uint64_t b, bool accumulate) { \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #i5 ", 0; wgmma.mma_async.sync.aligned.m64n" #columns types        \
                         " {" LOWBIT_TEXT_##count "}, {%" #i0 ",%" #i1 ",%" #i2 ",%" #i3 "}, %" #i4 ", p" register_tail "; }"  \
                         : LOWBIT_LIST_##count(constraint, 0)                                                                  \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(int(accumulate)));                          \
        }                                                                                                                      \
    };
#else
#define LOWBIT_WGMMA_ONE(kind, columns, count, ...)                                                              \
    template <>                                                                                                  \
    struct Wgmma<kind, columns> {                                                                                \
        __device__ static void shared(kind::Accumulator (&)[count], uint64_t, uint64_t, bool) {}                 \
        __device__ static void registers(kind::Accumulator (&)[count], const uint32_t (&)[4], uint64_t, bool) {} \
    };
#endif
#define LOWBIT_WGMMA_KINDS(columns, count, ...)                                                                      \
    LOWBIT_WGMMA_ONE(WgmmaBf16, columns, count, "k16.f32.bf16.bf16", ", 1, 1, 0, 0", ", 1, 1, 0", "+f", __VA_ARGS__) \
    LOWBIT_WGMMA_ONE(WgmmaFp16, columns, count, "k16.f32.f16.f16", ", 1, 1, 0, 0", ", 1, 1, 0", "+f", __VA_ARGS__)   \
    LOWBIT_WGMMA_ONE(WgmmaInt8, columns, count, "k32.s32.s8.s8", "", "", "+r", __VA_ARGS__)                          \
    LOWBIT_WGMMA_ONE(WgmmaInt8Uint8, columns, count, "k32.s32.s8.u8", "", "", "+r", __VA_ARGS__)                     \
    LOWBIT_WGMMA_ONE(WgmmaUint8Int8, columns, count, "k32.s32.u8.s8", "", "", "+r", __VA_ARGS__)                     \
    LOWBIT_WGMMA_ONE(WgmmaE4m3, columns, count, "k32.f32.e4m3.e4m3", ", 1, 1", ", 1, 1", "+f", __VA_ARGS__)          \
    LOWBIT_WGMMA_ONE(WgmmaE4m3E5m2, columns, count, "k32.f32.e4m3.e5m2", ", 1, 1", ", 1, 1", "+f", __VA_ARGS__)      \
    LOWBIT_WGMMA_ONE(WgmmaE5m2E4m3, columns, count, "k32.f32.e5m2.e4m3", ", 1, 1", ", 1, 1", "+f", __VA_ARGS__)      \
    LOWBIT_WGMMA_ONE(WgmmaE5m2, columns, count, "k32.f32.e5m2.e5m2", ", 1, 1", ", 1, 1", "+f", __VA_ARGS__)          \
    LOWBIT_WGMMA_ONE(WgmmaInt1, columns, count, "k256.s32.b1.b1.and.popc", "", "", "+r", __VA_ARGS__)

LOWBIT_WGMMA_KINDS(32, 16, 16, 17, 18, 19, 20, 21)
LOWBIT_WGMMA_KINDS(64, 32, 32, 33, 34, 35, 36, 37)
LOWBIT_WGMMA_KINDS(96, 48, 48, 49, 50, 51, 52, 53)
LOWBIT_WGMMA_KINDS(128, 64, 64, 65, 66, 67, 68, 69)
LOWBIT_WGMMA_KINDS(256, 128, 128, 129, 130, 131, 132, 133)

#undef LOWBIT_WGMMA_KINDS
#undef LOWBIT_WGMMA_ONE
#undef LOWBIT_TEXT_16
#undef LOWBIT_TEXT_32
#undef LOWBIT_TEXT_48
#undef LOWBIT_TEXT_64
#undef LOWBIT_TEXT_128
#undef LOWBIT_LIST_4
#undef LOWBIT_LIST_16
#undef LOWBIT_LIST_32
#undef LOWBIT_LIST_48
#undef LOWBIT_LIST_64
#undef LOWBIT_LIST_128

}  // namespace lowbit::cuda::ptx
