#pragma once
#include "core/registry.hpp"

namespace lowbit::cuda {

// Every CUDA kernel of this build; where there is no device, each says so.
void register_kernels(core::Registry& registry);

// The result of a gated product from both of its halves (core/gate.hpp), on the context's stream.
void gate(const core::MatmulProblem& problem, const core::Tensor& halves);

}  // namespace lowbit::cuda
