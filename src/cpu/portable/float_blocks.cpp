#include "cpu/portable/vectors.hpp"
#include "cpu/simd/block_products.hpp"

namespace lowbit::cpu {

BlockLoop<FloatTokens> portable_float_blocks(Element weight) { return block_loop<Portable, FloatUnit>(weight); }

}  // namespace lowbit::cpu
