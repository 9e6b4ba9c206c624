// Rung 6: copies that run ahead (cp.async).
//
// Against rung 5: there are three tiles in shared memory instead of one. While the tensor core works on the first, the other two are on
// their way. cp.async brings 16 bytes from global to shared memory without passing through registers, and a thread goes on at once; it
// closes what it asked for into a group, and waits later, for the oldest group only. One barrier per tile is left of two.
//
//     step t:   wait for the copies of tile t | barrier | ask for tile t + 2 | multiply tile t
//
//     stage 0   [tile 0: multiply] [tile 3: copy ................] [tile 3: multiply]
//     stage 1   [copy ...........] [tile 1: multiply] [tile 4: copy ................]
//     stage 2   [tile 2: copy ......................] [tile 2: multiply]
//
// What holds it back: feeding the tensor core. Every operand goes from shared memory to registers and from there to the tensor core, in
// instructions that the warps must issue between the products, and on Hopper mma.sync cannot use the tensor core in full at all.
#pragma once
#include "5_mma.cuh"

namespace ladder {

constexpr int pipeline_stages = 3;

template <int Rows>
__device__ void start_copy(TileRow* tile, const int8_t* from, int k) {
    constexpr int rows_at_once = MmaTile::threads / pieces_per_row;
    const int row = int(threadIdx.x) / pieces_per_row, byte = int(threadIdx.x) % pieces_per_row * 16;
#pragma unroll
    for (int i = 0; i < Rows; i += rows_at_once) ptx::copy_16(&tile[row + i][byte], from + size_t(row + i) * k + byte, true);
}

__global__ void __launch_bounds__(MmaTile::threads, 1) pipelined_kernel(Product p) {
    extern __shared__ __align__(16) uint8_t pipeline_memory[];
    auto* stages = reinterpret_cast<MmaTile*>(pipeline_memory);
    const int first_row = int(blockIdx.y) * MmaTile::m, first_column = int(blockIdx.x) * MmaTile::n, tiles = p.k / tile_k;
    const int8_t* from_a = p.a + size_t(first_row) * p.k;
    const int8_t* from_b = p.b + size_t(first_column) * p.k;
    const auto start = [&](int t) {
        if (t < tiles) {
            start_copy<MmaTile::m>(stages[t % pipeline_stages].a, from_a + t * tile_k, p.k);
            start_copy<MmaTile::n>(stages[t % pipeline_stages].b, from_b + t * tile_k, p.k);
        }
        ptx::commit_copies();  // past the end, too, though the group is empty: the wait below counts groups
    };
    const WarpPlace my = find_place();
    WarpSums sums = {};
#pragma unroll
    for (int t = 0; t < pipeline_stages - 1; ++t) start(t);
    for (int t = 0; t < tiles; ++t) {
        ptx::wait_for_copies<pipeline_stages - 2>();  // this thread's part of tile t is there
        __syncthreads();                              // everyone's is; and everyone has done with tile t - 1, whose stage is free
        start(t + pipeline_stages - 1);
        multiply_tile(sums, stages[t % pipeline_stages], my);
    }
    store_sums(p, sums, my, first_row, first_column);
}

inline constexpr Rung pipelined{"pipelined", MmaTile::m, MmaTile::n, tile_k, [](const Product& p) {
                                    constexpr int bytes = pipeline_stages * int(sizeof(MmaTile));
                                    check(cudaFuncSetAttribute(pipelined_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                                          "shared memory of rung 6");
                                    pipelined_kernel<<<dim3(p.n / MmaTile::n, p.m / MmaTile::m), MmaTile::threads, bytes>>>(p);
                                }};

}  // namespace ladder
