// What the parts of the Hopper main loop (loop.cuh) agree on: the tile, the order of tiles, a launch's arguments.
#pragma once
#include <cuda.h>

#include "cuda/gemm/epilogue.cuh"
#include "cuda/gemm/group_scales.cuh"
#include "cuda/hopper/group_of_block.hpp"

namespace lowbit::cuda {

constexpr int hopper_most_splits = 8;  // blocks of a cluster that share out K: more than eight need leave

struct HopperTile {
    int rows, tokens;   // of the result, per block
    int stages;         // of the ring
    int depth = 1;      // k blocks (128 bytes of a token) per stage
    int cluster = 1;    // blocks that share their tokens: each copies its part of them to all
    int boxes = 4;      // of the output that a warpgroup has under way
    int term_sets = 1;  // of what the epilogue needs for a tile, in shared memory: two where tiles are short and stores overlap
    bool alternate =
        false;  // each warpgroup has a tile of its own, and one multiplies while the other stores; else they halve a tile's rows

    // Warpgroups that multiply: four hide decoding better behind each other's products, where few tokens need few registers; three divide
    // rows that two do not.
    int groups = 2;
    // Teams of them take the stages of a tile by turns, and add up their sums at the end: few rows per block without too few warpgroups,
    // and far less to exchange than with as many blocks that share out K. A block has one tile, then.
    int teams = 1;
    constexpr int threads() const { return 128 * (groups + 1); }
    // The register file is dealt out evenly at the launch; then the warpgroup that copies gives most of its share away.
    constexpr int copy_registers() const { return groups == 2 ? 40 : 32; }
    constexpr int multiply_registers() const { return groups == 2 ? 232 : groups == 3 ? 160 : 112; }
};

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
