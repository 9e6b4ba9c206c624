#include "cuda/gemm/tiles.hpp"

#include <algorithm>
#include <limits>

#include "core/status.hpp"

namespace lowbit::cuda {
namespace {

// Splitting K fills a chip that has too few tiles; each part must be long enough to pay for the sum over parts.
constexpr int most_splits = 8, fewest_stages_per_split = 4;

int splits_for(const TileCandidate& tile, const ProductSize& size, int64_t tiles, int64_t slots) {
    const int64_t stages = core::ceil_div(size.k_blocks, tile.blocks_per_stage);
    const int64_t wanted = std::min<int64_t>({slots / std::max<int64_t>(tiles, 1), most_splits, stages / fewest_stages_per_split});
    if (wanted < 2) return 1;
    // Parts are whole stages: a number of parts that leaves one empty is one too many.
    const int64_t each = core::ceil_div(stages, wanted);
    return int(core::ceil_div(stages, each));
}

}  // namespace

TileChoice choose_tile(const TileCandidate* candidates, int count, const ProductSize& size, int multiprocessors, int shared_bytes_limit) {
    TileChoice best;
    double best_cost = std::numeric_limits<double>::infinity();
    for (int i = 0; i < count; ++i) {
        const TileCandidate& tile = candidates[i];
        if (tile.shared_bytes > shared_bytes_limit) continue;
        // A multiprocessor has the shared memory of one largest block; a block takes this much beyond its own.
        constexpr int reserved = 1024;
        const int fitting = std::min(tile.blocks_per_multiprocessor, (shared_bytes_limit + reserved) / (tile.shared_bytes + reserved));
        // Fewer warps than were meant to share a multiprocessor leave part of it idle.
        const double efficiency = tile.efficiency * (1 + double(fitting) / tile.blocks_per_multiprocessor) / 2;
        const int64_t tiles = core::ceil_div(size.rows, tile.rows) * core::ceil_div(size.tokens, tile.tokens);
        const int64_t slots = int64_t(multiprocessors) * fitting;
        const int splits = splits_for(tile, size, tiles, slots);
        // Blocks that share a multiprocessor share its rate; a wave that is not full takes as long as a full one.
        const double blocks = double(tiles * splits), full_waves = std::max(1.0, blocks / double(slots));
        const double waves = full_waves < 8 ? double(core::ceil_div(tiles * splits, slots)) : full_waves;
        const double busy = blocks < double(multiprocessors) ? 1.0 : std::min<double>(fitting, blocks / multiprocessors);
        const double cost = waves * busy * tile.rows * tile.tokens / double(splits) / efficiency;
        if (cost < best_cost) best_cost = cost, best = {tile.kind, splits};
    }
    return best;
}

}  // namespace lowbit::cuda
