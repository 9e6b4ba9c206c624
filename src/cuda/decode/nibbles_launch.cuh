// Which instantiation takes a weight of 4-bit tiles. Included by the files that instantiate it, one per type of tokens.
#pragma once
#include "cuda/decode/launch.cuh"
#include "cuda/decode/nibble_tiles.cuh"

namespace lowbit::cuda {

inline bool is_half(Element scale) { return scale == Element::fp16 || scale == Element::bf16; }

template <class Source>
TilesLaunch integers_launch(int segments, Element scale) {
    constexpr DecodeScales halves = DecodeScales::halves;
    if (scale == Element::fp32) return segments == 1 ? launch_decode_source<Source, 1, DecodeScales::fp32> : nullptr;
    if (!is_half(scale)) return nullptr;
    switch (segments) {
    case 1: return launch_decode_source<Source, 1, halves>;
    case 2: return launch_decode_source<Source, 2, halves>;
    case 4: return launch_decode_source<Source, 4, halves>;
    default: return nullptr;
    }
}

template <class Mma>
TilesLaunch nibbles_launch(const core::Format& format, int segments) {
    constexpr DecodeScales halves = DecodeScales::halves;
    const Element scale = core::tile_scale_element(format);
    switch (format.element) {
    case Element::int4:
    case Element::q4_0: return integers_launch<IntegerNibbles<Mma, true>>(segments, scale);
    case Element::uint4: return integers_launch<IntegerNibbles<Mma, false>>(segments, scale);
    case Element::fp4_e2m1: {
        using Source = std::conditional_t<SmallNumbers<Mma>::possible, ScaledFp4, Fp4TimesHalf>;
        if (segments == 8 && scale == Element::fp8_e4m3) return launch_decode_source<Source, 8, DecodeScales::e4m3>;
        return segments == 4 && scale == Element::e8m0 ? launch_decode_source<Source, 4, DecodeScales::e8m0> : nullptr;
    }
    case Element::nf4: {
        using Source = LevelTiles<Mma, Element::nf4>;
        if (scale == Element::fp32) return segments == 1 ? launch_decode_source<Source, 1, DecodeScales::fp32> : nullptr;
        return segments == 2 && is_half(scale) ? launch_decode_source<Source, 2, halves> : nullptr;
    }
    case Element::iq4_nl: return segments == 4 ? launch_decode_source<LevelTiles<Mma, Element::iq4_nl>, 4, halves> : nullptr;
    default: return nullptr;
    }
}

}  // namespace lowbit::cuda
