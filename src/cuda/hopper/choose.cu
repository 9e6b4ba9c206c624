#include <algorithm>
#include <limits>

#include "core/status.hpp"
#include "cuda/hopper/kernels.hpp"

namespace lowbit::cuda {
namespace {

// In clocks of a multiprocessor. A k block of 64 rows and 256 tokens keeps its tensor core busy for 512.
constexpr double clocks_per_block = 512.0 / (64 * 256);
constexpr double tile_overhead = 1500;      // first bytes, last sums, the store
constexpr double exchange_overhead = 2500;  // of splits: two meetings of a cluster, and sums on their way
constexpr int fewest_stages_per_split = 4;

double cost(const HopperKernel& kernel, int64_t rows, int64_t tokens, int64_t k_blocks, int splits, int multiprocessors) {
    const HopperTile& tile = kernel.tile;
    const int blocks_per_cluster = std::max(tile.cluster, splits);
    const int64_t tiles = core::ceil_div(rows, tile.rows * tile.cluster) * tile.cluster * core::ceil_div(tokens, tile.tokens);
    const int64_t slots = multiprocessors / blocks_per_cluster * blocks_per_cluster;
    const double waves = double(core::ceil_div(tiles * splits, slots));
    const double loop = double(core::ceil_div(k_blocks, splits)) * tile.rows * tile.tokens * clocks_per_block / kernel.efficiency;
    // Alternating warpgroups store while they multiply; only the last tile's store is seen.
    const double overhead = tile.alternate ? tile_overhead / waves : tile_overhead;
    return waves * (loop + overhead) + (splits > 1 ? exchange_overhead : 0);
}

}  // namespace

HopperChoice choose_hopper(HopperKernels kernels, int64_t rows, int64_t tokens, int64_t k_blocks, int multiprocessors) {
    HopperChoice best;
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < kernels.size(); ++i) {
        const int64_t stages = core::ceil_div(k_blocks, kernels[i].tile.depth);
        for (int splits = 1; splits <= std::min(kernels[i].most_splits, 8); ++splits) {
            if (splits > 1 && stages / splits < fewest_stages_per_split) break;
            const double now = cost(kernels[i], rows, tokens, k_blocks, splits, multiprocessors);
            if (now < least) least = now, best = {int(i), splits};
        }
    }
    return best;
}

}  // namespace lowbit::cuda
