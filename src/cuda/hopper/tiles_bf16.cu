#include "cuda/hopper/launch.cuh"

namespace lowbit::cuda {

HopperKernels hopper_tiles_bf16(Element element, bool short_groups) {
    return tiles_kernels<ptx::WgmmaBf16, ptx::MmaBf16>(element, short_groups);
}

}  // namespace lowbit::cuda
