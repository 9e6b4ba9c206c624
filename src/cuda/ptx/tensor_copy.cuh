// Copies of boxes of a tensor by the copy engine of sm_90, blocks in clusters, and registers that change hands between warpgroups.
#pragma once
#include <cuda.h>

#include "cuda/ptx/async_copy.cuh"

namespace lowbit::cuda::ptx {

// A box of a matrix or of a stack of matrices, from its first column, row (and layer).
__device__ inline void copy_box(void* to, const CUtensorMap& map, int column, int row, Barrier* full) {
#if LOWBIT_HOPPER
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                     shared_address(to)),
                 "l"(&map), "r"(column), "r"(row), "r"(shared_address(full))
                 : "memory");
#endif
}
__device__ inline void copy_box(void* to, const CUtensorMap& map, int column, int row, int layer, Barrier* full) {
#if LOWBIT_HOPPER
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
                     shared_address(to)),
                 "l"(&map), "r"(column), "r"(row), "r"(layer), "r"(shared_address(full))
                 : "memory");
#endif
}
// Into the same place of all blocks that `blocks` has a bit for; each one's own barrier counts its bytes.
__device__ inline void copy_box_to_all(void* to, const CUtensorMap& map, int column, int row, Barrier* full, uint16_t blocks) {
#if LOWBIT_HOPPER
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], "
        "%5;" ::"r"(shared_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(shared_address(full)), "h"(blocks)
        : "memory");
#endif
}

// And back, some boxes and then `commit_stores`; what lies beyond the matrix is not written.
__device__ inline void store_box(const CUtensorMap& map, int column, int row, const void* from) {
#if LOWBIT_HOPPER
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(column), "r"(row),
                 "r"(shared_address(from))
                 : "memory");
#endif
}
__device__ inline void commit_stores() {
#if LOWBIT_HOPPER
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
#endif
}
// Brings a map into the copy engine's cache before its first use.
__device__ inline void prefetch_map(const CUtensorMap& map) {
#if LOWBIT_HOPPER
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#endif
}

// All that this thread committed but the last `Pending` have read their shared memory.
template <int Pending>
__device__ inline void wait_for_stores_to_read() {
#if LOWBIT_HOPPER
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
#endif
}
__device__ inline void wait_for_stores() {
#if LOWBIT_HOPPER
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}
// What this thread wrote to shared memory can be read by the copy engine (after a barrier).
__device__ inline void show_to_copy_engine() {
#if LOWBIT_HOPPER
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// True in one lane of a converged warp.
__device__ inline bool elect_one() {
    uint32_t elected = 0;
#if LOWBIT_HOPPER
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 %0, 1, 0, p; }" : "=r"(elected));
#endif
    return elected != 0;
}

__device__ inline uint32_t block_in_cluster() {
    uint32_t rank = 0;
#if LOWBIT_HOPPER
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}

// The same place in the shared memory of another block of the cluster.
__device__ inline uint32_t address_in_block(const void* pointer, uint32_t block) {
    uint32_t address = 0;
#if LOWBIT_HOPPER
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(pointer)), "r"(block));
#endif
    return address;
}
__device__ inline void store_in_block(uint32_t address, uint4 value) {
#if LOWBIT_HOPPER
    asm volatile("st.shared::cluster.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
                 : "memory");
#endif
}

// Not release.cluster, which costs a MEMBAR.ALL.GPU: all it would order are reads, complete by then.
__device__ inline void arrive_in_block(Barrier* barrier, uint32_t block) {
#if LOWBIT_HOPPER
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address_in_block(barrier, block)) : "memory");
#endif
}

// All threads of all blocks of the cluster; what was written before can be read after.
__device__ inline void meet_cluster() {
#if LOWBIT_HOPPER
    asm volatile(
        "barrier.cluster.arrive.release.aligned;\n"
        "barrier.cluster.wait.acquire.aligned;" ::
            : "memory");
#endif
}
// Some warps of a block; every such group has a name of its own.
__device__ inline void meet_warps(int name, int threads) {
#if LOWBIT_HOPPER
    asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
#endif
}
// The same for a warp that only says that it was here.
__device__ inline void announce(int name, int threads) {
#if LOWBIT_HOPPER
    asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
#endif
}

template <int Registers>
__device__ inline void give_up_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
#endif
}
template <int Registers>
__device__ inline void take_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
#endif
}

// Four 8 x 8 matrices of 16-bit numbers, as they are or each transposed; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void store_matrices(uint32_t row, const uint32_t (&r)[4]) {
#if LOWBIT_HOPPER
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
#endif
}
__device__ inline void store_transposed(uint32_t row, const uint32_t (&r)[4]) {
#if LOWBIT_HOPPER
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row), "r"(r[0]), "r"(r[1]), "r"(r[2]),
                 "r"(r[3])
                 : "memory");
#endif
}

}  // namespace lowbit::cuda::ptx
