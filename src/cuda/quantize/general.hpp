// The kernels that take every format, shape and stride.
#pragma once
#include "core/problem.hpp"

namespace lowbit::cuda {

// Bytes of problem.scratch that the statistics of a whole tensor take; 0 where the format needs none.
int64_t tensor_statistics_bytes(const core::QuantizeProblem& problem);
// Stores the scale of the tensor (its only one, or the one that e4m3 scales count in), where the format needs one computed.
void run_tensor_statistics(const core::QuantizeProblem& problem);

void run_quantize(const core::QuantizeProblem& problem);
void run_dequantize(const core::DequantizeProblem& problem);

}  // namespace lowbit::cuda
