// The main loop of ampere.cuh as host code sees it: what a product becomes before it is launched, and the sources that can run it.
#pragma once
#include <string>

#include "core/registry.hpp"

namespace lowbit::cuda {

enum class Arithmetic { bf16, fp16, fp8, int8, int1 };
enum class WeightSource { rows, decoded, tiles };

// Why a kernel of this arithmetic and source does not take a problem; "" when it does.
std::string ampere_reason_against(Arithmetic arithmetic, WeightSource source, const core::MatmulProblem& problem);
int64_t ampere_workspace(Arithmetic arithmetic, WeightSource source, const core::MatmulProblem& problem);
void run_ampere(Arithmetic arithmetic, WeightSource source, const core::MatmulProblem& problem);
double ampere_operand_rounding(Arithmetic arithmetic, WeightSource source, const core::MatmulProblem& problem);

}  // namespace lowbit::cuda
