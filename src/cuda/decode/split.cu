#include "cuda/decode/split.hpp"

#include <algorithm>

#include "core/status.hpp"

namespace lowbit::cuda {
namespace {

constexpr int most_row_tiles = 2, most_tokens = 16;
constexpr int phase_bytes_wanted = 20 << 10;  // small enough for several to be under way
constexpr int whole_bytes_wanted = 32 << 10;  // so few need no phases

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

}  // namespace

DecodeSplit split_decode(const DecodeSizes& sizes, int tokens, int multiprocessors, int shared_bytes_limit) {
    DecodeSplit split;
    const int64_t tiles = core::ceil_div(sizes.rows, rows_per_tile);
    // Two tiles share the work on their tokens, where a warp has the registers.
    const bool narrow = sizes.unit_bytes <= narrow_unit_bytes;
    const int most_tiles = most_decode_warps * (narrow ? most_row_tiles : 1);
    const int64_t waves = core::ceil_div(tiles, int64_t(multiprocessors) * most_tiles);
    split.tiles_per_block = int(core::ceil_div(tiles, waves * multiprocessors));
    split.row_tiles = narrow && split.tiles_per_block >= 4 ? most_row_tiles : 1;
    split.row_warps = int(core::ceil_div(split.tiles_per_block, split.row_tiles));
    split.units = int(core::ceil_div(sizes.columns, sizes.unit_values));
    split.depth_warps = depth_warps(split.row_warps, split.units);
    const int rounds = int(core::ceil_div(split.units, split.depth_warps));

    const int ring_bytes = split.warps() * sizes.slots(split.row_tiles) * sizes.slot_bytes(split.row_tiles);
    const int result_bytes = split.depth_warps * most_tokens * (split.row_warps * split.row_tiles * rows_per_tile + 4) * 4;

    // A phase is some rounds; the buffers together take what room there is.
    const int token_round = split.depth_warps * sizes.token_unit_bytes, padding = 16;
    const int room = shared_bytes_limit - ring_bytes;
    split.phase_rounds = std::clamp(phase_bytes_wanted / (token_round * tokens), 1, rounds);
    const auto buffer_bytes = [&] { return int(core::ceil_div((split.phase_rounds * token_round + padding) * tokens, 128) * 128); };
    if (const int all = int(core::ceil_div((rounds * token_round + padding) * tokens, 128) * 128); all <= whole_bytes_wanted)
        split.phase_rounds = rounds;
    split.phases = int(core::ceil_div(rounds, split.phase_rounds));
    // 16 bytes more than whole lines: the rows of a fragment fall into different banks.
    split.token_pitch = split.phase_rounds * token_round + padding;
    split.buffer_bytes = buffer_bytes();
    split.buffers = std::clamp(room / split.buffer_bytes, 1, std::min(split.phases, most_phase_buffers));
    split.depth_warp_divisor = IndexDivisor(uint32_t(split.depth_warps));
    // One scale for all of K is shared by all its segments, the last of which may be short.
    const int segment_values = sizes.segments ? sizes.unit_values / sizes.segments : 1;
    split.span = IndexDivisor(
        uint32_t(!sizes.segments || sizes.group >= sizes.columns ? split.units * sizes.segments + 1 : sizes.group / segment_values));
    split.shared_bytes = std::max(ring_bytes + split.buffers * split.buffer_bytes, result_bytes);
    return split;
}

}  // namespace lowbit::cuda
