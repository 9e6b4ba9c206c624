#include "cuda/hopper/launch.cuh"

namespace lowbit::cuda {

HopperKernels hopper_fp8_blocks(bool one_scale) { return one_scale ? TurnedKernels::all() : PromotedKernels<Fp8Blocks>::all(); }

namespace {

template <class Kind>
HopperKernels groups_kernels(Element scale) {
    if (scale == Element::fp32) return PromotedKernels<NibblesTimesBytes<Kind, true, TileScales::fp32>>::all();
    return scale == Element::fp16 || scale == Element::bf16 ? PromotedKernels<NibblesTimesBytes<Kind, true, TileScales::halves>>::all()
                                                            : HopperKernels{};
}

}  // namespace

HopperKernels hopper_tiles_int8() { return IntegerKernels<NibblesTimesBytes<ptx::WgmmaInt8, false, TileScales::halves>>::all(); }
HopperKernels hopper_tiles_int8_groups(Element scale) { return groups_kernels<ptx::WgmmaInt8>(scale); }
HopperKernels hopper_tiles_fp8() { return IntegerKernels<NibblesTimesBytes<ptx::WgmmaE4m3, false, TileScales::halves>>::all(); }
HopperKernels hopper_tiles_fp8_groups(Element scale) { return groups_kernels<ptx::WgmmaE4m3>(scale); }

}  // namespace lowbit::cuda
