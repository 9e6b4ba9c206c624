#include "cpu/avx512/slab_sources.hpp"

namespace lowbit::cpu {

BlockSlabs avx512_integer_slabs(const CodedWeight& kind, bool one_scale) {
    return with_source(kind, one_scale, []<class Source>() { return BlockProduct<Source>::loop(); });
}

ExactSlabs avx512_exact_slabs() { return ExactProduct<RunningSource<Int8Codes, slab_columns, Extra::exact>>::loop(); }

}  // namespace lowbit::cpu
