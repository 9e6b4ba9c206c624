// What a packed weight keeps of its rows, and products make of those that are not packed: the sums of int8, and how many bits are set.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/status.hpp"
#include "cuda/launch.cuh"
#include "cuda/ptx/async_copy.cuh"

namespace lowbit::cuda {

// Four codes, or 32 bits.
template <bool Bits>
__device__ inline int add_codes(int sum, uint32_t word) {
    return Bits ? sum + __popc(word) : __dp4a(int(word), 0x01010101, sum);
}

// Rows of whole bytes.
struct ByteRows {
    const uint8_t* codes = nullptr;
    int64_t count = 0;
};

// Of one matrix and then another, in one launch. A warp per row. for_product: nobody but a product of the same call reads them.
template <bool Bits>
static __global__ void sum_rows(ByteRows first, ByteRows second, int64_t bytes, int32_t* sums, bool for_product) {
    if (for_product) ptx::let_dependents_begin();
    const int lane = threadIdx.x % 32;
    const int64_t warps = int64_t(gridDim.x) * (blockDim.x / 32);
    for (int64_t row = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32; row < first.count + second.count; row += warps) {
        const uint8_t* from = row < first.count ? first.codes + row * bytes : second.codes + (row - first.count) * bytes;
        const int64_t wide = reinterpret_cast<uintptr_t>(from) % 16 == 0 ? bytes / 16 : 0;
        int sum = 0;
#pragma unroll 4
        for (int64_t run = lane; run < wide; run += 32) {
            const uint4 four = reinterpret_cast<const uint4*>(from)[run];
            sum = add_codes<Bits>(add_codes<Bits>(sum, four.x), four.y);
            sum = add_codes<Bits>(add_codes<Bits>(sum, four.z), four.w);
        }
        for (int64_t byte = wide * 16 + lane; byte < bytes; byte += 32) sum = add_codes<Bits>(sum, from[byte]);
        for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
        if (lane == 0) sums[row] = sum;
    }
}

template <bool Bits>
void launch_row_sums(ByteRows first, ByteRows second, int64_t bytes, int32_t* sums, bool for_product, cudaStream_t stream) {
    constexpr int threads = 256;
    const int64_t rows = first.count + second.count;
    if (rows == 0) return;
    sum_rows<Bits><<<unsigned(std::min<int64_t>(core::ceil_div(rows, threads / 32), 65535)), threads, 0, stream>>>(first, second, bytes,
                                                                                                                   sums, for_product);
    check_launch("sum_rows");
}

}  // namespace lowbit::cuda
