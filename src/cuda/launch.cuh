// How host code of this folder talks to the CUDA runtime.
#pragma once
#include <cuda_runtime.h>

#include <type_traits>

#include "core/context.hpp"
#include "core/status.hpp"

namespace lowbit::cuda {

// A refusal of the runtime becomes a Failure; the runtime's own record of it is cleared.
inline void check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return;
    cudaGetLastError();
    core::fail(error == cudaErrorMemoryAllocation ? Status::out_of_memory : Status::device_error, what, ": ", cudaGetErrorString(error));
}

inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

inline cudaStream_t stream_of(const core::Context& context) { return static_cast<cudaStream_t>(context.stream); }

// Makes a device current for a scope.
class DeviceScope {
public:
    explicit DeviceScope(int device) {
        check(cudaGetDevice(&previous_), "cudaGetDevice");
        if (previous_ != device) check(cudaSetDevice(device), "cudaSetDevice");
        changed_ = previous_ != device;
    }
    ~DeviceScope() {
        if (changed_) cudaSetDevice(previous_);
    }
    DeviceScope(const DeviceScope&) = delete;
    DeviceScope& operator=(const DeviceScope&) = delete;

private:
    int previous_ = 0;
    bool changed_ = false;
};

// What a kernel is launched with.
struct LaunchSize {
    unsigned blocks, threads;
    size_t shared_bytes;
    unsigned cluster = 1;  // blocks that run side by side and reach each other's shared memory
    bool early = false;    // begins early whatever the context says
};

// A kernel that waits for the one before it by itself (ptx::wait_for_previous_launch): it begins early where the context asks for that.
template <class... Parameters>
void launch_in_chain(const core::Context& context, const char* name, void (*kernel)(Parameters...), const LaunchSize& size,
                     const std::type_identity_t<Parameters>&... parameters) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(size.blocks);
    config.blockDim = dim3(size.threads);
    config.dynamicSmemBytes = size.shared_bytes;
    config.stream = stream_of(context);
    cudaLaunchAttribute attributes[2]{};
    config.attrs = attributes;
    if (context.dependent_launch || size.early) {
        cudaLaunchAttribute& early = attributes[config.numAttrs++];
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
    }
    if (size.cluster > 1) {
        cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
        cluster.id = cudaLaunchAttributeClusterDimension;
        cluster.val.clusterDim.x = size.cluster, cluster.val.clusterDim.y = 1, cluster.val.clusterDim.z = 1;
    }
    check(cudaLaunchKernelEx(&config, kernel, parameters...), name);
}

// Blocks for `count` items, `per_block` each. A grid's first dimension is the only one that may pass 65,535.
inline unsigned blocks_for(int64_t count, int64_t per_block) { return unsigned(core::ceil_div(count, per_block)); }

}  // namespace lowbit::cuda
