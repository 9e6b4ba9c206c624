#include "cuda/hopper/launch.cuh"

namespace lowbit::cuda {

HopperKernels hopper_bf16() { return RowsKernels<PlainRows<ptx::WgmmaBf16>>::all(); }
HopperKernels hopper_fp16() { return RowsKernels<PlainRows<ptx::WgmmaFp16>>::all(); }

}  // namespace lowbit::cuda
