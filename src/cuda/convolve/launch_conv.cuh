// Kernels for tensor cores, by how those count.
#pragma once
#include <atomic>

#include "cuda/convolve/convolve.hpp"
#include "cuda/convolve/plan.hpp"
#include "cuda/convolve/tensor_conv.cuh"
#include "cuda/devices.hpp"
#include "cuda/launch.cuh"

namespace lowbit::cuda {

template <class Engine, int Outputs, ConvBits Bits>
void launch_tensor_conv(const core::BinaryConvProblem& problem, const ConvPlan& plan) {
    const auto kernel = tensor_conv<Engine, Outputs, Bits>;
    const int device = problem.context->device_index, shared_bytes = plan.args.at.total;
    // Asked for once per device, for the most a block may have.
    static std::atomic<uint64_t> ready{0};
    const uint64_t bit = uint64_t(1) << (device % 64);
    if (!(ready.load(std::memory_order_relaxed) & bit)) {
        const int most = devices().devices[size_t(device)].shared_bytes_per_block;
        check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most), "cudaFuncSetAttribute");
        ready.fetch_or(bit, std::memory_order_relaxed);
    }
    const dim3 blocks(unsigned(plan.columns), unsigned(plan.output_tiles), unsigned(problem.groups));
    kernel<<<blocks, unsigned(plan.args.groups * 128), size_t(shared_bytes), stream_of(*problem.context)>>>(plan.args);
    check_launch("tensor_conv");
}

template <class Engine, ConvBits Bits>
void launch_tensor_conv(const core::BinaryConvProblem& problem, const ConvPlan& plan) {
    if constexpr (Engine::most_outputs >= 128)
        if (plan.outputs == 128) return launch_tensor_conv<Engine, 128, Bits>(problem, plan);
    plan.outputs == 64 ? launch_tensor_conv<Engine, 64, Bits>(problem, plan) : launch_tensor_conv<Engine, 32, Bits>(problem, plan);
}

template <class Engine>
core::Kernel<core::BinaryConvProblem> tensor_conv_kernel(std::string name, std::string needs) {
    core::Kernel<core::BinaryConvProblem> kernel;
    kernel.name = std::move(name);
    kernel.needs = std::move(needs);
    kernel.supports = tensor_conv_reason_against;
    kernel.defers = tensor_conv_defers;
    kernel.run = [](const core::BinaryConvProblem& problem) {
        const ConvPlan plan = plan_tensor_conv(problem, Engine::most_outputs);
        if (plan.args.tiles == 0 || plan.output_tiles == 0 || problem.down.positions() == 0 || problem.across.positions() == 0) return;
        switch (plan.args.bits) {
        case ConvBits::cells: launch_tensor_conv<Engine, ConvBits::cells>(problem, plan); break;
        case ConvBits::folded: launch_tensor_conv<Engine, ConvBits::folded>(problem, plan); break;
        case ConvBits::any: launch_tensor_conv<Engine, ConvBits::any>(problem, plan); break;
        }
    };
    return kernel;
}

}  // namespace lowbit::cuda
