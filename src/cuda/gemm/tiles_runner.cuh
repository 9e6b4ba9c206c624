// Packed tiles of every kind of 4-bit code. A new kind is a decoder in formats/nibbles.cuh and a line here.
#pragma once
#include "cuda/formats/nibbles.cuh"
#include "cuda/gemm/launch_ampere.cuh"

namespace lowbit::cuda {

template <class Mma>
AmpereRunner tiles_runner(Element element) {
    switch (element) {
    case Element::int4:
    case Element::q4_0: return runner<Mma, TilesSource<SignedNibbles<Mma>>, Groups::rows>();
    case Element::uint4: return runner<Mma, TilesSource<UnsignedNibbles<Mma>>, Groups::rows>();
    case Element::fp4_e2m1: return runner<Mma, TilesSource<Fp4Nibbles<Mma>>, Groups::rows>();
    case Element::nf4: return runner<Mma, TilesSource<LevelNibbles<Mma, Element::nf4>>, Groups::rows>();
    default: return runner<Mma, TilesSource<LevelNibbles<Mma, Element::iq4_nl>>, Groups::rows>();
    }
}

}  // namespace lowbit::cuda
