#include "cuda/hopper/block_tiles.cuh"

namespace lowbit::cuda {

HopperKernels hopper_blocks_bf16(Element element) { return blocks_kernels<ptx::WgmmaBf16, ptx::MmaBf16>(element); }

}  // namespace lowbit::cuda
