#include "cuda/hopper/launch.cuh"

namespace lowbit::cuda {

HopperKernels hopper_tiles_fp16(Element element, bool short_groups) {
    return tiles_kernels<ptx::WgmmaFp16, ptx::MmaFp16>(element, short_groups);
}

}  // namespace lowbit::cuda
