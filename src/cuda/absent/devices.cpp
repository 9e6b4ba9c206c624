// Stands in for src/cuda in a build without nvcc.
#include "cuda/devices.hpp"

namespace lowbit::cuda {

DeviceList devices() {
    DeviceList list;
    list.problem = "this build of lowbit has no CUDA backend (nvcc was not found when it was configured)";
    return list;
}

}  // namespace lowbit::cuda
