#include "cuda/formats/nibbles.cuh"
#include "cuda/gemm/launch_ampere.cuh"

namespace lowbit::cuda {

AmpereRunner tiles_fp16_runner(Element element) {
    using Mma = ptx::MmaFp16;
    switch (element) {
    case Element::int4:
    case Element::q4_0: return runner<Mma, TilesSource<SignedNibbles<Mma>>, Groups::rows>();
    case Element::uint4: return runner<Mma, TilesSource<UnsignedNibbles<Mma>>, Groups::rows>();
    case Element::fp4_e2m1: return runner<Mma, TilesSource<LevelNibbles<Mma, Element::fp4_e2m1>>, Groups::rows>();
    case Element::nf4: return runner<Mma, TilesSource<LevelNibbles<Mma, Element::nf4>>, Groups::rows>();
    default: return runner<Mma, TilesSource<LevelNibbles<Mma, Element::iq4_nl>>, Groups::rows>();
    }
}

}  // namespace lowbit::cuda
