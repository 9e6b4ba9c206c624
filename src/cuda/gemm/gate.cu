// The gate after a product that did not apply it: a pass over both halves in fp32.
#include "cuda/gemm/epilogue.cuh"
#include "cuda/kernels.hpp"
#include "cuda/launch.cuh"
#include "cuda/ptx/async_copy.cuh"

namespace lowbit::cuda {
namespace {

constexpr int threads = 256;

__global__ void __launch_bounds__(threads) apply_gate(const float* halves, int64_t columns, int64_t count, EpilogueArgs epilogue) {
    ptx::wait_for_previous_launch();
    ptx::let_dependents_begin();
    for (int64_t index = int64_t(blockIdx.x) * threads + threadIdx.x; index < count; index += int64_t(gridDim.x) * threads) {
        const int64_t token = quotient(index, columns), column = index - token * columns;
        const float* gate = halves + 2 * columns * token + column;
        store_value(epilogue, token, column, activate(epilogue.activation, gate[0]) * gate[columns]);
    }
}

}  // namespace

void gate(const core::MatmulProblem& problem, const core::Tensor& halves) {
    const int64_t count = problem.m() * problem.n();
    if (count == 0) return;
    const DeviceScope scope(problem.context->device_index);
    constexpr int64_t most_blocks = 1 << 16;
    const unsigned blocks = unsigned(std::min<int64_t>(core::ceil_div(count, threads), most_blocks));
    launch_in_chain(*problem.context, "apply_gate", apply_gate, {blocks, threads, 0}, static_cast<const float*>(halves.data), problem.n(),
                    count, epilogue_of(problem));
}

}  // namespace lowbit::cuda
