// What small launches before the main loop make of operands. Included by one file.
#pragma once
#include "cuda/formats/matrix.cuh"
#include "cuda/formats/planes.cuh"
#include "cuda/gemm/group_scales.cuh"

namespace lowbit::cuda {

// Codes of 16 columns in the order of a word of nibbles (core/packed.hpp): 2t, 2t + 8, 2t + 1, 2t + 9 for t = 0 .. 3.
static __global__ void order_tokens(AnyMatrix tokens, uint8_t* to, int64_t pitch) {
    const int64_t runs = pitch / 16;
    for (int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; index < tokens.rows * runs;
         index += int64_t(gridDim.x) * blockDim.x) {
        const int64_t row = quotient(index, runs), run = index - row * runs;
        const core::QuantizedView& view = tokens.quantized;
        const uint8_t* place = view.codes + row * tokens.columns + run * 16;  // of int8
        uint4 words;
        if (view.format.element == Element::int8 && run * 16 + 16 <= tokens.columns && reinterpret_cast<uintptr_t>(place) % 16 == 0) {
            words = *reinterpret_cast<const uint4*>(place);
        } else {
            alignas(16) int8_t codes[16];
            load_codes(tokens, row, run * 16, codes);
            words = *reinterpret_cast<const uint4*>(codes);
        }
        *reinterpret_cast<uint4*>(to + row * pitch + run * 16) =
            make_uint4(__byte_perm(words.x, words.z, 0x5140), __byte_perm(words.x, words.z, 0x7362), __byte_perm(words.y, words.w, 0x5140),
                       __byte_perm(words.y, words.w, 0x7362));
    }
}

// One scale of a row in the order of tiles, as the epilogue reads them.
static __global__ void spread_row_scales(GroupScales scales, float* to, int64_t rows) {
    const int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row < rows) to[row] = scales.at(row, 0);
}

// The sums of rows of int8, whose lengths are multiples of 16; a warp per row.
static __global__ void sum_rows(const uint8_t* codes, int64_t rows, int64_t columns, int32_t* sums) {
    const int lane = threadIdx.x % 32;
    const int64_t warps = int64_t(gridDim.x) * (blockDim.x / 32), runs = columns / 16;
    for (int64_t row = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32; row < rows; row += warps) {
        const auto* from = reinterpret_cast<const uint4*>(codes + row * columns);
        int sum = 0;
#pragma unroll 4
        for (int64_t run = lane; run < runs; run += 32) {
            const uint4 four = from[run];
            sum = __dp4a(int(four.x), 0x01010101, __dp4a(int(four.y), 0x01010101, sum));
            sum = __dp4a(int(four.z), 0x01010101, __dp4a(int(four.w), 0x01010101, sum));
        }
        sum = __reduce_add_sync(0xffffffffu, sum);
        if (lane == 0) sums[row] = sum;
    }
}

// How many bits of each row are set: of the weight's rows, then of the tokens. A warp per row; rows of whole bytes.
static __global__ void count_bits(const uint8_t* weight, int64_t weight_rows, const uint8_t* tokens, int64_t token_rows, int64_t bytes,
                                  int32_t* counts) {
    const int lane = threadIdx.x % 32;
    const int64_t warps = int64_t(gridDim.x) * (blockDim.x / 32);
    for (int64_t row = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32; row < weight_rows + token_rows; row += warps) {
        const uint8_t* from = row < weight_rows ? weight + row * bytes : tokens + (row - weight_rows) * bytes;
        int count = 0;
        const bool aligned = reinterpret_cast<uintptr_t>(from) % 16 == 0;
        const int64_t wide = aligned ? bytes / 16 : 0;
        for (int64_t run = lane; run < wide; run += 32) {
            const uint4 four = reinterpret_cast<const uint4*>(from)[run];
            count += __popc(four.x) + __popc(four.y) + __popc(four.z) + __popc(four.w);
        }
        for (int64_t byte = wide * 16 + lane; byte < bytes; byte += 32) count += __popc(from[byte]);
        count = __reduce_add_sync(0xffffffffu, count);
        if (lane == 0) counts[row] = count;
    }
}

}  // namespace lowbit::cuda
