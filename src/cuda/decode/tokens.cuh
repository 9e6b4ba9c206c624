// The tokens' way: phase after phase into the buffers of a block, and from there into fragments.
#pragma once
#include "cuda/decode/config.cuh"

namespace lowbit::cuda {

// The barriers of the phase buffers: `full` counts the bytes of the tokens, `empty` the warps that have left.
struct PhaseBarriers {
    ptx::Barrier full[most_phase_buffers], empty[most_phase_buffers];
};

// The work of one more warp: phase after phase of tokens, one run of bytes for each token. First those that find a buffer free: all blocks
// ask for them at once, so the blocks of a cluster bring each other theirs. Then those that need a buffer again.
template <class C, bool First>
__device__ inline void copy_tokens(const DecodeArgs& args, uint8_t* buffers, PhaseBarriers& barriers) {
    const DecodeSplit& split = args.split;
    const int sharers = First ? args.sharers : 1, first = First ? 0 : split.buffers, end = First ? split.buffers : split.phases;
    const int per_phase = split.phase_units * C::Source::token_unit_bytes, lane = threadIdx.x % 32;
    const int token = First && sharers > 1 ? lane * sharers + int(ptx::block_in_cluster()) : lane;
    int left = split.units * C::Source::token_unit_bytes - first * per_phase, buffer = 0;
    uint32_t parity = 0;
    const uint8_t* from = args.tokens + token * args.token_stride + first * per_phase;
    for (int phase = first; phase < end; ++phase) {
        if (!First) ptx::wait_for(barriers.empty + buffer, parity);
        const int bytes = left < per_phase ? left : per_phase;
        if (lane == 0) ptx::expect_bytes(barriers.full + buffer, uint32_t(bytes * args.token_count));
        __syncwarp();
        if (token < args.token_count) {
            uint8_t* to = buffers + buffer * split.buffer_bytes + token * split.token_pitch;
            if (First && sharers > 1)
                ptx::copy_run_to_all(to, from, uint32_t(bytes), barriers.full + buffer, sharers);
            else
                ptx::copy_run(to, from, uint32_t(bytes), barriers.full + buffer);
        }
        from += per_phase, left -= per_phase;
        if (++buffer == split.buffers) buffer = 0, parity ^= 1;
    }
}

// The tokens' fragments of an atom: words 2s and 2s + 1 belong to step s (or word s, where steps are half as deep).
template <class C>
struct TokenFragments {
    static constexpr int loaded_words = C::Source::token_atom_bytes / 16;  // four lanes share a token
    static constexpr int words = C::Source::byte_tokens ? 2 * loaded_words : loaded_words;
    static constexpr int words_per_step = words / C::Source::steps_per_atom;
    uint32_t b[C::TokenTiles][words];

    // Where a lane finds its part of a unit. Tokens that do not exist repeat the last one: their results are not stored.
    __device__ static int offset(int tile, const DecodeArgs& args) {
        const int lane = threadIdx.x % 32, last = args.token_count - 1;
        const int token = 8 * tile + (C::Source::natural_order ? lane % 8 : lane / 4);
        const int inside = C::Source::natural_order ? lane / 8 * 16 : lane % 4 * (loaded_words * 4);
        return (token < last ? token : last) * args.split.token_pitch + inside;
    }
    __device__ void load(const uint32_t (&tokens)[C::TokenTiles], int at) {
#pragma unroll
        for (int tile = 0; tile < C::TokenTiles; ++tile)
#pragma unroll
            for (int i = 0; i < loaded_words; i += 4) {
                uint32_t four[4];
                if constexpr (C::Source::natural_order) {
                    ptx::load_matrices(four, tokens[tile] + at + 16 * i);
                } else {
                    const uint4 loaded = ptx::load_16(tokens[tile] + at + 4 * i);
                    four[0] = loaded.x, four[1] = loaded.y, four[2] = loaded.z, four[3] = loaded.w;
                }
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    if constexpr (C::Source::byte_tokens) {
                        b[tile][2 * (i + k)] = C::Source::widen_token(four[k] & 0xffffu);
                        b[tile][2 * (i + k) + 1] = C::Source::widen_token(four[k] >> 16);
                    } else {
                        b[tile][i + k] = four[k];
                    }
                }
            }
    }
    __device__ void step(int tile, int s, uint32_t (&pair)[2]) const {
        pair[0] = b[tile][words_per_step * s];
        if constexpr (words_per_step == 2) pair[1] = b[tile][words_per_step * s + 1];
    }
};

// Integer tokens: behind the codes of a unit stand a scale (fp32) and the sum of the codes, for each quarter of it or for all of it; for
// eight segments as fp16 and a sum of 16 bits.
struct TokenTerm {
    float scale;
    int sum;
};
template <class C>
struct TokenTerms {
    uint32_t place[C::TokenTiles][2];  // of the two tokens of this lane's results

    __device__ void set(const DecodeArgs& args, uint32_t unit) {
        if constexpr (C::Source::token_terms)
#pragma unroll
            for (int tile = 0; tile < C::TokenTiles; ++tile)
#pragma unroll
                for (int column = 0; column < 2; ++column) {
                    const int token = 8 * tile + 2 * (int(threadIdx.x) % 4) + column, last = args.token_count - 1;
                    place[tile][column] = unit + uint32_t((token < last ? token : last) * args.split.token_pitch + C::Source::unit_values);
                }
    }
    __device__ void advance(uint32_t bytes) {
        if constexpr (C::Source::token_terms)
#pragma unroll
            for (int tile = 0; tile < C::TokenTiles; ++tile) place[tile][0] += bytes, place[tile][1] += bytes;
    }
    __device__ TokenTerm at(int tile, int column, int segment) const {
        if constexpr (C::Segments == 8) {
            const uint32_t both = ptx::load_4(place[tile][column] + 4 * segment);
            return {half_to_float(uint16_t(both)), int(both) >> 16};
        } else {
            const uint2 term = ptx::load_8(place[tile][column] + 8 * segment);
            return {__uint_as_float(term.x), int(term.y)};
        }
    }
};

}  // namespace lowbit::cuda
