// What small launches before the main loop make of operands; the main loop's launch may begin while they work. Included by one file.
#pragma once
#include "cuda/formats/matrix.cuh"
#include "cuda/formats/planes.cuh"
#include "cuda/gemm/group_scales.cuh"
#include "cuda/ptx/async_copy.cuh"

namespace lowbit::cuda {

// Eight nibbles with a sign, the low one first, as bytes.
__device__ inline uint2 widen_nibbles(uint32_t codes) {
    const auto widened = [](uint32_t nibbles) { return nibbles | (nibbles & 0x08080808u) * 0x1eu; };
    const uint32_t even = widened(codes & 0x0f0f0f0fu), odd = widened(codes >> 4 & 0x0f0f0f0fu);
    return make_uint2(__byte_perm(even, odd, 0x5140), __byte_perm(even, odd, 0x7362));
}

// Rows of whole and aligned runs of 16 nibbles, one after the other: nothing needs to know where a row ends.
constexpr int widened_runs_per_thread = 4;
static __global__ void widen_runs(const uint2* from, uint4* to, int64_t runs) {
    ptx::let_dependents_begin();
    const int64_t first = int64_t(blockIdx.x) * (blockDim.x * widened_runs_per_thread) + threadIdx.x;
    uint2 codes[widened_runs_per_thread];
#pragma unroll
    for (int i = 0; i < widened_runs_per_thread; ++i)
        if (first + i * int(blockDim.x) < runs) codes[i] = from[first + i * int(blockDim.x)];
#pragma unroll
    for (int i = 0; i < widened_runs_per_thread; ++i)
        if (first + i * int(blockDim.x) < runs) {
            const uint2 low = widen_nibbles(codes[i].x), high = widen_nibbles(codes[i].y);
            to[first + i * int(blockDim.x)] = make_uint4(low.x, low.y, high.x, high.y);
        }
}

// [row][column] -> [column][row], with zeros behind the last row.
constexpr int turned_side = 32;
static __global__ void turn_scales(const float* from, int64_t rows, int64_t columns, float* to, int64_t pitch) {
    ptx::let_dependents_begin();
    __shared__ float square[turned_side][turned_side + 1];
    const int64_t first_row = int64_t(blockIdx.x) * turned_side, first_column = int64_t(blockIdx.y) * turned_side;
    for (int i = threadIdx.y; i < turned_side; i += blockDim.y) {
        const int64_t row = first_row + i, column = first_column + threadIdx.x;
        square[i][threadIdx.x] = row < rows && column < columns ? from[row * columns + column] : 0.0f;
    }
    __syncthreads();
    for (int i = threadIdx.y; i < turned_side; i += blockDim.y)
        if (first_column + i < columns) to[(first_column + i) * pitch + first_row + threadIdx.x] = square[threadIdx.x][i];
}

// One scale of a row in the order of tiles, as the epilogue reads them.
static __global__ void spread_row_scales(GroupScales scales, float* to, int64_t rows) {
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row < rows) to[row] = scales.at(row, 0);
}

}  // namespace lowbit::cuda
