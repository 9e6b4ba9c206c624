// What all rungs compute, and how they present themselves to the program.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace ladder {

// C[m, n] = A[m, k] * B[n, k]^T. Every matrix is stored row by row, so K runs along the bytes of A and of B: each number of C is the dot
// product of a row of A and a row of B, both of them k bytes in one piece and aligned to 16.
struct Product {
    const int8_t* a;
    const int8_t* b;
    int32_t* c;
    int m, n, k;
};

struct Rung {
    const char* name;
    int tile_m, tile_n, tile_k;  // sizes must be multiples of these: no kernel here looks after edges
    void (*launch)(const Product&);
    bool hopper_only = false;
};

// sum + a * b, as one multiply-add. In PTX because nvcc 13.0 sees through four of them in C++ and makes a DP4A out of them; that is a step
// of its own here, rung 4.
__device__ inline int32_t multiply_add(int32_t sum, int8_t a, int8_t b) {
    asm("mad.lo.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(int32_t(a)), "r"(int32_t(b)));
    return sum;
}

inline void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    std::exit(1);
}

}  // namespace ladder
