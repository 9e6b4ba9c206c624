// The tokens' way: phase after phase into the buffers of a block, and from there into fragments.
#pragma once
#include "cuda/decode/config.cuh"

namespace lowbit::cuda {

// The barriers of the phase buffers: `full` counts the bytes of the tokens, `empty` the warps that have left.
struct PhaseBarriers {
    ptx::Barrier full[most_phase_buffers], empty[most_phase_buffers];
};

// The work of one more warp: phase after phase of tokens, a box of all of them (and one of their terms). First the phases that find a
// buffer free, then those that need one again.
//
//     buffer:  [run of 128 bytes][token], swizzled by the copy engine;  [unit][token] of terms
template <class C, bool First>
__device__ inline void copy_tokens(const DecodeArgs& args, const TokenMaps& maps, uint8_t* buffers, PhaseBarriers& barriers) {
    const DecodeSplit& split = args.split;
    constexpr int unit_rows = C::Source::token_unit_bytes / token_run_bytes;
    const int first = First ? 0 : split.buffers, end = First ? split.buffers : split.phases;
    // Runs and units beyond the last one count, too: the copy engine fills in zeros.
    const int bytes = split.terms_at + (C::Source::token_terms ? split.phase_units * token_term_bytes * args.token_count : 0);
    int buffer = 0;
    uint32_t parity = 0;
    for (int phase = first; phase < end; ++phase) {
        if (!First) ptx::wait_for(barriers.empty + buffer, parity);
        if (ptx::elect_one()) {
            uint8_t* to = buffers + buffer * split.buffer_bytes;
            ptx::Barrier* full = barriers.full + buffer;
            ptx::expect_bytes(full, uint32_t(bytes));
            ptx::copy_box(to, maps.tokens, 0, 0, phase * split.phase_units * unit_rows, full);
            if constexpr (C::Source::token_terms) ptx::copy_box(to + split.terms_at, maps.terms, 0, 0, phase * split.phase_units, full);
        }
        __syncwarp();
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

    __device__ static int token_of_lane() { return int(threadIdx.x) % 32 / (C::Source::natural_order ? 1 : 4) % 8; }
    // Where a lane finds its part of a unit's first run. Tokens that do not exist repeat another one: their results are not stored.
    __device__ static uint32_t offset(const DecodeArgs& args) {
        const int lane = threadIdx.x % 32;
        const int inside = C::Source::natural_order ? lane / 8 * 16 : lane % 4 * (loaded_words * 4);
        return uint32_t(smaller(token_of_lane(), args.token_count - 1) * token_run_bytes + inside);
    }
    // From there to the token of the second tile: eight runs, after which the swizzle begins anew.
    __device__ static uint32_t second_tile(const DecodeArgs& args) {
        return token_of_lane() + 8 < args.token_count ? 8 * token_run_bytes : 0;
    }
    // From byte `at` of a unit on. What is added to a lane's place inside of a run has bits of its own, so it can be flipped.
    __device__ void load(uint32_t tokens, uint32_t second, int at, const DecodeArgs& args) {
        const uint32_t run = ptx::swizzled(tokens + at / token_run_bytes * args.split.row_bytes) ^ at % token_run_bytes;
#pragma unroll
        for (int tile = 0; tile < C::TokenTiles; ++tile) {
#pragma unroll
            for (int i = 0; i < loaded_words; i += 4) {
                uint32_t four[4];
                const uint32_t place = (run ^ (C::Source::natural_order ? 16 : 4) * i) + (tile ? second : 0);
                if constexpr (C::Source::natural_order) {
                    ptx::load_matrices(four, place);
                } else {
                    const uint4 loaded = ptx::load_16(place);
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
    }
    __device__ void step(int tile, int s, uint32_t (&pair)[2]) const {
        pair[0] = b[tile][words_per_step * s];
        if constexpr (words_per_step == 2) pair[1] = b[tile][words_per_step * s + 1];
    }
};

// Integer tokens: beside the codes of a unit stand a scale (fp32) and the sum of the codes, for each quarter of it or for all of it; for
// eight segments as fp16 and a sum of 16 bits.
struct TokenTerm {
    float scale;
    int sum;
};
template <class C>
struct TokenTerms {
    uint32_t place[C::TokenTiles][2];  // of the two tokens of this lane's results

    // `unit`: from the first of the buffer on.
    __device__ void set(const DecodeArgs& args, uint32_t buffer, int unit) {
        if constexpr (C::Source::token_terms)
#pragma unroll
            for (int tile = 0; tile < C::TokenTiles; ++tile)
#pragma unroll
                for (int column = 0; column < 2; ++column) {
                    const int token = 8 * tile + 2 * (int(threadIdx.x) % 4) + column, last = args.token_count - 1;
                    const int index = unit * args.token_count + (token < last ? token : last);
                    place[tile][column] = buffer + uint32_t(args.split.terms_at + index * token_term_bytes);
                }
    }
    __device__ void advance(const DecodeArgs& args, int units) {
        if constexpr (C::Source::token_terms) {
            const auto bytes = uint32_t(units * args.token_count * token_term_bytes);
#pragma unroll
            for (int tile = 0; tile < C::TokenTiles; ++tile) place[tile][0] += bytes, place[tile][1] += bytes;
        }
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
