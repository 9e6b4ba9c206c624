// How a product of few tokens is spread over the chip, and what it takes of a block's shared memory.
#pragma once
#include "cuda/decode/config.cuh"

namespace lowbit::cuda {

// What a source needs, in numbers.
struct DecodeSizes {
    int64_t rows, columns;
    int unit_values;       // of a row
    int unit_bytes;        // of one tile
    int token_unit_bytes;  // of one token
    int segments;          // groups of a unit that have scales; 0: none
    int group;             // values that share a scale
    int (*slot_bytes)(int row_tiles), (*slots)(int row_tiles, int token_tiles);
    bool tile_pairs;  // a block has an even number of tiles
};

DecodeSplit split_decode(const DecodeSizes& sizes, int tokens, int multiprocessors, int shared_bytes_limit);

}  // namespace lowbit::cuda
