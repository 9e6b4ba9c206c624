#include "cpu/avx2/vectors.hpp"
#include "cpu/simd/isa_of.hpp"

namespace lowbit::cpu {

const Isa& avx2_isa() {
    static constexpr Isa isa = isa_of<Avx2>("avx2", avx2_float_blocks, avx2_integer_blocks);
    return isa;
}

}  // namespace lowbit::cpu
