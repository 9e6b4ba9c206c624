// What the parts of the Hopper main loop (loop.cuh) agree on besides the tile: the order of tiles, a launch's arguments.
#pragma once
#include <cuda.h>

#include "cuda/gemm/epilogue.cuh"
#include "cuda/gemm/group_scales.cuh"
#include "cuda/hopper/group_of_block.hpp"
#include "cuda/hopper/tile.hpp"

namespace lowbit::cuda {

// Tiles come in bands of `band` token tiles; inside of a band the token tile changes fastest, so that the tiles under way at one time form
// a near square, and both operands are read from the L2 cache several times. Where clusters that share
// their tokens are all under way at once, bands of one ask it for fewer bytes (measured), presumably because neighbours on the chip then
// ask for the same rows.
struct HopperSchedule {
    int row_tiles = 0, token_tiles = 0, band = 1;  // row tiles: of a cluster

    __host__ __device__ int count() const { return row_tiles * token_tiles; }
    struct Place {
        int row, token;
    };
    __device__ Place operator[](int index) const {
        const int per_band = band * row_tiles, first = index / per_band * band, inside = index % per_band;
        const int width = token_tiles - first < band ? token_tiles - first : band;
        return {inside / width, first + inside % width};
    }
};

// Scales of tokens that change from k block to k block lie as [token][k block]. With few tokens a warp brings those of a stage; with many a
// launch before turns them, so that those of a k block are neighbours, and the copy engine brings them.
constexpr bool warp_brings_scales(int tile_tokens) { return tile_tokens <= 128; }

struct HopperArgs {
    CUtensorMap tokens, last_tokens, weight, last_weight, scales, integers, output;  // integers: zero points, or the bytes of K types
    HopperSchedule schedule;
    int k_stages = 0;
    int splits = 1;    // blocks of a cluster that share out K
    int halved = 0;    // of the last tiles of clusters: each goes to two clusters, whose blocks halve K
    int64_t rows = 0;  // of the weight
    int64_t token_count = 0;
    // Of tokens, where the last block's part of them is not full; of plain rows of the weight, likewise.
    int last_tokens_box = 0, last_weight_box = 0;
    int64_t weight_rows = 0;   // of what the loop takes for the weight
    bool store_boxes = false;  // results of 16 bits that the copy engine can store, and nothing but scales and a bias on the way
    // Weights in tiles: their scales, and which one a k block has.
    GroupScales group_scales;
    GroupOfBlock group_of_block;
    int last_group = 0;
    // Of tokens whose scales change from k block to k block; the stride is that of tokens where a warp brings them, else of k blocks, which
    // have as many tokens as tiles do.
    const float* token_scales = nullptr;
    int64_t token_scale_stride = 0;
    int scale_bytes = 0, zero_bytes = 0;  // of a stage's k block
    EpilogueArgs epilogue;
};

}  // namespace lowbit::cuda
