// What the parts of the Ampere main loop (ampere.cuh) agree on: the tile, a launch's arguments, what a kernel is compiled for, and which
// tile a block has.
#pragma once
#include <cstdint>

#include "cuda/formats/small_numbers.cuh"
#include "cuda/gemm/epilogue.cuh"
#include "cuda/gemm/sources.cuh"

namespace lowbit::cuda {

// What a block does: sizes, and how its warps share it.
// Chain: k blocks that a warp takes one after the other in a stage, so that a group of them needs its scales once.
template <int Rows_, int Tokens_, int WarpRows_, int WarpTokens_, int WarpDepth_, int Stages_, int BlocksPerMultiprocessor_, int Chain_ = 1>
struct Tile {
    static constexpr int Rows = Rows_, Tokens = Tokens_, WarpRows = WarpRows_, WarpTokens = WarpTokens_, WarpDepth = WarpDepth_;
    static constexpr int Stages = Stages_, BlocksPerMultiprocessor = BlocksPerMultiprocessor_, Chain = Chain_;
    static constexpr int blocks_per_stage = WarpDepth * Chain;
    static constexpr int threads = WarpRows * WarpTokens * WarpDepth * 32;
    static constexpr int rows_per_warp = Rows / WarpRows, tokens_per_warp = Tokens / WarpTokens;
    static constexpr int row_fragments = rows_per_warp / 16, token_fragments = tokens_per_warp / 8;
    static_assert(rows_per_warp % 16 == 0 && tokens_per_warp % 8 == 0);
};

struct AmpereArgs {
    AlignedRows tokens;
    int64_t rows = 0;                      // of the weight
    int64_t k_blocks = 0;                  // of all of K
    int splits = 1;                        // parts of K that different blocks take
    uint32_t* partials = nullptr;          // [split][token][row], when there are several
    GroupScales row_groups, token_groups;  // empty where a side's scale does not change along K
    EpilogueArgs epilogue;
};

// Whose scales change along K. `folded`: the rows', and they are multiplied into the decoded weight, which is rounded once more; groups are
// whole k blocks there.
enum class Groups { none, rows, rows_and_tokens, folded };

template <class Mma_, class Source_, class Tile_, Groups Groups_>
struct AmpereConfig {
    using Mma = Mma_;
    using Source = Source_;
    using Shape = Tile_;
    static constexpr bool TokensGrouped = Groups_ == Groups::rows_and_tokens, Grouped = TokensGrouped || Groups_ == Groups::rows;
    static constexpr bool Folded = Groups_ == Groups::folded;
    static_assert(!Folded || (Source_::decodes && Tile_::blocks_per_stage == 1));
    // Codes less 8 are folded by one multiply-add.
    static constexpr bool SmallFolded = [] {
        if constexpr (Folded)
            return Source_::less_eight && SmallNumbers<Mma_>::possible;
        else
            return false;
    }();
    static constexpr float product_unit = SmallFolded ? SmallNumbers<Mma_>::product_unit : 1.0f;
    static constexpr int weight_bytes = Source::template stage_bytes<Shape::Rows>, token_bytes = Shape::Tokens * block_bytes;
    static constexpr int k_block_bytes = weight_bytes + token_bytes, stage_bytes = k_block_bytes * Shape::blocks_per_stage;
    static constexpr int pitch = Shape::Rows + 4;  // of the results in shared memory: lanes of a store fall into different banks
    static constexpr int result_bytes = Shape::Tokens * pitch * 4;
    static constexpr int shared_bytes = stage_bytes * Shape::Stages > result_bytes ? stage_bytes* Shape::Stages : result_bytes;
    // Part sums become sums when their group's scales are multiplied in.
    using Part = typename Mma::Accumulator;
    using Sum = std::conditional_t<Grouped, float, Part>;
};

// Which tile, and which k blocks, a block works on.
template <class C>
struct WorkItem {
    int64_t first_row, first_token;
    int first_stage, stages;

    __device__ explicit WorkItem(const AmpereArgs& args) {
        using Shape = typename C::Shape;
        // Bands of token tiles, so that blocks that run together share rows and tokens in the L2 cache. Packed rows are short.
        constexpr uint32_t band = C::Source::decodes || Shape::Tokens >= 256 ? 8 : 16;
        const uint32_t row_tiles = uint32_t((args.rows + Shape::Rows - 1) / Shape::Rows);
        const uint32_t token_tiles = uint32_t((args.tokens.rows + Shape::Tokens - 1) / Shape::Tokens);
        const uint32_t first = blockIdx.x / (band * row_tiles) * band, inside = blockIdx.x % (band * row_tiles);
        const uint32_t width = token_tiles - first < band ? token_tiles - first : band;
        first_row = int64_t(inside / width) * Shape::Rows;
        first_token = int64_t(first + inside % width) * Shape::Tokens;
        const int all = int(args.k_blocks + Shape::blocks_per_stage - 1) / Shape::blocks_per_stage,
                  each = (all + args.splits - 1) / args.splits;
        first_stage = each * int(blockIdx.y);
        stages = all - first_stage < each ? all - first_stage : each;
        if (stages < 0) stages = 0;
    }
};

}  // namespace lowbit::cuda
