#include "cpu/avx2/vectors.hpp"
#include "cpu/simd/block_products.hpp"

namespace lowbit::cpu {

BlockLoop<FloatTokens> avx2_float_blocks(Element weight) { return block_loop<Avx2, FloatUnit>(weight); }

}  // namespace lowbit::cpu
