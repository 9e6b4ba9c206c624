// Which instantiation takes a weight of 4-bit tiles. Included by the files that instantiate it, one per type of tokens.
#pragma once
#include "cuda/decode/launch.cuh"
#include "cuda/decode/nibble_tiles.cuh"

namespace lowbit::cuda {

using NibblesLaunch = void (*)(DecodeArgs, const NibbleTilesArgs&, int64_t columns, const core::Context&);

// Null: no kernel for these groups and scales.
template <class Mma>
NibblesLaunch nibbles_launch(const core::Format& format, int segments) {
    constexpr DecodeScales halves = DecodeScales::halves, others = DecodeScales::others;
    const Element scale = core::tile_scale_element(format);
    const bool narrow = scale == Element::fp16 || scale == Element::bf16;
    switch (format.element) {
    case Element::int4:
    case Element::q4_0: {
        using Source = IntegerNibbles<Mma, true>;
        if (!narrow) return segments == 1 ? launch_decode_source<Source, 1, others> : nullptr;
        if (segments == 1) return launch_decode_source<Source, 1, halves>;
        if (segments == 2) return launch_decode_source<Source, 2, halves>;
        return segments == 4 ? launch_decode_source<Source, 4, halves> : nullptr;
    }
    case Element::uint4: {
        using Source = IntegerNibbles<Mma, false>;
        if (!narrow) return segments == 1 ? launch_decode_source<Source, 1, others> : nullptr;
        if (segments == 1) return launch_decode_source<Source, 1, halves>;
        if (segments == 2) return launch_decode_source<Source, 2, halves>;
        return segments == 4 ? launch_decode_source<Source, 4, halves> : nullptr;
    }
    case Element::fp4_e2m1: {
        using Source = LevelTiles<Mma, Element::fp4_e2m1>;
        if (segments == 8) return launch_decode_source<Source, 8, others>;
        return segments == 4 && !narrow ? launch_decode_source<Source, 4, others> : nullptr;
    }
    case Element::nf4: {
        using Source = LevelTiles<Mma, Element::nf4>;
        if (!narrow) return segments == 1 ? launch_decode_source<Source, 1, others> : nullptr;
        return segments == 2 ? launch_decode_source<Source, 2, halves> : nullptr;
    }
    case Element::iq4_nl: return segments == 4 ? launch_decode_source<LevelTiles<Mma, Element::iq4_nl>, 4, halves> : nullptr;
    default: return nullptr;
    }
}

NibblesLaunch nibbles_bf16_launch(const core::Format& format, int segments);
NibblesLaunch nibbles_fp16_launch(const core::Format& format, int segments);
NibblesLaunch nibbles_int8_launch(const core::Format& format, int segments);  // x int8 or q8_1

}  // namespace lowbit::cuda
