// Tokens of 8 bits in the order in which tiles are multiplied (nibble_tiles.cuh, block_tiles.cuh): units of 128 codes, and behind those of
// all tokens 32 bytes of terms for each, a scale and the sum of the codes for each of its segments (decode/tokens.cuh).
#pragma once
#include "core/ggml_blocks.hpp"
#include "cuda/decode/config.cuh"
#include "cuda/formats/load_bytes.cuh"
#include "cuda/formats/planes.cuh"
#include "cuda/numbers.cuh"
#include "cuda/ptx/async_copy.cuh"

namespace lowbit::cuda {

struct IntegerTokens {
    const uint8_t* codes = nullptr;
    int64_t row_bytes = 0, columns = 0;
    bool blocks = false;  // q8_1; otherwise rows of int8, whose scale is the epilogue's
    int segments = 1;     // of 128: 1 or 4 (2 where groups have 64, 8 where they have 16)
    int units = 0, tokens = 0;
    uint8_t *to = nullptr, *terms = nullptr;
};

// A thread takes 32 codes, a quarter of a unit; the four of a unit are neighbours.
static __global__ void order_integer_tokens(IntegerTokens x) {
    const int index = blockIdx.x * blockDim.x + threadIdx.x, count = x.tokens * x.units * 4;
    const int unit = index / 4, quarter = index % 4, token = unit / x.units, column = (unit - token * x.units) * 128 + quarter * 32;
    uint32_t words[8] = {};
    uint32_t scale = 0x3c00;  // fp16
    ptx::let_dependents_begin();
    // The codes may be the result of the launch before, and its tokens, in the place of these, may still be read.
    ptx::wait_for_previous_launch();
    if (index < count && column < x.columns) {
        const uint8_t* row = x.codes + token * x.row_bytes;
        const uint8_t* from = row + (x.blocks ? column / 32 * 36 : column);
        if (x.blocks) {
            scale = uint32_t(from[0] | from[1] << 8);
            from += 4;
        }
        const int valid = int(smaller(x.columns - column, 32));
        if (valid == 32 && reinterpret_cast<uintptr_t>(from) % 4 == 0) {
#pragma unroll
            for (int i = 0; i < 8; ++i) words[i] = reinterpret_cast<const uint32_t*>(from)[i];
        } else {
            for (int i = 0; i < valid; ++i) words[i / 4] |= uint32_t(from[i]) << (i % 4 * 8);
        }
    }
    int sums[2] = {};  // of 16 codes each
#pragma unroll
    for (int i = 0; i < 8; ++i) sums[i / 4] = __dp4a(int(words[i]), 0x01010101, sums[i / 4]);
    int sum = sums[0] + sums[1];
    // One segment has the sum of all four quarters, two of two.
    for (int distance = 1; distance < 4 / x.segments; distance *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (index >= count) return;
    uint8_t *to = x.to + int64_t(unit) * 128, *terms = x.terms + int64_t(unit) * token_term_bytes;
    // Columns 16 w + 2 t, 2 t + 8, 2 t + 1, 2 t + 9 of a half of the unit become word w of run t.
#pragma unroll
    for (int w = 0; w < 2; ++w)
#pragma unroll
        for (int t = 0; t < 4; ++t) {
            const uint32_t low = words[4 * w + t / 2] >> (t % 2 * 16), high = words[4 * w + 2 + t / 2] >> (t % 2 * 16);
            const uint32_t word = __byte_perm(low, high, 0x5140);
            *reinterpret_cast<uint32_t*>(to + quarter / 2 * 64 + t * 16 + (quarter % 2 * 2 + w) * 4) = word;
        }
    if (x.segments == 8) {
        *reinterpret_cast<uint2*>(terms + quarter * 8) = make_uint2(scale | uint32_t(sums[0]) << 16, scale | uint32_t(sums[1]) << 16);
        return;
    }
    const int per_segment = 4 / x.segments;
    if (quarter % per_segment == 0)
        *reinterpret_cast<uint2*>(terms + quarter / per_segment * 8) =
            make_uint2(__float_as_uint(half_to_float(uint16_t(scale))), uint32_t(sum));
}

}  // namespace lowbit::cuda
