// Which tile a product gets: a cost in plain numbers, the smallest wins.
#pragma once
#include <cstdint>

namespace lowbit::cuda {

enum class TileKind { few_tokens, many_rows, some_tokens, square, pair, wide, deep_wide, folded };

struct TileCandidate {
    TileKind kind;
    int rows, tokens;
    int shared_bytes, blocks_per_multiprocessor, threads;
    int blocks_per_stage;  // k blocks that one stage of the ring holds
    double efficiency;     // of a multiprocessor that is full of such blocks, against the best tile
};

struct TileChoice {
    TileKind kind = TileKind::some_tokens;
    int splits = 1;
};

struct ProductSize {
    int64_t tokens, rows, k_blocks;
    bool groups_are_blocks = false;  // every group is whole k blocks, so that its scales can be folded into the weight
};

TileChoice choose_tile(const TileCandidate* candidates, int count, const ProductSize& size, int multiprocessors, int shared_bytes_limit);

}  // namespace lowbit::cuda
