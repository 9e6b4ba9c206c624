#include "cuda/kernels.hpp"

#include "cuda/convolve/convolve.hpp"
#include "cuda/devices.hpp"
#include "cuda/gemm/gemm.hpp"
#include "cuda/launch.cuh"
#include "cuda/quantize/quantize.hpp"

namespace lowbit::cuda {
namespace {

// What holds for every CUDA kernel: it needs a device, and runs with its context's device current.
template <class Problem>
void take_over(const core::KernelList<Problem>& from, const std::string& unavailable, core::KernelList<Problem>& to) {
    for (core::Kernel<Problem> kernel : from.kernels()) {
        kernel.device = Device::cuda;
        if (kernel.unavailable.empty()) kernel.unavailable = unavailable;
        kernel.run = [run = std::move(kernel.run)](const Problem& problem) {
            const DeviceScope scope(problem.context->device_index);
            run(problem);
        };
        to.add(std::move(kernel));
    }
}

}  // namespace

void register_kernels(core::Registry& registry) {
    core::Registry made;
    register_quantize_kernels(made);
    register_matmul_kernels(made);
    register_convolution_kernels(made);
    const std::string unavailable = devices().problem;
    take_over(made.quantize, unavailable, registry.quantize);
    take_over(made.dequantize, unavailable, registry.dequantize);
    take_over(made.convert, unavailable, registry.convert);
    take_over(made.matmul, unavailable, registry.matmul);
    take_over(made.sign_bits, unavailable, registry.sign_bits);
    take_over(made.binary_conv, unavailable, registry.binary_conv);
}

}  // namespace lowbit::cuda
