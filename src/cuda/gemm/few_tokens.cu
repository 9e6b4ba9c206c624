// Few tokens with anything: a warp per two rows of the weight, decoded 16 values at a time and multiplied in fp32. For weights and tokens
// that no kernel of their own takes (K types, odd groups, tokens in fp32): a read of the weight still, only with more work per byte.
#include "cuda/formats/matrix.cuh"
#include "cuda/gemm/epilogue.cuh"
#include "cuda/gemm/gemm.hpp"
#include "cuda/launch.cuh"

namespace lowbit::cuda {
namespace {

constexpr int threads = 256, warps = threads / 32, rows_per_warp = 2, run = 16, chunk = 32 * run;
constexpr int64_t most_tokens = 16, most_decoded_tokens = 4;  // beyond these, tensor cores that multiply what is decoded are as fast

// A call of its own: the decoders of all formats are compiled once.
__device__ __noinline__ void load_run(const AnyMatrix& matrix, int64_t row, int64_t column, float4* to) {
    float values[run];
    load_values_in_line(matrix, row, column, values);
#pragma unroll
    for (int i = 0; i < run / 4; ++i) to[i] = make_float4(values[4 * i], values[4 * i + 1], values[4 * i + 2], values[4 * i + 3]);
}

// Tokens of a chunk of K lie as [token][quarter of a run][lane], so that the lanes of a load fall into different banks.
template <int Tokens>
__global__ void __launch_bounds__(threads) multiply_few(const __grid_constant__ AnyMatrix x, const __grid_constant__ AnyMatrix weight,
                                                        const __grid_constant__ EpilogueArgs epilogue) {
    __shared__ float4 tokens[Tokens][run / 4][32];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int64_t first_row = (int64_t(blockIdx.x) * warps + warp) * rows_per_warp;
    float sums[rows_per_warp][Tokens] = {};
    for (int64_t first = 0; first < x.columns; first += chunk) {
        __syncthreads();
        for (int index = threadIdx.x; index < Tokens * 32; index += threads) {
            float4 values[run / 4] = {};
            const int64_t column = first + index % 32 * run;
            if (index / 32 < x.rows && column < x.columns) load_run(x, index / 32, column, values);
#pragma unroll
            for (int i = 0; i < run / 4; ++i) tokens[index / 32][i][index % 32] = values[i];
        }
        __syncthreads();
        const int64_t column = first + lane * run;
        if (column >= x.columns) continue;
        float4 values[rows_per_warp][run / 4] = {};
#pragma unroll
        for (int r = 0; r < rows_per_warp; ++r)
            if (first_row + r < weight.rows) load_run(weight, first_row + r, column, values[r]);
#pragma unroll
        for (int t = 0; t < Tokens; ++t)
#pragma unroll
            for (int i = 0; i < run / 4; ++i) {
                const float4 token = tokens[t][i][lane];
#pragma unroll
                for (int r = 0; r < rows_per_warp; ++r) {
                    sums[r][t] = fmaf(token.x, values[r][i].x, sums[r][t]);
                    sums[r][t] = fmaf(token.y, values[r][i].y, sums[r][t]);
                    sums[r][t] = fmaf(token.z, values[r][i].z, sums[r][t]);
                    sums[r][t] = fmaf(token.w, values[r][i].w, sums[r][t]);
                }
            }
    }
#pragma unroll
    for (int r = 0; r < rows_per_warp; ++r)
#pragma unroll
        for (int t = 0; t < Tokens; ++t) {
            float sum = sums[r][t];
#pragma unroll
            for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
            if (lane == 0 && t < x.rows && first_row + r < weight.rows) store_result(epilogue, t, first_row + r, sum);
        }
}

bool is_narrow(const core::Operand& operand) {
    return !operand.is_quantized && (operand.tensor.element == Element::bf16 || operand.tensor.element == Element::fp16);
}

std::string reason_against(const core::MatmulProblem& problem) {
    const core::Operand &x = problem.x, &weight = problem.weight;
    const int64_t most = !x.is_quantized && x.tensor.element == Element::fp32 ? most_tokens : most_decoded_tokens;
    if (problem.m() > most) return core::join("for up to ", most, " tokens");
    if (problem.raw_integers()) return "y is int32, the raw product of integers";
    if (is_narrow(x) && is_narrow(weight)) return "both sides are numbers of 16 bits";
    if (!weight.is_quantized) return "";
    const core::Format& format = weight.quantized.format;
    if (weight.quantized.layout == core::PackedLayout::tiles && core::has_nibble_tiles(format) && is_narrow(x))
        return "weight is packed in tiles of nibbles";
    if (x.is_quantized && x.quantized.format.is_integer() && format.is_integer()) return "both sides are integers";
    return "";
}

void run_few(const core::MatmulProblem& problem) {
    if (problem.m() == 0 || problem.n() == 0) return;
    const AnyMatrix x(problem.x), weight(problem.weight);
    const EpilogueArgs epilogue = epilogue_of(problem);
    const unsigned blocks = blocks_for(problem.n(), warps * rows_per_warp);
    const cudaStream_t stream = stream_of(*problem.context);
    if (problem.m() == 1)
        multiply_few<1><<<blocks, threads, 0, stream>>>(x, weight, epilogue);
    else if (problem.m() <= 4)
        multiply_few<4><<<blocks, threads, 0, stream>>>(x, weight, epilogue);
    else
        multiply_few<16><<<blocks, threads, 0, stream>>>(x, weight, epilogue);
    check_launch("multiply_few");
}

}  // namespace

void add_few_tokens(core::Registry& registry) {
    core::Kernel<core::MatmulProblem> kernel;
    kernel.name = "cuda_few_tokens";
    kernel.needs = "any CUDA device";
    kernel.supports = reason_against;
    kernel.run = run_few;
    registry.matmul.add(std::move(kernel));
}

}  // namespace lowbit::cuda
