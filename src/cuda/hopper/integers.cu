#include "cuda/hopper/launch.cuh"

namespace lowbit::cuda {

// Here and not beside the others, which are templates: a list that is none is compiled wherever it stands.
//
// With the tokens as the 64-row operand there is room for the sums of more of them. Between the products of a warpgroup and its next ones,
// while it adds up, the tensor core has only the others': three keep it busier than two.
struct TurnedKernels {
    struct Large {
        using Source = TurnedFp8Blocks;
        static constexpr HopperTile tile = make_tile<Source, 128, 256>(1, 2);
        static constexpr double clocks = 1300;
    };
    struct Square {
        using Source = TurnedFp8Blocks;
        static constexpr HopperTile tile = make_tile<Source, 128, 128>(1, 2);
        static constexpr double clocks = 770;
    };
    struct Three {
        using Source = TurnedFp8Blocks;
        static constexpr HopperTile tile = make_tile<Source, 128, 192>(1, 2, false, 3);
        static constexpr double clocks = 885;
    };
    static HopperKernels all() {
        static const HopperKernel kernels[] = {hopper_kernel<Square>(), hopper_kernel<PromotedKernels<Fp8Blocks>::Few>(),
                                               hopper_kernel<Large>(), hopper_kernel<Three>()};
        return kernels;
    }
};

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
