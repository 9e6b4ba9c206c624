#include "cuda/formats/nibbles.cuh"
#include "cuda/gemm/launch_ampere.cuh"

namespace lowbit::cuda {

AmpereRunner tiles_fp16_runner(Element element) {
    using Mma = ptx::MmaFp16;
    switch (element) {
    case Element::int4:
    case Element::q4_0: return runner<Mma, TilesSource<SignedNibbles<Mma>>, true>();
    case Element::uint4: return runner<Mma, TilesSource<UnsignedNibbles<Mma>>, true>();
    case Element::fp4_e2m1: return runner<Mma, TilesSource<LevelNibbles<Mma, Element::fp4_e2m1>>, true>();
    case Element::nf4: return runner<Mma, TilesSource<LevelNibbles<Mma, Element::nf4>>, true>();
    default: return runner<Mma, TilesSource<LevelNibbles<Mma, Element::iq4_nl>>, true>();
    }
}

}  // namespace lowbit::cuda
