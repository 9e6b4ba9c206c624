#include "cpu/avx2/vectors.hpp"
#include "cpu/simd/block_products.hpp"

namespace lowbit::cpu {

BlockLoop<BlockTokens> avx2_integer_blocks(Element weight) { return block_loop<Avx2, IntegerUnit>(weight); }

}  // namespace lowbit::cpu
