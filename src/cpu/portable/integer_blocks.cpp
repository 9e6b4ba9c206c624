#include "cpu/portable/vectors.hpp"
#include "cpu/simd/block_products.hpp"

namespace lowbit::cpu {

BlockLoop<BlockTokens> portable_integer_blocks(Element weight) { return block_loop<Portable, IntegerUnit>(weight); }

}  // namespace lowbit::cpu
