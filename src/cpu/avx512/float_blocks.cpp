#include "cpu/avx512/vectors.hpp"
#include "cpu/simd/block_products.hpp"

namespace lowbit::cpu {

BlockLoop<FloatTokens> avx512_float_blocks(Element weight) { return block_loop<Avx512, FloatUnit>(weight); }

}  // namespace lowbit::cpu
