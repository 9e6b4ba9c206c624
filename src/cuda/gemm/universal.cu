// The product of anything with anything: both operands are decoded into fp32 tiles in shared memory and multiplied without tensor cores.
// The last of the CUDA kernels, for what none before it takes.
#include "cuda/formats/matrix.cuh"
#include "cuda/gemm/epilogue.cuh"
#include "cuda/gemm/gemm.hpp"
#include "cuda/launch.cuh"

namespace lowbit::cuda {
namespace {

constexpr int tile = 64, depth = 32, threads = 256;
constexpr int pitch = tile + 4;

// 64 rows x 32 columns into shared memory, transposed: 128 threads decode 16 values each.
__device__ void fill(float (&shared)[depth][pitch], const AnyMatrix& side, int64_t first_row, int64_t column, int thread) {
    const int row = thread / 2, part = thread % 2 * 16;
    float values[16] = {};
    if (first_row + row < side.rows) load_values(side, first_row + row, column + part, values);
#pragma unroll
    for (int i = 0; i < 16; ++i) shared[part + i][row] = values[i];
}

template <class Accumulator>
__global__ void __launch_bounds__(threads) multiply(AnyMatrix x, AnyMatrix weight, EpilogueArgs epilogue) {
    __shared__ float tokens[depth][pitch], rows[depth][pitch];
    const int64_t first_row = int64_t(blockIdx.x) * tile;
    for (int64_t first_token = int64_t(blockIdx.y) * tile; first_token < x.rows; first_token += int64_t(gridDim.y) * tile) {
        const int token = threadIdx.x / 16 * 4, row = threadIdx.x % 16 * 4;
        Accumulator sums[4][4] = {};
        for (int64_t column = 0; column < x.columns; column += depth) {
            __syncthreads();
            threadIdx.x < threads / 2 ? fill(tokens, x, first_token, column, threadIdx.x)
                                      : fill(rows, weight, first_row, column, threadIdx.x - threads / 2);
            __syncthreads();
            for (int k = 0; k < depth; ++k)
#pragma unroll
                for (int i = 0; i < 4; ++i)
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        if constexpr (std::is_same_v<Accumulator, int32_t>)
                            sums[i][j] += int(tokens[k][token + i]) * int(rows[k][row + j]);
                        else
                            sums[i][j] = fmaf(tokens[k][token + i], rows[k][row + j], sums[i][j]);
                    }
        }
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j)
                if (first_token + token + i < x.rows && first_row + row + j < weight.rows)
                    store_result(epilogue, first_token + token + i, first_row + row + j, sums[i][j]);
    }
}

void run_universal(const core::MatmulProblem& problem) {
    if (problem.m() == 0 || problem.n() == 0) return;
    const bool raw = problem.raw_integers();
    AnyMatrix x(problem.x), weight(problem.weight);
    if (raw) x = x.without_scales(), weight = weight.without_scales();
    const EpilogueArgs epilogue = epilogue_of(problem);
    const dim3 grid(blocks_for(problem.n(), tile), unsigned(std::min<int64_t>(core::ceil_div(problem.m(), tile), 65535)));
    if (raw)
        multiply<int32_t><<<grid, threads, 0, stream_of(*problem.context)>>>(x, weight, epilogue);
    else
        multiply<float><<<grid, threads, 0, stream_of(*problem.context)>>>(x, weight, epilogue);
    check_launch("cuda_universal");
}

}  // namespace

void add_universal(core::Registry& registry) {
    core::Kernel<core::MatmulProblem> kernel;
    kernel.name = "cuda_universal";
    kernel.needs = "any CUDA device";
    kernel.supports = [](const core::MatmulProblem&) { return std::string(); };
    kernel.run = run_universal;
    registry.matmul.add(std::move(kernel));
}

}  // namespace lowbit::cuda
