// Copies into shared memory and loads of fragments out of it.
#pragma once
#include <cstdint>

namespace lowbit::cuda::ptx {

__device__ inline uint32_t shared_address(const void* pointer) { return uint32_t(__cvta_generic_to_shared(pointer)); }

// Where the copy engine puts the byte of an address, if its boxes are 128 bytes wide and swizzled: the 16-byte pieces of neighbouring lines
// of 128 bytes change places, so that pieces above each other are in different banks.
__device__ inline uint32_t swizzled(uint32_t address) { return address ^ (address >> 3 & 0x70u); }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define LOWBIT_COPY_16(hint)               \
    asm volatile(                          \
        "{\n"                              \
        "  .reg .pred ignored;\n"          \
        "  setp.eq.u32 ignored, %2, 0;\n"  \
        "  cp.async.cg.shared.global" hint \
        " [%0], [%1], 16, ignored;\n"      \
        "}" ::"r"(shared),                 \
        "l"(global), "r"(uint32_t(valid))  \
        : "memory")
#else
#define LOWBIT_COPY_16(hint)
#endif

// 16 bytes from global to shared memory, both aligned to 16; zeros instead, and nothing read, where `valid` is false. From sm_80 on the
// copy runs on its own, until a wait; before, it is complete on return.
__device__ inline void copy_16(uint32_t shared, const void* global, bool valid) { LOWBIT_COPY_16(""); }
// The same of a matrix that comes from memory: the L2 cache brings whole lines, whose other parts are copied by themselves.
__device__ inline void stream_16(uint32_t shared, const void* global, bool valid) { LOWBIT_COPY_16(".L2::128B"); }
#undef LOWBIT_COPY_16

__device__ inline void copy_16(void* shared, const void* global, bool valid) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    copy_16(shared_address(shared), global, valid);
#else
    *static_cast<uint4*>(shared) = valid ? *static_cast<const uint4*>(global) : make_uint4(0, 0, 0, 0);
#endif
}

// The same of 8 bytes.
__device__ inline void copy_8(void* shared, const void* global, bool valid) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared_address(shared)), "l"(global), "r"(valid ? 8u : 0u)
                 : "memory");
#else
    *static_cast<uint2*>(shared) = valid ? *static_cast<const uint2*>(global) : make_uint2(0, 0);
#endif
}

// Keeps a number in its register: the compiler would rather compute an address anew at every use than hold it.
template <class Number>
__device__ inline void hold(Number& number) {
    if constexpr (sizeof(Number) == 8)
        asm volatile("" : "+l"(number));
    else
        asm volatile("" : "+r"(number));
}

__device__ inline void store_8(uint32_t shared, uint2 value) {
    asm volatile("st.shared.v2.b32 [%0], {%1,%2};" ::"r"(shared), "r"(value.x), "r"(value.y) : "memory");
}

// Closes a group of copies: all that this thread has asked for since the last one.
__device__ inline void commit_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Until all but the newest `Pending` groups of this thread are complete.
template <int Pending>
__device__ inline void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#endif
}

// Four 8 x 16-byte matrices; lane l gives the address of row l % 8 of matrix l / 8, and gets bytes 4(l%4) .. of row l / 4 of each.
__device__ inline void load_matrices(uint32_t (&r)[4], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

__device__ inline uint4 load_16(uint32_t address) {
    uint4 r;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "r"(address) : "memory");
    return r;
}

__device__ inline uint2 load_8(uint32_t address) {
    uint2 r;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(r.x), "=r"(r.y) : "r"(address) : "memory");
    return r;
}
__device__ inline uint32_t load_4(uint32_t address) {
    uint32_t r;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(r) : "r"(address) : "memory");
    return r;
}
__device__ inline uint32_t load_2(uint32_t address) {
    uint16_t r;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(r) : "r"(address) : "memory");
    return r;
}

// Two: the addresses of lanes 0 .. 15.
__device__ inline void load_matrices(uint32_t (&r)[2], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(row) : "memory");
}

// (x & mask) | bits in one instruction; the compiler, given two constants, makes it two.
__device__ inline uint32_t mask_or(uint32_t x, uint32_t mask, uint32_t bits) {
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(x), "r"(mask), "r"(bits));
    return result;
}

// (x & mask) ^ bits, likewise.
__device__ inline uint32_t mask_xor(uint32_t x, uint32_t mask, uint32_t bits) {
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(result) : "r"(x), "r"(mask), "r"(bits));
    return result;
}

}  // namespace lowbit::cuda::ptx
