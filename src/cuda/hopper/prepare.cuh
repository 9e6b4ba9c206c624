// What small launches before the main loop make of operands; the main loop's launch may begin while they work. Included by one file.
#pragma once
#include "cuda/formats/matrix.cuh"
#include "cuda/formats/planes.cuh"
#include "cuda/gemm/group_scales.cuh"
#include "cuda/ptx/async_copy.cuh"

namespace lowbit::cuda {

// Codes of 16 columns in the order of a word of nibbles (core/packed.hpp): 2t, 2t + 8, 2t + 1, 2t + 9 for t = 0 .. 3.
__device__ inline uint4 in_nibble_order(uint4 codes) {
    return make_uint4(__byte_perm(codes.x, codes.z, 0x5140), __byte_perm(codes.x, codes.z, 0x7362), __byte_perm(codes.y, codes.w, 0x5140),
                      __byte_perm(codes.y, codes.w, 0x7362));
}
// The same of nibbles with a sign, the low one first.
__device__ inline uint4 in_nibble_order(uint2 codes) {
    const auto widened = [](uint32_t nibbles) { return nibbles | (nibbles & 0x08080808u) * 0x1eu; };
    const uint32_t even[2] = {widened(codes.x & 0x0f0f0f0fu), widened(codes.y & 0x0f0f0f0fu)};
    const uint32_t odd[2] = {widened(codes.x >> 4 & 0x0f0f0f0fu), widened(codes.y >> 4 & 0x0f0f0f0fu)};
    uint32_t words[4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const uint32_t from_even = __byte_perm(even[0], even[1], half ? 0x7362 : 0x5140);
        const uint32_t from_odd = __byte_perm(odd[0], odd[1], half ? 0x7362 : 0x5140);
        words[2 * half] = __byte_perm(from_even, from_odd, 0x5410), words[2 * half + 1] = __byte_perm(from_even, from_odd, 0x7632);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

// Rows of whole and aligned runs of 16 codes, one after the other: nothing needs to know where a row ends. Run: the bytes of one.
constexpr int ordered_runs_per_thread = 4;
template <class Run>
static __global__ void order_runs(const Run* from, uint4* to, int64_t runs) {
    ptx::let_dependents_begin();
    const int64_t first = int64_t(blockIdx.x) * (blockDim.x * ordered_runs_per_thread) + threadIdx.x;
    Run codes[ordered_runs_per_thread];
#pragma unroll
    for (int i = 0; i < ordered_runs_per_thread; ++i)
        if (first + i * int(blockDim.x) < runs) codes[i] = from[first + i * int(blockDim.x)];
#pragma unroll
    for (int i = 0; i < ordered_runs_per_thread; ++i)
        if (first + i * int(blockDim.x) < runs) to[first + i * int(blockDim.x)] = in_nibble_order(codes[i]);
}

// Any rows. `bytes`: codes of 8 bits that are moved as they are.
static __global__ void order_tokens(AnyMatrix tokens, bool bytes, uint8_t* to, int64_t pitch) {
    ptx::let_dependents_begin();
    const int64_t runs = pitch / 16;
    for (int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; index < tokens.rows * runs;
         index += int64_t(gridDim.x) * blockDim.x) {
        const int64_t row = quotient(index, runs), run = index - row * runs;
        alignas(16) int8_t codes[16];
        if (bytes)
            for (int i = 0; i < 16; ++i) {
                const int64_t column = run * 16 + i;
                codes[i] = column < tokens.columns ? int8_t(tokens.quantized.codes[row * tokens.columns + column]) : int8_t(0);
            }
        else
            load_codes(tokens, row, run * 16, codes);
        *reinterpret_cast<uint4*>(to + row * pitch + run * 16) = in_nibble_order(*reinterpret_cast<const uint4*>(codes));
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
