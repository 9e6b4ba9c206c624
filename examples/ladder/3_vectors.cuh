// Rung 3: more bytes per instruction, more arithmetic per byte.
//
// Against rung 2: a thread copies 16 bytes with one instruction (the widest there is) instead of one, reads words of four bytes from shared
// memory instead of single ones, and computes 8 x 8 numbers instead of one. For every four steps of k it reads 8 words of A and 8 of B and
// makes 8 * 8 * 4 = 256 multiply-adds of them: 16 for each load, where rung 2 had half a one.
//
//     128 x 128 numbers of C per block, 256 threads in 8 warps      a thread's numbers lie 16 apart in both directions, so that
//     a warp is 4 x 8 threads (down x across)                       neighbouring lanes read neighbouring rows of a tile
//
// Rows of a tile are 64 bytes and lie 80 apart. 80 bytes are 20 words, and eight rows that are 20 words apart begin in the banks 0, 20, 8,
// 28, 16, 4, 24, 12: eight lanes can read 4, or even 16, bytes of eight rows without meeting. All rungs up to the sixth keep this layout.
//
// What holds it back: arithmetic at last. A byte must be cut out of its word and widened before it is multiplied, and then an integer
// multiply-add handles one pair of them, in a unit made for 32 bits.
#pragma once
#include "product.cuh"

namespace ladder {

constexpr int tile_k = 64;                   // bytes of a row in a tile
constexpr int row_pitch = 80;                // from row to row in shared memory
using TileRow = int8_t[row_pitch];           // a tile is an array of these
constexpr int pieces_per_row = tile_k / 16;  // of 16 bytes, what one thread copies at a time

// Brings Rows x 64 bytes to shared memory. All loads are asked for before the first one is used, so that their latencies overlap.
template <int Rows, int Threads>
__device__ void copy_tile(TileRow* tile, const int8_t* from, int k) {
    constexpr int each = Rows * pieces_per_row / Threads;
    const int row = int(threadIdx.x) / pieces_per_row, byte = int(threadIdx.x) % pieces_per_row * 16;
    constexpr int rows_at_once = Threads / pieces_per_row;
    uint4 pieces[each];
#pragma unroll
    for (int i = 0; i < each; ++i) pieces[i] = *reinterpret_cast<const uint4*>(from + size_t(row + i * rows_at_once) * k + byte);
#pragma unroll
    for (int i = 0; i < each; ++i) *reinterpret_cast<uint4*>(&tile[row + i * rows_at_once][byte]) = pieces[i];
}

// The dot product of four bytes with four bytes.
struct FourMultiplyAdds {
    __device__ static int32_t add(int32_t sum, uint32_t a, uint32_t b) {
#pragma unroll
        for (int byte = 0; byte < 4; ++byte) sum = multiply_add(sum, int8_t(a >> (8 * byte)), int8_t(b >> (8 * byte)));
        return sum;
    }
};

// `Four` is FourMultiplyAdds here; rung 4 has another.
template <class Four>
__global__ void __launch_bounds__(256, 2) vectors_kernel(Product p) {
    constexpr int tile = 128, threads = 256, each = 8, apart = tile / each;
    alignas(16) __shared__ TileRow tile_a[tile], tile_b[tile];
    const int first_row = int(blockIdx.y) * tile, first_column = int(blockIdx.x) * tile;
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    const int my_row = warp / 2 * 4 + lane / 8, my_column = warp % 2 * 8 + lane % 8;  // both 0 .. 15
    int32_t sums[each][each] = {};
    for (int k = 0; k < p.k; k += tile_k) {
        copy_tile<tile, threads>(tile_a, p.a + size_t(first_row) * p.k + k, p.k);
        copy_tile<tile, threads>(tile_b, p.b + size_t(first_column) * p.k + k, p.k);
        __syncthreads();
#pragma unroll 2
        for (int byte = 0; byte < tile_k; byte += 4) {
            uint32_t a[each], b[each];
#pragma unroll
            for (int i = 0; i < each; ++i) {
                a[i] = *reinterpret_cast<const uint32_t*>(&tile_a[my_row + i * apart][byte]);
                b[i] = *reinterpret_cast<const uint32_t*>(&tile_b[my_column + i * apart][byte]);
            }
#pragma unroll
            for (int i = 0; i < each; ++i)
#pragma unroll
                for (int j = 0; j < each; ++j) sums[i][j] = Four::add(sums[i][j], a[i], b[j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < each; ++i)
#pragma unroll
        for (int j = 0; j < each; ++j)
            p.c[size_t(first_row + my_row + i * apart) * p.n + first_column + my_column + j * apart] = sums[i][j];
}

inline constexpr Rung vectors{"vectorised loads", 128, 128, tile_k,
                              [](const Product& p) { vectors_kernel<FourMultiplyAdds><<<dim3(p.n / 128, p.m / 128), 256>>>(p); }};

}  // namespace ladder
