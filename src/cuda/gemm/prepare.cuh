// What happens beside the main loop: tokens brought into aligned rows of the arithmetic's own type, sums of codes for zero points, and the
// sum over parts of K.
#pragma once
#include "cuda/gemm/ampere.cuh"
#include "cuda/launch.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/quantize/fast.hpp"

namespace lowbit::cuda {

constexpr int prepare_threads = 256;

// [row][pitch] of 16-bit numbers or signed bytes; a thread makes 16 values, and those beyond the matrix are 0.
template <class Mma>
__global__ void prepare_rows(AnyMatrix matrix, uint8_t* rows, int64_t pitch) {
    ptx::let_dependents_begin();  // a product that waits for these rows
    constexpr int bytes = std::is_same_v<Mma, ptx::MmaInt8> ? 16 : 32;
    const int64_t runs = (matrix.columns + 15) / 16, count = matrix.rows * runs;
    for (int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; index < count; index += int64_t(gridDim.x) * blockDim.x) {
        const int64_t row = quotient(index, runs), run = index - row * runs;
        auto* place = reinterpret_cast<uint4*>(rows + row * pitch + run * bytes);
        decode_run<Mma>(matrix, row, run * 16, place, place + 1);
    }
}

// Codes of 8 bits from row to row, with zeros beyond their end; `count` bytes in all.
static __global__ void pad_bytes(const uint8_t* from, int64_t columns, uint8_t* to, int64_t pitch, int64_t count) {
    ptx::let_dependents_begin();
    for (int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; index < count; index += int64_t(gridDim.x) * blockDim.x) {
        const int64_t row = quotient(index, pitch), column = index - row * pitch;
        to[index] = column < columns ? from[row * columns + column] : uint8_t(0);
    }
}

// A warp per row.
static __global__ void sum_codes(AnyMatrix matrix, int32_t* sums) {
    const int lane = threadIdx.x % 32;
    const int64_t warps = int64_t(gridDim.x) * (blockDim.x / 32);
    for (int64_t row = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32; row < matrix.rows; row += warps) {
        int sum = 0;
        for (int64_t column = lane * 16; column < matrix.columns; column += 32 * 16) {
            int8_t codes[16];
            load_codes(matrix, row, column, codes);
#pragma unroll
            for (int i = 0; i < 16; ++i) sum += codes[i];
        }
        for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
        if (lane == 0) sums[row] = sum;
    }
}

// Parts of K in their order; a thread finishes eight neighbouring rows of the weight.
template <class Sum>
__global__ void sum_parts(AmpereArgs args) {
    const int64_t runs = (args.rows + 7) / 8, count = args.tokens.rows * runs;
    for (int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; index < count; index += int64_t(gridDim.x) * blockDim.x) {
        const int64_t token = quotient(index, runs), row = (index - token * runs) * 8;
        Sum values[8] = {};
        for (int split = 0; split < args.splits; ++split) {
            const auto* part = reinterpret_cast<const Sum*>(args.partials) + (int64_t(split) * args.tokens.rows + token) * args.rows + row;
#pragma unroll
            for (int i = 0; i < 8; ++i)
                if (row + i < args.rows) values[i] += part[i];
        }
        store_eight(args.epilogue, load_row_terms(args.epilogue, row, args.rows), token, row, args.rows, values);
    }
}

inline unsigned prepare_blocks(int64_t items) { return unsigned(std::clamp<int64_t>(core::ceil_div(items, prepare_threads), 1, 65535)); }

// Codes as numbers of 16 bits by a dequantizer, which runs at the speed of memory; false where none takes them.
inline bool dequantize_rows(const core::Context& context, const AnyMatrix& tokens, Element element, uint8_t* rows, int64_t pitch) {
    if (!tokens.is_quantized || tokens.quantized.layout != core::PackedLayout::rows) return false;
    const core::Tensor y{rows, element, tokens.rows, tokens.columns, pitch / 2, 1, Device::cuda, context.device_index};
    const core::DequantizeProblem problem{.context = &context, .x = tokens.quantized, .y = y, .for_product = true};
    if (supports_dequantize_blocks(problem).empty())
        run_dequantize_blocks(problem);
    else if (supports_dequantize_units(problem).empty())
        run_dequantize_units(problem);
    else
        return false;
    return true;
}

template <class Mma>
void launch_prepare(const core::Context& context, const AnyMatrix& tokens, uint8_t* rows, int64_t pitch) {
    if constexpr (!std::is_same_v<Mma, ptx::MmaInt8>) {
        constexpr Element element = std::is_same_v<Mma, ptx::MmaBf16> ? Element::bf16 : Element::fp16;
        if (dequantize_rows(context, tokens, element, rows, pitch)) return;
    }
    prepare_rows<Mma>
        <<<prepare_blocks(tokens.rows * core::ceil_div(tokens.columns, 16)), prepare_threads, 0, stream_of(context)>>>(tokens, rows, pitch);
    check_launch("prepare_rows");
}

inline void launch_pad_bytes(const uint8_t* from, int64_t rows, int64_t columns, uint8_t* to, int64_t pitch, cudaStream_t stream) {
    pad_bytes<<<prepare_blocks(rows * pitch), prepare_threads, 0, stream>>>(from, columns, to, pitch, rows * pitch);
    check_launch("pad_bytes");
}

}  // namespace lowbit::cuda
