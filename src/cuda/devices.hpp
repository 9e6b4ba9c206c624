// The GPUs of this machine. Compiles to a list of none, with the reason, in a build without CUDA.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lowbit::cuda {

struct DeviceInfo {
    std::string name;
    int major = 0, minor = 0;  // compute capability
    int multiprocessors = 0;
    int64_t memory_bytes = 0;
    int64_t l2_bytes = 0;
    int shared_bytes_per_block = 0;  // the most a block may ask for
};

struct DeviceList {
    std::vector<DeviceInfo> devices;
    std::string problem;                          // why the list is empty
    int driver_version = 0, runtime_version = 0;  // 13000 is 13.0
};

// Asked once.
const DeviceList& devices();

}  // namespace lowbit::cuda
