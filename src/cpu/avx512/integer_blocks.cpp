#include "cpu/avx512/vectors.hpp"
#include "cpu/simd/block_products.hpp"

namespace lowbit::cpu {

BlockLoop<BlockTokens> avx512_integer_blocks(Element weight) { return block_loop<Avx512, IntegerUnit>(weight); }

}  // namespace lowbit::cpu
