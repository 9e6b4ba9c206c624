#include "cuda/hopper/launch.cuh"

namespace lowbit::cuda {

HopperKernels hopper_int8() { return RowsKernels<PlainRows<ptx::WgmmaInt8>>::all(); }
HopperKernels hopper_int8_uint8() { return RowsKernels<PlainRows<ptx::WgmmaInt8Uint8>>::all(); }
HopperKernels hopper_int1() { return RowsKernels<PlainRows<ptx::WgmmaInt1>>::all(); }
HopperKernels hopper_fp8(Element weight, Element tokens) {
    if (weight == Element::fp8_e4m3)
        return tokens == Element::fp8_e4m3 ? RowsKernels<PlainRows<ptx::WgmmaE4m3>>::all()
                                           : SomeRowsKernels<PlainRows<ptx::WgmmaE4m3E5m2>>::all();
    return tokens == Element::fp8_e4m3 ? SomeRowsKernels<PlainRows<ptx::WgmmaE5m2E4m3>>::all()
                                       : SomeRowsKernels<PlainRows<ptx::WgmmaE5m2>>::all();
}

}  // namespace lowbit::cuda
