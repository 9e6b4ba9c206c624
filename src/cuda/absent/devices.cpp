// Stands in for src/cuda in a build without nvcc.
#include "cuda/devices.hpp"

namespace lowbit::cuda {

const DeviceList& devices() {
    static const DeviceList list = [] {
        DeviceList none;
        none.problem = "this build of lowbit has no CUDA backend (nvcc was not found when it was configured)";
        return none;
    }();
    return list;
}

}  // namespace lowbit::cuda
