#include "cuda/decode/split.hpp"

#include <algorithm>

#include "core/status.hpp"

namespace lowbit::cuda {
namespace {

constexpr int most_row_tiles = 2, most_tokens = 16;
constexpr int buffer_alignment = 1024;        // of a buffer: the copy engine's swizzle begins anew
constexpr int phase_bytes_wanted = 40 << 10;  // small enough for several to be under way
constexpr int most_box_rows = 256;            // that the copy engine takes at a time

// As many warps along K as there is room for; one fewer where that leaves fewer of them idle in the last round.
int depth_warps(int row_warps, int units) {
    const int most = std::clamp(most_decode_warps / row_warps, 1, std::max(units, 1));
    int best = most;
    for (int candidate = most; candidate >= std::max(1, most * 3 / 4); --candidate) {
        const auto rounds = [&](int warps) { return core::ceil_div(units, warps); };
        if (rounds(candidate) == rounds(most)) best = candidate;
    }
    return best;
}

// Rows of warps that get one of those left over. The four schedulers of a multiprocessor have every fourth warp each: fourteen warps leave
// two of them with four and two with three, and the product takes as long as the former. Tiles of a gate keep together.
int deep_rows(const DecodeSplit& split, bool tile_pairs) {
    constexpr int most_depth = 3;  // further along there is little to gain
    if (split.depth_warps > most_depth || split.units < 4 * (split.depth_warps + 1) || (tile_pairs && split.row_tiles == 1)) return 0;
    return std::min(most_decode_warps - split.row_warps * split.depth_warps, split.row_warps);
}

}  // namespace

DecodeSplit split_decode(const DecodeSizes& sizes, int tokens, int multiprocessors, int shared_bytes_limit) {
    DecodeSplit split;
    const int64_t tiles = core::ceil_div(sizes.rows, rows_per_tile);
    // Two tiles share the work on their tokens, where a warp has the registers.
    const bool narrow = sizes.unit_bytes <= narrow_unit_bytes;
    const int most_tiles = most_decode_warps * (narrow ? most_row_tiles : 1);
    const int64_t waves = core::ceil_div(tiles, int64_t(multiprocessors) * most_tiles);
    split.tiles_per_block = int(core::ceil_div(tiles, waves * multiprocessors));
    if (sizes.tile_pairs) split.tiles_per_block += split.tiles_per_block % 2;
    split.row_tiles = narrow && split.tiles_per_block > 1 && split.tiles_per_block != 3 ? most_row_tiles : 1;  // 3: one in four would idle
    split.row_warps = int(core::ceil_div(split.tiles_per_block, split.row_tiles));
    split.units = int(core::ceil_div(sizes.columns, sizes.unit_values));
    const auto ring_bytes = [&](int token_tiles) {
        const int slots = std::min(sizes.slots(split.row_tiles, token_tiles), int(core::ceil_div(split.units, split.depth_warps)));
        return split.warps() * slots * sizes.slot_bytes(split.row_tiles);
    };
    const int unit_bytes = sizes.token_unit_bytes + sizes.token_term_bytes;  // of one token
    // Room for a round of the most tokens, however few there are now: the split of K must not depend on them.
    const auto fits = [&] {
        return ring_bytes(1) + split.most_depth() * unit_bytes * most_tokens + buffer_alignment <= shared_bytes_limit;
    };
    split.depth_warps = depth_warps(split.row_warps, split.units);
    while (split.depth_warps > 1 && !fits()) --split.depth_warps;
    split.deep_rows = deep_rows(split, sizes.tile_pairs);
    if (!fits()) split.deep_rows = 0;
    const int rounds = int(core::ceil_div(split.units, split.depth_warps));
    const int token_tiles = tokens > 8 ? 2 : 1;
    split.ring_slots = std::min(sizes.slots(split.row_tiles, token_tiles), rounds);
    const int result_bytes = split.most_depth() * most_tokens * (split.row_warps * split.row_tiles * rows_per_tile + 4) * 4;

    // A phase is some rounds: the first are multiplied while the last are on their way.
    const int round_units = split.most_depth();
    const int room = shared_bytes_limit - ring_bytes(token_tiles);
    const int round_bytes = round_units * unit_bytes * tokens, even = int(core::ceil_div(rounds, most_phase_buffers));
    const int wanted = std::min(phase_bytes_wanted, most_box_rows * token_run_bytes * tokens);
    const bool one = rounds * round_bytes <= wanted;
    const int phase_rounds = one ? rounds : std::clamp(std::min(wanted / round_bytes, even), 1, rounds);
    // A round that finds room only once comes in two halves, so that one is multiplied while the other is on its way.
    const bool whole = sizes.one_phase && split.units * unit_bytes * tokens + buffer_alignment <= room;
    split.phase_units = whole                                         ? split.units
                        : phase_rounds == 1 && 2 * round_bytes > room ? int(core::ceil_div(round_units, 2))
                                                                      : phase_rounds * round_units;
    split.phases = int(core::ceil_div(split.units, split.phase_units));
    split.row_bytes = token_run_bytes * tokens;
    split.terms_at = split.phase_units * sizes.token_unit_bytes * tokens;
    split.buffer_bytes = int(core::ceil_div(split.phase_units * unit_bytes * tokens, buffer_alignment) * buffer_alignment);
    split.buffers = std::clamp(room / split.buffer_bytes, 1, std::min(split.phases, most_phase_buffers));
    split.depth_warp_divisor = IndexDivisor(uint32_t(split.depth_warps));
    split.deep_warp_divisor = IndexDivisor(uint32_t(split.depth_warps + 1));
    // One scale for all of K is shared by all its segments, the last of which may be short.
    const int segment_values = sizes.segments ? sizes.unit_values / sizes.segments : 1;
    split.span = IndexDivisor(
        uint32_t(!sizes.segments || sizes.group >= sizes.columns ? split.units * sizes.segments + 1 : sizes.group / segment_values));
    // More than half of what a multiprocessor has, needed or not: a launch that begins early would put two blocks where none is yet, and
    // wait for those.
    const int alone = shared_bytes_limit / 2 + 1;
    split.shared_bytes = std::max({ring_bytes(token_tiles) + split.buffers * split.buffer_bytes, result_bytes, alone});
    return split;
}

}  // namespace lowbit::cuda
