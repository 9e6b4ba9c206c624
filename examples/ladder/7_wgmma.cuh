// Rung 7: Hopper's own way (wgmma, TMA, mbarriers); compute capability 9.0a alone.
//
// Against rung 6 three things leave the warps' hands:
//   - Operands. A warpgroup (four warps) asks for a product of 64 x 256 numbers over 32 bytes of k in one instruction. The tensor core
//     reads both operands from shared memory by itself, and works on its own until it is waited for: no ldmatrix, no registers but the
//     sums.
//   - Copies. One thread asks the copy engine (TMA) for a box of 128 or 256 rows of 128 bytes; a tensor map, made on the host, says where
//     and how it lies. The engine also orders it as wgmma wants it: piece c of 16 bytes of row r lies at c ^ (r % 8), which is what keeps
//     banks apart now, instead of padding.
//   - Waiting. Instead of a barrier for the whole block there are two mbarriers for each stage of a ring. full[s] completes when all bytes
//     of stage s have come; empty[s], when all 8 multiplying warps have done with it.
//
//     warp 8:           wait empty[s] -> ask for 128 x 128 bytes of A, 256 x 128 of B -> full[s]           (the copying warp)
//     warps 0-3, 4-7:   wait full[s] -> 4 wgmma, each for its 64 rows of A -> the stage before: empty[s]   (two multiplying warpgroups)
//
// Blocks stay on their multiprocessor and go from tile to tile of the result, so the copying warp fills the ring for the next tile while
// the sums of the last are stored.
//
// What holds it back: the tensor core waits while the sums are stored, and under this load the chip lowers its clock to keep within its
// power. Where the library goes from here is in docs/hopper.md.
#pragma once
#include <algorithm>

#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "product.cuh"

namespace ladder {

namespace ptx = lowbit::cuda::ptx;

struct WgmmaRing {
    static constexpr int m = 128, n = 256, k = ptx::wgmma_row_bytes, stages = 4;
    static constexpr int multiplying_warps = 8, threads = 384;  // two warpgroups that multiply, and one of which a single warp copies
    alignas(1024) int8_t a[stages][m][k];                       // eight rows, 1024 bytes, are the unit of the swizzle
    alignas(1024) int8_t b[stages][n][k];
    ptx::Barrier full[stages], empty[stages];
};

// Where a warp stands in the ring. A barrier's parity changes each time it completes, so a lap is told from the next by one bit.
struct RingPlace {
    int stage = 0;
    uint32_t lap = 0;
    __device__ void advance() {
        if (++stage == WgmmaRing::stages) stage = 0, lap ^= 1;
    }
};

// The whole warp runs the loop, so that its way is uniform, and one lane asks. In the first lap every stage is free: a wait for the parity
// before the first one returns at once.
__device__ inline void copy_to_ring(WgmmaRing& ring, const CUtensorMap& a, const CUtensorMap& b, int row, int column, int k_end,
                                    RingPlace& at) {
    for (int k = 0; k < k_end; k += WgmmaRing::k, at.advance()) {
        ptx::wait_for(&ring.empty[at.stage], at.lap ^ 1);
        if (ptx::elect_one()) {
            ptx::Barrier* full = &ring.full[at.stage];
            ptx::expect_bytes(full, sizeof ring.a[0] + sizeof ring.b[0]);
            ptx::copy_box(ring.a[at.stage], a, k, row, full);
            ptx::copy_box(ring.b[at.stage], b, k, column, full);
        }
        __syncwarp();
    }
}

// 64 x 256 numbers of one warpgroup. One product is always under way: a stage goes back when the next one's product has been asked for and
// its own is complete. The loop is left in the middle because it must be seen to run at least once, else the compiler cannot leave the sums
// in the tensor core's hands.
__device__ inline void multiply_from_ring(WgmmaRing& ring, int32_t (&sums)[128], int group, int k_end, RingPlace& at) {
    const bool first_lane = threadIdx.x % 32 == 0;
    RingPlace previous = at;
    for (int k = 0;;) {
        ptx::wait_for(&ring.full[at.stage], at.lap);
        const uint64_t a = ptx::wgmma_tile(ring.a[at.stage][group * 64]), b = ptx::wgmma_tile(ring.b[at.stage]);
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < ptx::wgmma_steps_per_row; ++step) {
            const auto forward = uint64_t(step * ptx::wgmma_step_bytes / 16);  // addresses of tiles count 16 bytes
            ptx::Wgmma<ptx::WgmmaInt8, 256>::shared(sums, a + forward, b + forward, k > 0 || step > 0);
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        if (k > 0 && first_lane) ptx::arrive(&ring.empty[previous.stage]);
        previous = at;
        at.advance();
        k += WgmmaRing::k;
        if (k >= k_end) break;
    }
    ptx::wgmma_wait<0>();
#pragma unroll
    for (int32_t& sum : sums) ptx::own(sum);
    if (first_lane) ptx::arrive(&ring.empty[previous.stage]);
}

__device__ inline void store_sums(const Product& p, const int32_t (&sums)[128], int first_row, int first_column) {
    const int thread = int(threadIdx.x) % 128, lane = thread % 32;
    const int row = first_row + thread / 32 * 16 + lane / 4, column = first_column + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 128; i += 2) {  // the order is drawn in src/cuda/ptx/wgmma.cuh
        int32_t* to = p.c + size_t(row + i / 2 % 2 * 8) * p.n + column + i / 4 * 8;
        *reinterpret_cast<int2*>(to) = make_int2(sums[i], sums[i + 1]);
    }
}

__global__ void __launch_bounds__(WgmmaRing::threads, 1)
    wgmma_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, Product p) {
#if LOWBIT_WGMMA
    extern __shared__ __align__(1024) uint8_t ring_memory[];
    auto& ring = *reinterpret_cast<WgmmaRing*>(ring_memory);
    if (threadIdx.x == 0) {
        for (int s = 0; s < WgmmaRing::stages; ++s) {
            ptx::init_barrier(&ring.full[s], 1);  // the copying lane, which also says how many bytes will come
            ptx::init_barrier(&ring.empty[s], WgmmaRing::multiplying_warps);
        }
        ptx::publish_barriers();
    }
    __syncthreads();
    const int across = p.n / WgmmaRing::n, tiles = p.m / WgmmaRing::m * across;
    const int warp = __shfl_sync(~0u, int(threadIdx.x) / 32, 0);  // tells the compiler that it is uniform
    RingPlace at;
    // The register file was dealt out evenly, 168 for each thread; 128 sums and the rest want more than that, copying wants few.
    if (warp >= WgmmaRing::multiplying_warps) {
        ptx::give_up_registers<40>();
        if (warp != WgmmaRing::multiplying_warps) return;
        for (int tile = int(blockIdx.x); tile < tiles; tile += int(gridDim.x))
            copy_to_ring(ring, a, b, tile / across * WgmmaRing::m, tile % across * WgmmaRing::n, p.k, at);
    } else {
        ptx::take_registers<232>();
        const int group = warp / 4;
        for (int tile = int(blockIdx.x); tile < tiles; tile += int(gridDim.x)) {
            int32_t sums[128];
            multiply_from_ring(ring, sums, group, p.k, at);
            store_sums(p, sums, tile / across * WgmmaRing::m + group * 64, tile % across * WgmmaRing::n);
        }
    }
#endif
}

// A matrix of bytes for the copy engine: boxes of `box_rows` rows of 128 bytes, swizzled. The function belongs to the driver; asking the
// runtime for it saves linking with the driver.
inline CUtensorMap make_tensor_map(const int8_t* data, int rows, int k, int box_rows) {
    static const auto encode = [] {
        void* found = nullptr;
        cudaDriverEntryPointQueryResult result;
        check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result), "driver function");
        if (found == nullptr) std::fprintf(stderr, "the driver has no cuTensorMapEncodeTiled: it is older than CUDA 12.0\n"), std::exit(1);
        return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
    }();
    const cuuint64_t sizes[2] = {cuuint64_t(k), cuuint64_t(rows)}, pitches[1] = {cuuint64_t(k)};
    const cuuint32_t box[2] = {WgmmaRing::k, cuuint32_t(box_rows)}, steps[2] = {1, 1};
    CUtensorMap map;
    const CUresult result =
        encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, const_cast<int8_t*>(data), sizes, pitches, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) std::fprintf(stderr, "cuTensorMapEncodeTiled: error %d\n", int(result)), std::exit(1);
    return map;
}

inline void launch_wgmma(const Product& p) {
    int device = 0, multiprocessors = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device), "number of multiprocessors");
    check(cudaFuncSetAttribute(wgmma_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(sizeof(WgmmaRing))),
          "shared memory of rung 7");
    const CUtensorMap a = make_tensor_map(p.a, p.m, p.k, WgmmaRing::m), b = make_tensor_map(p.b, p.n, p.k, WgmmaRing::n);
    const int tiles = p.m / WgmmaRing::m * (p.n / WgmmaRing::n), blocks = std::min(tiles, multiprocessors);
    wgmma_kernel<<<blocks, WgmmaRing::threads, sizeof(WgmmaRing)>>>(a, b, p);
}

inline constexpr Rung wgmma{"wgmma", WgmmaRing::m, WgmmaRing::n, WgmmaRing::k, launch_wgmma, true};

}  // namespace ladder
