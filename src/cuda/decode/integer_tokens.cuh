// Tokens of 8 bits in the order in which tiles are multiplied (nibble_tiles.cuh, block_tiles.cuh): units of 128 codes, and for each 32
// bytes of terms, a scale and the sum of the codes for each of its segments (decode/tokens.cuh). Where those of all of K find room in
// shared memory, every block orders them for itself; elsewhere a launch before does.
#pragma once
#include "core/ggml_blocks.hpp"
#include "cuda/decode/config.cuh"
#include "cuda/formats/load_bytes.cuh"
#include "cuda/formats/planes.cuh"
#include "cuda/launch.cuh"
#include "cuda/numbers.cuh"

namespace lowbit::cuda {

// 32 codes, a quarter of a unit, as they are given.
struct QuarterCodes {
    int token = 0, unit = 0, quarter = 0;
    uint32_t words[8] = {};
    uint32_t scale = 0x3c00;  // fp16

    // `Words`: the codes are whole words, and 32 of them or none.
    template <bool Words>
    __device__ void load(const IntegerTokens& x, int index) {
        const int place = index / 4;
        token = place / x.units, unit = place - token * x.units, quarter = index % 4;
        const int column = unit * 128 + quarter * 32;
        scale = 0x3c00;
#pragma unroll
        for (int i = 0; i < 8; ++i) words[i] = 0;
        if (token >= x.tokens || column >= x.columns) return;
        const uint8_t* from = x.codes + token * x.row_bytes + (x.blocks ? column / 32 * 36 : column);
        if (x.blocks) {
            scale = Words ? *reinterpret_cast<const uint32_t*>(from) & 0xffffu : uint32_t(from[0] | from[1] << 8);
            from += 4;
        }
        const int valid = int(smaller(x.columns - column, 32));
        if (Words || (valid == 32 && reinterpret_cast<uintptr_t>(from) % 4 == 0)) {
#pragma unroll
            for (int i = 0; i < 8; ++i) words[i] = reinterpret_cast<const uint32_t*>(from)[i];
        } else {
            for (int i = 0; i < valid; ++i) words[i / 4] |= uint32_t(from[i]) << (i % 4 * 8);
        }
    }
};

// What a thread makes of them; the four of a unit are neighbours. A whole warp at a time.
struct OrderedQuarter : QuarterCodes {
    uint2 terms;
    int terms_at = -1;  // in the terms of the unit; negative: another quarter has them

    __device__ OrderedQuarter(const QuarterCodes& codes, int segments) : QuarterCodes(codes) {
        int sums[2] = {};  // of 16 codes each
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[i / 4] = __dp4a(int(words[i]), 0x01010101, sums[i / 4]);
        int sum = sums[0] + sums[1];
        // One segment has the sum of all four quarters, two of two.
        for (int distance = 1; distance < 4 / segments; distance *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
        const int per_segment = segments == 8 ? 1 : 4 / segments;
        if (quarter % per_segment == 0) terms_at = quarter / per_segment * 8;
        terms = segments == 8 ? make_uint2(scale | uint32_t(sums[0]) << 16, scale | uint32_t(sums[1]) << 16)
                              : make_uint2(__float_as_uint(half_to_float(uint16_t(scale))), uint32_t(sum));
    }
    // Columns 16 w + 2 t, 2 t + 8, 2 t + 1, 2 t + 9 of a half of the unit become word w of run t: both words of this quarter.
    __device__ uint2 run(int t) const {
        uint32_t both[2];
#pragma unroll
        for (int w = 0; w < 2; ++w) {
            const uint32_t low = words[4 * w + t / 2] >> (t % 2 * 16), high = words[4 * w + 2 + t / 2] >> (t % 2 * 16);
            both[w] = __byte_perm(low, high, 0x5140);
        }
        return make_uint2(both[0], both[1]);
    }
    // And where they stand in the unit.
    __device__ int run_at(int t) const { return quarter / 2 * 64 + t * 16 + quarter % 2 * 8; }
};

// Whether blocks may order them: that takes longer than a launch before where there are many.
inline bool can_order_in_block(const IntegerTokens& x) {
    constexpr int most_units = 255;
    return x.tokens * x.units <= most_units && x.columns % 32 == 0 && x.row_bytes % 4 == 0 && reinterpret_cast<uintptr_t>(x.codes) % 4 == 0;
}

// Into a phase buffer that has room for all of K (decode/tokens.cuh draws it), by `threads` threads of a block in whole warps. `codes`: the
// first of this thread, loaded already.
__device__ inline void order_tokens(const DecodeArgs& args, QuarterCodes codes, uint32_t buffer, int thread, int threads) {
    const IntegerTokens& x = args.integers;
    const int count = x.tokens * x.units * 4;
    for (int index = thread; index - thread % 32 < count; index += threads) {
        if (index != thread) codes.load<true>(x, index);
        const OrderedQuarter ordered(codes, x.segments);
        if (index >= count) continue;
        const int place = ordered.unit * x.tokens + ordered.token;
        const uint32_t run = buffer + uint32_t(place * token_run_bytes);
#pragma unroll
        for (int t = 0; t < 4; ++t) ptx::store_8(ptx::swizzled(run + uint32_t(ordered.run_at(t))), ordered.run(t));
        if (ordered.terms_at >= 0)
            ptx::store_8(buffer + uint32_t(args.split.terms_at + place * token_term_bytes + ordered.terms_at), ordered.terms);
    }
}

// Into the workspace: the codes of all tokens, then their terms.
static __global__ void order_integer_tokens(IntegerTokens x) {
    const int index = blockIdx.x * blockDim.x + threadIdx.x, count = x.tokens * x.units * 4;
    ptx::let_dependents_begin();
    // The codes may be the result of the launch before, and its tokens, in the place of these, may still be read.
    ptx::wait_for_previous_launch();
    QuarterCodes given;
    given.load<false>(x, index);
    const OrderedQuarter ordered(given, x.segments);
    if (index >= count) return;
    const int64_t unit = index / 4;
    uint8_t *codes = x.workspace + unit * token_run_bytes,
            *terms = x.workspace + int64_t(count) / 4 * token_run_bytes + unit * token_term_bytes;
#pragma unroll
    for (int t = 0; t < 4; ++t) *reinterpret_cast<uint2*>(codes + ordered.run_at(t)) = ordered.run(t);
    if (ordered.terms_at >= 0) *reinterpret_cast<uint2*>(terms + ordered.terms_at) = ordered.terms;
}

inline void launch_order(DecodeArgs& args, const core::Context& context) {
    const IntegerTokens& x = args.integers;
    constexpr int threads = 128;
    const int64_t units = int64_t(x.tokens) * x.units;
    launch_in_chain(context, "order_integer_tokens", order_integer_tokens,
                    {blocks_for(units * 4, threads), threads, 0, 1, args.begins_early}, x);
    args.tokens = x.workspace, args.terms = x.workspace + units * token_run_bytes;
    args.token_stride = int64_t(x.units) * token_run_bytes;
    args.begins_early = true;
}

}  // namespace lowbit::cuda
