// The gate (core/epilogue.hpp) for kernels that do not know it: they make the product of both halves of the weight, side by side in fp32,
// and one pass over that makes the result.
#pragma once
#include <functional>

#include "core/registry.hpp"

namespace lowbit::core {

// The result from both halves [M, 2N], which are complete but for the activation.
using GatePass = std::function<void(const MatmulProblem& problem, const Tensor& halves)>;
void gate_on_cpu(const MatmulProblem& problem, const Tensor& halves);

// The kernel as it is, and for every gated problem too.
Kernel<MatmulProblem> with_gate(const Kernel<MatmulProblem>& kernel, const GatePass& pass);

// What is said of a chosen kernel and a gated problem.
std::string gate_text(const Kernel<MatmulProblem>& kernel, const MatmulProblem& problem);

}  // namespace lowbit::core
