#include "cuda/hopper/launch.cuh"

namespace lowbit::cuda {

HopperKernels hopper_tiles_fp16(Element element, int groups, Element scale) {
    return tiles_kernels<ptx::WgmmaFp16, ptx::MmaFp16>(element, groups, scale);
}

}  // namespace lowbit::cuda
