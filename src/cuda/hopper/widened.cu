#include "cuda/hopper/launch.cuh"

namespace lowbit::cuda {
namespace {

template <class Kind, class Mma>
HopperKernels widened(Element element) {
    switch (element) {
    case Element::int8: return WidenedKernels<WidenedRows<Kind, Mma, Element::int8>>::all();
    case Element::fp8_e4m3: return WidenedKernels<WidenedRows<Kind, Mma, Element::fp8_e4m3>>::all();
    default: return {};
    }
}

}  // namespace

HopperKernels hopper_widened_bf16(Element element) { return widened<ptx::WgmmaBf16, ptx::MmaBf16>(element); }
HopperKernels hopper_widened_fp16(Element element) { return widened<ptx::WgmmaFp16, ptx::MmaFp16>(element); }

}  // namespace lowbit::cuda
