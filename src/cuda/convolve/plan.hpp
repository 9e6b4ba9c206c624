// From a convolution to the arguments of the kernel for tensor cores.
#pragma once
#include <string>

#include "cuda/convolve/args.cuh"

namespace lowbit::cuda {

// Empty: the kernel can run it on this device.
std::string tensor_conv_reason_against(const core::BinaryConvProblem& problem);
// Groups of so few outputs that a tile would be nearly empty.
std::string tensor_conv_defers(const core::BinaryConvProblem& problem);

struct ConvPlan {
    TensorConvArgs args;
    int outputs;                // of a tile: 32, 64 or 128
    int output_tiles, columns;  // of the grid: blocks that share the position tiles of an output tile
};
ConvPlan plan_tensor_conv(const core::BinaryConvProblem& problem, int most_outputs);

}  // namespace lowbit::cuda
