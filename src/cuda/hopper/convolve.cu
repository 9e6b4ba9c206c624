// The convolution of signs with the warpgroup's products.
#include "cuda/convolve/launch_conv.cuh"

namespace lowbit::cuda {

void add_hopper_conv(core::Registry& registry) {
    core::Kernel<core::BinaryConvProblem> kernel = tensor_conv_kernel<ConvWgmma>("hopper_conv", "compute capability 9.0");
    kernel.supports = [](const core::BinaryConvProblem& problem) -> std::string {
#ifndef LOWBIT_HAS_SM90A
        return "this build has no code for compute capability 9.0a";
#endif
        if (devices().devices[size_t(problem.context->device_index)].major != 9) return "for compute capability 9.0";
        return tensor_conv_reason_against(problem);
    };
    registry.binary_conv.add(std::move(kernel));
}

}  // namespace lowbit::cuda
