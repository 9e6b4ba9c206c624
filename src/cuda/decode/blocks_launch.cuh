// Which instantiation takes a weight of GGML tiles. Included by the files that instantiate it, one per type of tokens.
#pragma once
#include "cuda/decode/block_tiles.cuh"
#include "cuda/decode/launch.cuh"

namespace lowbit::cuda {

template <template <Element> class Source, Element E>
constexpr TilesLaunch block_launch = launch_decode_source<Source<E>, BlockTerms<E>::segments, DecodeScales::blocks>;

template <template <Element> class Source>
TilesLaunch blocks_launch(Element element) {
    switch (element) {
    case Element::q8_0: return block_launch<Source, Element::q8_0>;
    case Element::q4_1: return block_launch<Source, Element::q4_1>;
    case Element::q5_0: return block_launch<Source, Element::q5_0>;
    case Element::q5_1: return block_launch<Source, Element::q5_1>;
    case Element::q2_k: return block_launch<Source, Element::q2_k>;
    case Element::q3_k: return block_launch<Source, Element::q3_k>;
    case Element::q4_k: return block_launch<Source, Element::q4_k>;
    case Element::q5_k: return block_launch<Source, Element::q5_k>;
    case Element::q6_k: return block_launch<Source, Element::q6_k>;
    default: return nullptr;
    }
}

}  // namespace lowbit::cuda
