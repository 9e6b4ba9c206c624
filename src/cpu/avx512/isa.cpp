#include "cpu/avx512/vectors.hpp"
#include "cpu/simd/isa_of.hpp"

namespace lowbit::cpu {

const Isa& avx512_isa() {
    static constexpr Isa isa = [] {
        Isa made = isa_of<Avx512>("avx512", avx512_float_blocks, avx512_integer_blocks);
        made.integer_slabs = avx512_integer_slabs;
        made.exact_slabs = avx512_exact_slabs;
        made.float_slabs = avx512_float_slabs;
        return made;
    }();
    return isa;
}

}  // namespace lowbit::cpu
