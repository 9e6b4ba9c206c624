#include "cuda/hopper/launch.cuh"

namespace lowbit::cuda {

HopperKernels hopper_tiles_bf16(Element element, int groups, Element scale) {
    return tiles_kernels<ptx::WgmmaBf16, ptx::MmaBf16>(element, groups, scale);
}

}  // namespace lowbit::cuda
