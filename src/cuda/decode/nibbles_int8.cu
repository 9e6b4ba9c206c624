#include "cuda/decode/nibbles_launch.cuh"

namespace lowbit::cuda {
namespace {

template <class Source>
NibblesLaunch launch_of(int segments) {
    constexpr DecodeScales halves = DecodeScales::halves;
    switch (segments) {
    case 1: return launch_decode_source<Source, 1, halves>;
    case 2: return launch_decode_source<Source, 2, halves>;
    case 4: return launch_decode_source<Source, 4, halves>;
    default: return nullptr;
    }
}

}  // namespace

NibblesLaunch nibbles_int8_launch(const core::Format& format, int segments) {
    const Element scale = core::tile_scale_element(format);
    if (scale != Element::fp16 && scale != Element::bf16) {
        if (segments != 1) return nullptr;
        if (format.element == Element::int4) return launch_decode_source<NibblesTimesInt8<true>, 1, DecodeScales::others>;
        return format.element == Element::uint4 ? launch_decode_source<NibblesTimesInt8<false>, 1, DecodeScales::others> : nullptr;
    }
    if (format.element == Element::int4 || format.element == Element::q4_0) return launch_of<NibblesTimesInt8<true>>(segments);
    return format.element == Element::uint4 ? launch_of<NibblesTimesInt8<false>>(segments) : nullptr;
}

}  // namespace lowbit::cuda
