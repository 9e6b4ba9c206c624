// Rung 1: one thread computes one number of C, straight from the definition.
//
// What holds it back: every multiply-add needs two loads, of one byte each, and the loads of B are scattered. The 32 lanes of a warp stand
// at the same k of 32 different rows, k bytes apart, so one instruction that brings 32 bytes touches 32 cache lines. The arithmetic units
// wait for the L1 cache nearly all the time.
#pragma once
#include "product.cuh"

namespace ladder {

__global__ void naive_kernel(Product p) {
    const int column = int(blockIdx.x * 32 + threadIdx.x), row = int(blockIdx.y * 8 + threadIdx.y);
    const int8_t* a = p.a + size_t(row) * p.k;     // the same for all lanes of a warp: one line, sent to all
    const int8_t* b = p.b + size_t(column) * p.k;  // another row in every lane
    int32_t sum = 0;
    for (int k = 0; k < p.k; ++k) sum = multiply_add(sum, a[k], b[k]);
    p.c[size_t(row) * p.n + column] = sum;
}

inline constexpr Rung naive{"naive", 8, 32, 1, [](const Product& p) { naive_kernel<<<dim3(p.n / 32, p.m / 8), dim3(32, 8)>>>(p); }};

}  // namespace ladder
