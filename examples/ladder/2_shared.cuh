// Rung 2: tiles in shared memory.
//
// Against rung 1: a block of 32 x 32 threads first brings 32 rows of A and 32 rows of B, 32 bytes of each, into shared memory, and then
// every thread takes its row and its column from there. Neighbouring threads copy neighbouring bytes, so a warp reads 32 bytes of one line
// instead of 32 lines; and a byte that has come from global memory is used 32 times.
//
// Shared memory has 32 banks of 4 bytes, and a warp's read takes as many turns as the busiest bank has different words. With rows of 32
// bytes (8 words) rows 0, 4, 8, ... would begin in the same bank: eight turns. Four bytes of padding put them 9 words apart, and since 9 is
// odd the 32 rows begin in 32 different banks: one turn.
//
// What holds it back: each multiply-add still costs two loads of a byte. They are quick now, but the load units can begin only one
// instruction of a warp per cycle, and there are two of them for every multiply-add.
#pragma once
#include "product.cuh"

namespace ladder {

__global__ void __launch_bounds__(1024) shared_kernel(Product p) {
    constexpr int tile = 32, padding = 4;
    __shared__ int8_t tile_a[tile][tile + padding], tile_b[tile][tile + padding];
    const int x = int(threadIdx.x), y = int(threadIdx.y);
    const int first_row = int(blockIdx.y) * tile, first_column = int(blockIdx.x) * tile;
    // Thread (x, y) copies byte x of row y of either tile, and computes row y, column x of the result.
    const int8_t* from_a = p.a + size_t(first_row + y) * p.k + x;
    const int8_t* from_b = p.b + size_t(first_column + y) * p.k + x;
    int32_t sum = 0;
    for (int k = 0; k < p.k; k += tile) {
        tile_a[y][x] = from_a[k];
        tile_b[y][x] = from_b[k];
        __syncthreads();  // the tiles are complete
#pragma unroll
        for (int i = 0; i < tile; ++i) sum = multiply_add(sum, tile_a[y][i], tile_b[x][i]);
        __syncthreads();  // all have read them: the next ones may come
    }
    p.c[size_t(first_row + y) * p.n + first_column + x] = sum;
}

inline constexpr Rung shared{"shared-memory tiles", 32, 32, 32,
                             [](const Product& p) { shared_kernel<<<dim3(p.n / 32, p.m / 32), dim3(32, 32)>>>(p); }};

}  // namespace ladder
