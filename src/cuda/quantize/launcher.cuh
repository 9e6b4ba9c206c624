// How the kernels of this folder are started. In a header of its own, because the host tests of this folder put another in its place.
#pragma once
#include "core/problem.hpp"
#include "cuda/launch.cuh"
#include "cuda/ptx/async_copy.cuh"

namespace lowbit::cuda {

struct Grid {
    unsigned blocks;
    unsigned threads;  // per block
};

// On the context's stream; no blocks, no launch.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), Grid grid, const core::Context& context, const Arguments&... arguments) {
    if (grid.blocks == 0) return;
    kernel<<<grid.blocks, grid.threads, 0, stream_of(context)>>>(arguments...);
    check_launch(name);
}

// Quantizers that may run between two products: as a part of their chain where nobody but the next product reads the result. A weight must
// never be made so, since a product reads its weight before the launch in front of it has ended.
template <class Arguments>
void launch_quantizer(const char* name, void (*kernel)(Arguments), Grid grid, const core::QuantizeProblem& problem,
                      const Arguments& arguments) {
    if (!problem.for_product) return launch(name, kernel, grid, *problem.context, arguments);
    if (grid.blocks > 0) launch_in_chain(*problem.context, name, kernel, {grid.blocks, grid.threads, 0}, arguments);
}

// What such a kernel begins with: x may be the result of the launch before, and that may still read what lies where results go.
__device__ inline void wait_in_chain(bool for_product) {
    if (for_product) ptx::let_dependents_begin();
    ptx::wait_for_previous_launch();
}

}  // namespace lowbit::cuda
