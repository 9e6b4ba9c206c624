#include "cuda/devices.hpp"

#include <cuda_runtime.h>

namespace lowbit::cuda {
namespace {

// The error of one query must not stay behind as the sticky error of the caller's next one.
std::string text(cudaError_t error) {
    cudaGetLastError();
    return cudaGetErrorString(error);
}

int attribute(cudaDeviceAttr which, int device) {
    int value = 0;
    cudaDeviceGetAttribute(&value, which, device);
    return value;
}

DeviceList find_devices() {
    DeviceList list;
    cudaDriverGetVersion(&list.driver_version);
    cudaRuntimeGetVersion(&list.runtime_version);
    int count = 0;
    if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
        list.problem = "no CUDA device: " + text(error);
        return list;
    }
    if (count == 0) list.problem = "no CUDA device on this machine";
    for (int device = 0; device < count; ++device) {
        cudaDeviceProp properties{};
        if (const cudaError_t error = cudaGetDeviceProperties(&properties, device); error != cudaSuccess) {
            list.devices.clear();
            list.problem = "CUDA device " + std::to_string(device) + ": " + text(error);
            return list;
        }
        list.devices.push_back({properties.name, properties.major, properties.minor, properties.multiProcessorCount,
                                int64_t(properties.totalGlobalMem), properties.l2CacheSize,
                                attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device)});
    }
    return list;
}

}  // namespace

const DeviceList& devices() {
    static const DeviceList list = find_devices();
    return list;
}

}  // namespace lowbit::cuda
