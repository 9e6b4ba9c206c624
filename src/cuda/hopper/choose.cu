#include <algorithm>
#include <limits>

#include "core/status.hpp"
#include "cuda/hopper/kernels.hpp"

namespace lowbit::cuda {
namespace {

// In clocks of a multiprocessor of an H200.
constexpr double tile_overhead = 2500;      // first bytes, last sums, the store
constexpr double exchange_overhead = 1200;  // of splits: two meetings of a cluster, and those who come late
constexpr double teams_overhead = 600;      // the same within a block
constexpr double turn_overhead = 3500;      // a launch before the product, even if it begins behind it
constexpr int fewest_stages_per_split = 4;

int64_t cluster_tiles(const HopperKernel& kernel, int64_t rows, int64_t tokens) {
    const HopperSides sides = kernel.sides(rows, tokens);
    return core::ceil_div(sides.rows, kernel.tile.rows * kernel.tile.cluster) * core::ceil_div(sides.tokens, kernel.tile.tokens);
}

// Bytes of memory that so many blocks together read in a clock.
double memory_rate(double blocks) { return 2590.0 * blocks / (blocks + 12.0); }

// Bytes that the cache gives all blocks together in a clock. Arithmetic that lasts brings the chip to its power limit, where
// multiprocessors slow down and the cache does not.
double cache_rate(bool throttled) { return throttled ? 7000 : 5800; }

// Bytes of weight and tokens that a multiprocessor takes in in a clock, where all of the weight comes from memory (bf16, 64 tokens, 48
// blocks), and where the cache has it and blocks share nothing (bf16, 256 tokens in tiles of 96 x 128).
constexpr double block_rate = 52, cached_block_rate = 62;
// The same for blocks that halve a tile, each with all of its rows and tokens, where they have had no tiles before (bf16, 256 tokens: 39 to
// 48).
constexpr double halves_rate = 46;

// Bytes that a block sends to others of its cluster in a clock.
double exchange_rate(int blocks) { return blocks <= 4 ? 10.0 : 6.5; }

// Of blocks that share out K: each has the sums of all results, keeps its part of them and sends the others.
double exchange(const HopperTile& tile, int splits) {
    if (splits == 1) return 0;
    const double bytes = double(tile.rows) * tile.tokens * 4 * (splits - 1) / splits;
    return exchange_overhead + bytes / exchange_rate(splits);
}

// Of two blocks that halve a tile of the last wave (traced: 4,700 clocks for tiles of 128 x 256 and of 192 x 128).
double halves_exchange(const HopperTile& tile) { return exchange_overhead + double(tile.rows) * tile.tokens * 4 / 2 / 16.0; }

double cost(const HopperKernel& kernel, int64_t rows, int64_t tokens, int64_t k_blocks, int splits) {
    const HopperTile& tile = kernel.tile;
    const int cluster = std::max(tile.cluster, splits);
    const int64_t tiles = cluster_tiles(kernel, rows, tokens) * tile.cluster;
    const int64_t slots = int64_t(std::max(kernel.resident_clusters(cluster), 1)) * cluster, blocks = tiles * splits;
    const auto active = double(std::min(slots, blocks)), waves = double(core::ceil_div(blocks, slots));
    // Tiles of other tokens find the weight in the cache; where clusters split K, about half of them do.
    const int64_t tile_tokens = kernel.sides(tile.rows, tile.tokens).tokens;
    const auto token_tiles = double(core::ceil_div(tokens, tile_tokens)), readers = splits > 1 ? (1 + token_tiles) / 2 : token_tiles;
    // The time of a k block, with so many blocks under way that share their tokens or not. Every weight is read from memory once, and from
    // the cache by the tiles of other tokens. Blocks that share wait for each other, which shows where memory is what they wait for.
    const auto block_time = [&](double active_blocks, int sharing) {
        const double shared = tile.tokens * 128.0 / sharing, weight = kernel.exchanged ? shared : kernel.weight_bytes;
        const double read = weight * active_blocks / memory_rate(active_blocks) / readers * (sharing > 1 ? 1.1 : 1.0);
        const bool throttled = waves > 2 && read < kernel.clocks;
        const double taken = kernel.weight_bytes + shared;
        const double cached = tile.cluster == 1 ? taken / cached_block_rate
                              : sharing == 1    ? taken / (waves == 1 ? halves_rate : cached_block_rate)
                                                : taken * active_blocks / cache_rate(throttled);
        const double alone = token_tiles == 1 && !tile.alternate ? (kernel.weight_bytes + tile.tokens * 128.0) / block_rate : 0;
        return std::max({kernel.clocks, read, cached, alone});
    };
    const auto loop_of = [&](double active_blocks) {
        return double(core::ceil_div(k_blocks, splits)) * block_time(active_blocks, tile.cluster);
    };
    const double loop = loop_of(active);
    const double before = kernel.turns_scales ? turn_overhead : 0;
    if (const int halved = halved_tiles(kernel, rows, tokens, k_blocks)) {
        const auto whole = double((tiles / tile.cluster - halved) * tile.cluster / slots);
        const double half = double(core::ceil_div(k_blocks, 2)) * block_time(4.0 * halved, 1);
        return before + whole * (loop + tile_overhead) + half + tile_overhead + halves_exchange(tile);
    }
    // Alternating warpgroups store while they multiply; only the last tile's store is seen.
    const double overhead = tile.alternate ? tile_overhead / waves : tile_overhead;
    const double last_loop = loop_of(double(blocks) - (waves - 1) * double(slots));
    return before + (waves - 1) * loop + last_loop + waves * overhead + exchange(tile, splits) + (tile.teams > 1 ? teams_overhead : 0);
}

bool fits_at_once(const HopperKernel& kernel, int64_t rows, int64_t tokens, int splits) {
    const HopperSides sides = kernel.sides(rows, tokens);
    return core::ceil_div(sides.rows, kernel.tile.rows) * core::ceil_div(sides.tokens, kernel.tile.tokens) <=
           kernel.resident_clusters(splits);
}

}  // namespace

int halved_tiles(const HopperKernel& kernel, int64_t rows, int64_t tokens, int64_t k_blocks) {
    if (!kernel.can_halve || k_blocks / kernel.tile.depth < 2 * fewest_stages_per_split) return 0;
    const int clusters = std::max(kernel.resident_clusters(kernel.tile.cluster), 1);
    const auto rest = int(cluster_tiles(kernel, rows, tokens) % clusters);
    return 2 * rest <= clusters ? rest : 0;
}

HopperChoice choose_hopper(HopperKernels kernels, int64_t rows, int64_t tokens, int64_t k_blocks) {
    HopperChoice best;
    double least = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < kernels.size(); ++i) {
        if (!kernels[i].exists()) continue;
        const int64_t stages = core::ceil_div(k_blocks, kernels[i].tile.depth);
        if (stages < kernels[i].tile.teams) continue;
        for (int splits = 1; splits <= kernels[i].most_splits; ++splits) {
            if (splits > 1 && stages / splits < fewest_stages_per_split) break;
            // More clusters than the chip holds: one after the other, each from its first byte on.
            if ((splits > 1 || kernels[i].tile.teams > 1) && !fits_at_once(kernels[i], rows, tokens, splits)) break;
            const double now = cost(kernels[i], rows, tokens, k_blocks, splits);
            if (now < least) least = now, best = {int(i), splits, now};
        }
    }
    return best;
}

}  // namespace lowbit::cuda
