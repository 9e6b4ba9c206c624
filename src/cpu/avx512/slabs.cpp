#include "cpu/avx512/slab_sources.hpp"

namespace lowbit::cpu {
namespace {

template <class Codes, Extra extra>
BlockSlabs running(const CodedWeight& kind, bool one_scale) {
    const auto shares = [&](int64_t span) { return kind.group >= kind.columns || kind.group % span == 0; };
    if (one_scale && shares(128)) return BlockProduct<RunningSource<Codes, 128, extra>>::loop();
    if (shares(32)) return BlockProduct<RunningSource<Codes, 32, extra>>::loop();
    return BlockProduct<RunningSource<Codes, 16, extra>>::loop();
}

template <Element type, Extra extra, int32_t offset>
BlockSlabs small() {
    return BlockProduct<SmallSource<type, extra, offset>>::loop();
}

}  // namespace

BlockSlabs avx512_integer_slabs(const CodedWeight& kind, bool one_scale) {
    switch (kind.element) {
    case Element::int4: return running<Int4Codes, Extra::none>(kind, one_scale);
    case Element::uint4: return running<Uint4Codes, Extra::zeros>(kind, one_scale);
    case Element::fp4_e2m1: return running<Fp4Codes, Extra::none>(kind, one_scale);
    case Element::int8: return running<Int8Codes, Extra::none>(kind, one_scale);
    case Element::uint8: return running<Uint8Codes, Extra::zeros>(kind, one_scale);
    case Element::q4_0: return small<Element::q4_0, Extra::none, 8>();
    case Element::q4_1: return small<Element::q4_1, Extra::minimums, 0>();
    case Element::q5_0: return small<Element::q5_0, Extra::none, 16>();
    case Element::q5_1: return small<Element::q5_1, Extra::minimums, 0>();
    case Element::q8_0: return small<Element::q8_0, Extra::none, 128>();
    case Element::iq4_nl: return small<Element::iq4_nl, Extra::none, 128>();
    case Element::q2_k: return BlockProduct<SuperSource<Element::q2_k, 16, Extra::minimums, 0>>::loop();
    case Element::q3_k: return BlockProduct<SuperSource<Element::q3_k, 16, Extra::none, 4>>::loop();
    case Element::q4_k: return BlockProduct<SuperSource<Element::q4_k, 32, Extra::minimums, 0>>::loop();
    case Element::q5_k: return BlockProduct<SuperSource<Element::q5_k, 32, Extra::minimums, 0>>::loop();
    default: return BlockProduct<SuperSource<Element::q6_k, 16, Extra::none, 32>>::loop();
    }
}

ExactSlabs avx512_exact_slabs() { return ExactProduct<RunningSource<Int8Codes, slab_columns, Extra::exact>>::loop(); }

}  // namespace lowbit::cpu
