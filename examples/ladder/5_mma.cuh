// Rung 5: the tensor core, as a warp uses it (mma.sync).
//
// Against rung 4: the 32 lanes of a warp put their registers together and one instruction multiplies 16 rows of A with 8 rows of B over 32
// bytes of k: 4096 multiply-adds, where DP4A had 128. The registers must hold the operands in the order of the instruction (drawn in
// src/cuda/ptx/mma.cuh). ldmatrix makes it: lanes name the addresses of rows of 16 bytes, and every lane receives the four bytes that the
// product wants it to have. A warp computes 64 x 64 numbers, a block of 8 warps 128 x 256, since the faster the arithmetic, the more often
// each byte that is read must be used.
//
//         256 columns                       one step of k (32 bytes) of a warp:
//      +----+----+----+----+                4 ldmatrix bring 4 x 16 rows of A
//      | w0 | w1 | w2 | w3 |  128 rows      4 ldmatrix bring 4 x 16 rows of B
//      +----+----+----+----+                4 x 8 products
//      | w4 | w5 | w6 | w7 |
//      +----+----+----+----+
//
// What holds it back: latency. All warps of the block copy, wait, multiply and wait together, and there is no room on the multiprocessor
// for a second block that would work in the meantime. While a tile is on its way the tensor core stands still.
#pragma once
#include "3_vectors.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace ladder {

namespace ptx = lowbit::cuda::ptx;

// Rungs 5 and 6.
struct MmaTile {
    static constexpr int m = 128, n = 256, threads = 256;
    TileRow a[m], b[n];
};

// A warp's 64 x 64 numbers: sums[i][j] is what mma.cuh calls c[4], of rows 16i .. and columns 8j ..
using WarpSums = int32_t[4][8][4];

struct WarpPlace {
    int row, column;  // in the block's tile
    int lane;
};
__device__ inline WarpPlace find_place() {
    const int thread = int(threadIdx.x), warp = thread / 32;
    return {warp / 4 * 64, warp % 4 * 64, thread % 32};
}

__device__ inline void multiply_tile(WarpSums& sums, const MmaTile& tile, const WarpPlace& my) {
#pragma unroll
    for (int byte = 0; byte < tile_k; byte += 32) {
        uint32_t a[4][4];
        // Lanes 0 .. 15 name rows 0 .. 15 at the first 16 bytes of the step, lanes 16 .. 31 the same rows at the second.
#pragma unroll
        for (int i = 0; i < 4; ++i)
            ptx::load_matrices(a[i], ptx::shared_address(&tile.a[my.row + i * 16 + my.lane % 16][byte + my.lane / 16 * 16]));
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) {
            // Both halves of rows 0 .. 7, then both halves of rows 8 .. 15: two operands of eight rows.
            uint32_t b[4];
            const int row = my.lane % 8 + my.lane / 16 * 8;
            ptx::load_matrices(b, ptx::shared_address(&tile.b[my.column + pair * 16 + row][byte + my.lane / 8 % 2 * 16]));
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                ptx::MmaInt8::multiply(sums[i][2 * pair], a[i], {b[0], b[1]});
                ptx::MmaInt8::multiply(sums[i][2 * pair + 1], a[i], {b[2], b[3]});
            }
        }
    }
}

// Two numbers side by side at a time; four lanes fill a sector of 32 bytes.
__device__ inline void store_sums(const Product& p, const WarpSums& sums, const WarpPlace& my, int first_row, int first_column) {
    const int row = first_row + my.row + my.lane / 4, column = first_column + my.column + my.lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 8; ++i) {  // rows g and g + 8 of four times 16
        int32_t* to = p.c + size_t(row + i * 8) * p.n + column;
#pragma unroll
        for (int j = 0; j < 8; ++j)
            *reinterpret_cast<int2*>(to + j * 8) = make_int2(sums[i / 2][j][i % 2 * 2], sums[i / 2][j][i % 2 * 2 + 1]);
    }
}

__global__ void __launch_bounds__(MmaTile::threads, 1) mma_kernel(Product p) {
    alignas(16) __shared__ MmaTile tile;
    const int first_row = int(blockIdx.y) * MmaTile::m, first_column = int(blockIdx.x) * MmaTile::n;
    const WarpPlace my = find_place();
    WarpSums sums = {};
    for (int k = 0; k < p.k; k += tile_k) {
        copy_tile<MmaTile::m, MmaTile::threads>(tile.a, p.a + size_t(first_row) * p.k + k, p.k);
        copy_tile<MmaTile::n, MmaTile::threads>(tile.b, p.b + size_t(first_column) * p.k + k, p.k);
        __syncthreads();
        multiply_tile(sums, tile, my);
        __syncthreads();
    }
    store_sums(p, sums, my, first_row, first_column);
}

inline constexpr Rung mma{"mma.sync", MmaTile::m, MmaTile::n, tile_k,
                          [](const Product& p) { mma_kernel<<<dim3(p.n / MmaTile::n, p.m / MmaTile::m), MmaTile::threads>>>(p); }};

}  // namespace ladder
