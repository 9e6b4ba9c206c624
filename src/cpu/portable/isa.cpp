#include "cpu/portable/vectors.hpp"
#include "cpu/simd/isa_of.hpp"

namespace lowbit::cpu {

const Isa& portable_isa() {
    static constexpr Isa isa = isa_of<Portable>("portable", portable_float_blocks, portable_integer_blocks);
    return isa;
}

}  // namespace lowbit::cpu
