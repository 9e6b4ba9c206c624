// How a product of few tokens is spread over the chip, and what it takes of a block's shared memory. Numbers alone: the host decides, the
// kernel follows, and a test needs no GPU.
#pragma once
#include <cstdint>

#include "cuda/quantize/division.cuh"

namespace lowbit::cuda {

constexpr int rows_per_tile = 16, most_decode_warps = 16, atoms_per_unit = 2;
constexpr int narrow_unit_bytes = 1536;  // units of so many bytes leave registers for a second tile, and take longer to decode than to load
constexpr int most_phase_buffers = 4;
constexpr int token_run_bytes = 128;  // of a token, side by side in a buffer

// The split: the same for any number of tokens in all that the order of the sums follows from.
struct DecodeSplit {
    int tiles_per_block = 1;
    int row_tiles = 1;  // of a warp
    int row_warps = 1, depth_warps = 1;
    int deep_rows = 0;                  // the first of row_warps: one warp more along K each, where some would be left over
    int units = 0;                      // of K
    int ring_slots = 1;                 // of a warp; fewer than the kernel's where a warp has fewer units
    int phase_units = 1, phases = 1;    // stretches of K whose tokens come together
    int buffers = 1, buffer_bytes = 0;  // of phases
    int row_bytes = 0, terms_at = 0;    // in a buffer: a run of every token; the first term
    int shared_bytes = 0;
    IndexDivisor span, depth_warp_divisor, deep_warp_divisor;  // segments of K that share a scale; depth_warps, and one more

    LOWBIT_HOST_DEVICE int warps() const { return row_warps * depth_warps + deep_rows; }
    LOWBIT_HOST_DEVICE int most_depth() const { return depth_warps + (deep_rows > 0); }

    // Where a warp stands: its row of warps, its place along K, and among how many.
    struct Place {
        int row_warp, depth_warp, depth_warps;
    };
    LOWBIT_HOST_DEVICE Place place(int warp) const {
        const int deep = deep_rows * (depth_warps + 1);
        if (warp < deep) {
            const int row = int(deep_warp_divisor.quotient(uint32_t(warp)));
            return {row, warp - row * (depth_warps + 1), depth_warps + 1};
        }
        const int row = int(depth_warp_divisor.quotient(uint32_t(warp - deep)));
        return {deep_rows + row, warp - deep - row * depth_warps, depth_warps};
    }
};

// What a source needs, in numbers.
struct DecodeSizes {
    int64_t rows, columns;
    int unit_values;       // of a row
    int unit_bytes;        // of one tile
    int token_unit_bytes;  // of one token, whole runs
    int token_term_bytes;  // and of what stands beside them
    int segments;          // groups of a unit that have scales; 0: none
    int group;             // values that share a scale
    int (*slot_bytes)(int row_tiles), (*slots)(int row_tiles, int token_tiles);
    bool tile_pairs;  // a block has an even number of tiles
    bool one_phase;   // tokens of all of K at once, if they find room
};

DecodeSplit split_decode(const DecodeSizes& sizes, int tokens, int multiprocessors, int shared_bytes_limit);

}  // namespace lowbit::cuda
