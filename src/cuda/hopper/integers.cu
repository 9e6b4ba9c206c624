#include "cuda/hopper/launch.cuh"

namespace lowbit::cuda {

HopperKernels hopper_fp8_blocks(bool one_scale) { return one_scale ? TurnedKernels::all() : PromotedKernels<Fp8Blocks>::all(); }
HopperKernels hopper_tiles_int8() { return IntegerKernels<NibblesTimesInt8<false, TileScales::halves>>::all(); }
HopperKernels hopper_tiles_int8_groups(Element scale) {
    if (scale == Element::fp32) return PromotedKernels<NibblesTimesInt8<true, TileScales::fp32>>::all();
    return scale == Element::fp16 || scale == Element::bf16 ? PromotedKernels<NibblesTimesInt8<true, TileScales::halves>>::all()
                                                            : HopperKernels{};
}

}  // namespace lowbit::cuda
