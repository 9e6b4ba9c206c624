#include "cuda/hopper/launch.cuh"

namespace lowbit::cuda {

HopperKernels hopper_int8() { return RowsKernels<PlainRows<ptx::WgmmaInt8>>::all(); }
HopperKernels hopper_int8_uint8() { return RowsKernels<PlainRows<ptx::WgmmaInt8Uint8>>::all(); }
HopperKernels hopper_int1() { return RowsKernels<PlainRows<ptx::WgmmaInt1>>::all(); }
HopperKernels hopper_fp8() { return RowsKernels<PlainRows<ptx::WgmmaE4m3>>::all(); }

}  // namespace lowbit::cuda
