// Rung 4: DP4A, the dot product of four bytes with four bytes as one instruction.
//
// Against rung 3 one line changes. The words are multiplied as they came from memory: nothing is cut out or widened, and one instruction
// does what took four multiply-adds. The number of loads stays the same, so they weigh four times as much as before; 8 x 8 numbers per
// thread were chosen in rung 3 to leave room for that.
//
// What holds it back: the instruction itself. A warp's DP4A makes 128 multiply-adds; this is all that the ordinary arithmetic units of the
// chip can do for bytes.
#pragma once
#include "3_vectors.cuh"

namespace ladder {

struct Dp4a {
    __device__ static int32_t add(int32_t sum, uint32_t a, uint32_t b) { return __dp4a(int32_t(a), int32_t(b), sum); }
};

inline constexpr Rung dp4a{"DP4A", 128, 128, tile_k,
                           [](const Product& p) { vectors_kernel<Dp4a><<<dim3(p.n / 128, p.m / 128), 256>>>(p); }};

}  // namespace ladder
