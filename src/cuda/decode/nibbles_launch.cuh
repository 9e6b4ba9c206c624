// Which instantiation takes a weight of 4-bit tiles. Included by the files that instantiate it, one per type of tokens.
#pragma once
#include "cuda/decode/launch.cuh"
#include "cuda/decode/nibble_tiles.cuh"

namespace lowbit::cuda {

template <class Source>
TilesLaunch integers_launch(int segments, bool narrow) {
    constexpr DecodeScales halves = DecodeScales::halves;
    if (!narrow) return segments == 1 ? launch_decode_source<Source, 1, DecodeScales::others> : nullptr;
    switch (segments) {
    case 1: return launch_decode_source<Source, 1, halves>;
    case 2: return launch_decode_source<Source, 2, halves>;
    case 4: return launch_decode_source<Source, 4, halves>;
    default: return nullptr;
    }
}

inline bool has_narrow_scales(const core::Format& format) {
    const Element scale = core::tile_scale_element(format);
    return scale == Element::fp16 || scale == Element::bf16;
}

template <class Mma>
TilesLaunch nibbles_launch(const core::Format& format, int segments) {
    constexpr DecodeScales halves = DecodeScales::halves, others = DecodeScales::others;
    const bool narrow = has_narrow_scales(format);
    switch (format.element) {
    case Element::int4:
    case Element::q4_0: return integers_launch<IntegerNibbles<Mma, true>>(segments, narrow);
    case Element::uint4: return integers_launch<IntegerNibbles<Mma, false>>(segments, narrow);
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

}  // namespace lowbit::cuda
