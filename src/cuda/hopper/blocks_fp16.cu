#include "cuda/hopper/block_tiles.cuh"

namespace lowbit::cuda {

HopperKernels hopper_blocks_fp16(Element element) { return blocks_kernels<ptx::WgmmaFp16, ptx::MmaFp16>(element); }

}  // namespace lowbit::cuda
