#include "cuda/decode/nibbles_launch.cuh"

namespace lowbit::cuda {

TilesLaunch nibbles_int8_launch(const core::Format& format, int segments) {
    switch (format.element) {
    case Element::int4:
    case Element::q4_0: return integers_launch<NibblesTimesInt8<true>>(segments, core::tile_scale_element(format));
    case Element::uint4: return integers_launch<NibblesTimesInt8<false>>(segments, core::tile_scale_element(format));
    default: return nullptr;
    }
}

}  // namespace lowbit::cuda
