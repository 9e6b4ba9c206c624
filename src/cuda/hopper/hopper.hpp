// The product of a problem through the Hopper main loop.
#pragma once
#include <optional>

#include "core/problem.hpp"
#include "cuda/hopper/kernels.hpp"

namespace lowbit::cuda {

enum class HopperFamily {
    bf16,
    fp16,
    int8,
    fp8,
    tiles_bf16,
    tiles_fp16,
    widened_bf16,
    widened_fp16,
    fp8_blocks,
    tiles_int8,
    tiles_int8_groups,
    tiles_fp8,
    tiles_fp8_groups,
    int8_uint8,
    int1
};

// Empty: it can.
std::string hopper_reason_against(HopperFamily family, const core::MatmulProblem& problem);
HopperKernels hopper_kernels_for(HopperFamily family, const core::MatmulProblem& problem);
HopperChoice hopper_choice(HopperFamily family, const core::MatmulProblem& problem);
// The first that can.
std::optional<HopperFamily> hopper_family(const core::MatmulProblem& problem);
// What so many tokens of a product take there, in clocks of a multiprocessor.
double hopper_cost(HopperFamily family, const core::MatmulProblem& problem, int64_t tokens);
int hopper_splits(HopperFamily family, const core::MatmulProblem& problem, int kernel);  // the best for one kernel
int64_t hopper_workspace(HopperFamily family, const core::MatmulProblem& problem);
void run_hopper(HopperFamily family, const core::MatmulProblem& problem, HopperChoice choice);

}  // namespace lowbit::cuda
