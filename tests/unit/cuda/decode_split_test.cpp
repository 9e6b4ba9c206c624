// How products of few tokens are spread over a chip: plans in plain numbers, checked without a GPU.
#include "cuda/decode/split.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "core/status.hpp"

namespace lowbit::cuda {
namespace {

constexpr int multiprocessors = 132, block_bytes = 227 * 1024 - 1024, most_tokens = 16;

// Sources as the kernels have them: 4-bit tiles with 16-bit and with integer tokens, levels with their table, a K type of 6 bits, rows.
struct Source {
    const char* name;
    int unit_values, unit_bytes, token_unit_bytes, token_term_bytes, segments, group, table_bytes;
    int (*slot_bytes)(int), (*slots)(int, int);
};

template <int UnitBytes, int ScaleBytes>
int slot_bytes(int row_tiles) {
    return row_tiles * (UnitBytes + ScaleBytes);
}
template <int UnitBytes, int RingBytes>
int slots(int row_tiles, int token_tiles) {
    return std::max(2, RingBytes / token_tiles / (row_tiles * UnitBytes));
}

const Source sources[] = {
    {"int4:g128", 128, 1024, 256, 0, 1, 128, 0, slot_bytes<1024, 32>, slots<1024, 4096>},
    {"int4:g32", 128, 1024, 256, 0, 4, 32, 0, slot_bytes<1024, 128>, slots<1024, 4096>},
    {"nf4:g64", 128, 1024, 256, 0, 2, 64, 32 << 10, slot_bytes<1024, 64>, slots<1024, 4096>},
    {"q4_0 x q8_1", 128, 1024, 128, 32, 4, 32, 0, slot_bytes<1024, 128>, slots<1024, 8192>},
    {"q6_k", 128, 1536, 256, 0, 8, 16, 0, slot_bytes<1536, 160>, slots<1536, 4096>},
    {"int8:row", 128, 2048, 256, 0, 0, 0, 0, slot_bytes<2048, 0>, slots<2048, 8192>},
    {"bf16", 64, 2048, 128, 0, 0, 0, 0, slot_bytes<2048, 0>, slots<2048, 8192>},
};

DecodeSizes sizes_of(const Source& s, int64_t rows, int64_t columns, bool pairs) {
    return {rows,    columns,      s.unit_values, s.unit_bytes, s.token_unit_bytes,    s.token_term_bytes, s.segments,
            s.group, s.slot_bytes, s.slots,       pairs,        s.token_term_bytes > 0};
}

// Every warp of a plan once, at a place of its own, and every unit of K of every row of warps by one of them.
void expect_each_unit_once(const DecodeSplit& split) {
    std::vector<std::vector<int>> taken(size_t(split.row_warps), std::vector<int>(size_t(split.units), 0));
    for (int warp = 0; warp < split.warps(); ++warp) {
        const DecodeSplit::Place at = split.place(warp);
        ASSERT_TRUE(at.row_warp >= 0 && at.row_warp < split.row_warps) << "warp " << warp;
        ASSERT_LE(at.depth_warps, split.most_depth());
        ASSERT_TRUE(at.depth_warp >= 0 && at.depth_warp < at.depth_warps) << "warp " << warp;
        for (int unit = at.depth_warp; unit < split.units; unit += at.depth_warps) ++taken[size_t(at.row_warp)][size_t(unit)];
    }
    for (const auto& row : taken)
        for (const int times : row) ASSERT_EQ(times, 1);
}

void expect_room(const DecodeSplit& split, const DecodeSizes& sizes, int tokens, int limit) {
    EXPECT_LE(split.shared_bytes, limit);
    EXPECT_GT(2 * split.shared_bytes, limit);  // one block on a multiprocessor
    EXPECT_GE(split.phases * split.phase_units, split.units);
    EXPECT_LT((split.phases - 1) * split.phase_units, split.units);
    EXPECT_TRUE(split.buffers >= 1 && split.buffers <= std::min(split.phases, most_phase_buffers));
    EXPECT_EQ(split.row_bytes, tokens * token_run_bytes);
    EXPECT_EQ(split.terms_at, split.phase_units * sizes.token_unit_bytes * tokens);
    EXPECT_GE(split.buffer_bytes, split.terms_at + split.phase_units * sizes.token_term_bytes * tokens);
    EXPECT_EQ(split.buffer_bytes % 1024, 0);  // where the swizzle begins anew
    if (!sizes.one_phase || split.phases > 1) {
        EXPECT_LE(split.phase_units * (sizes.token_unit_bytes / token_run_bytes), 256);  // what the copy engine takes in a box
    }
    const int rings = split.warps() * split.ring_slots * sizes.slot_bytes(split.row_tiles);
    EXPECT_LE(rings + split.buffers * split.buffer_bytes, split.shared_bytes);
    // The kernel fills all slots it was compiled with: a ring has as many, or as many as a warp has units.
    const int most_units = int(core::ceil_div(split.units, split.depth_warps));
    EXPECT_GE(split.ring_slots, std::min(sizes.slots(split.row_tiles, tokens > 8 ? 2 : 1), most_units));
    // Results of all parts of K take the place of the rings.
    const int pitch = split.row_warps * split.row_tiles * rows_per_tile + 4, token_tiles = tokens > 8 ? 2 : 1;
    EXPECT_LE(split.most_depth() * 8 * token_tiles * pitch * 4, split.shared_bytes);
}

// What the order of a sum follows from.
std::vector<int> order(const DecodeSplit& s) { return {s.tiles_per_block, s.row_tiles, s.row_warps, s.depth_warps, s.deep_rows, s.units}; }

class DecodeSplits : public testing::TestWithParam<Source> {};

TEST_P(DecodeSplits, CoverTheWeightAndFit) {
    const Source& source = GetParam();
    const int limit = block_bytes - source.table_bytes;
    for (const int64_t rows : {1, 15, 16, 17, 100, 1024, 2113, 4096, 6144, 8192, 28672, 57344, 128256, 1000003})
        for (const int64_t columns : {1, 63, 64, 128, 129, 512, 1000, 4096, 8192, 14336, 28672, 100000})
            for (const bool pairs : {false, true}) {
                const DecodeSizes sizes = sizes_of(source, rows, columns, pairs);
                const DecodeSplit first = split_decode(sizes, 1, multiprocessors, limit);
                SCOPED_TRACE(std::string(source.name) + " " + std::to_string(rows) + " x " + std::to_string(columns));
                ASSERT_TRUE(first.warps() >= 1 && first.warps() <= most_decode_warps);
                ASSERT_GE(first.row_warps * first.row_tiles, first.tiles_per_block);
                if (pairs) {
                    ASSERT_EQ(first.tiles_per_block % 2, 0);
                }
                expect_each_unit_once(first);
                for (int tokens = 1; tokens <= most_tokens; ++tokens) {
                    const DecodeSplit split = split_decode(sizes, tokens, multiprocessors, limit);
                    ASSERT_EQ(order(split), order(first)) << tokens << " tokens";
                    expect_room(split, sizes, tokens, limit);
                    // With less room than any chip of today has, K is split less far: for all numbers of tokens alike.
                    const DecodeSplit narrow = split_decode(sizes, tokens, multiprocessors, 110 << 10);
                    ASSERT_EQ(order(narrow), order(split_decode(sizes, 1, multiprocessors, 110 << 10))) << tokens << " tokens";
                    if (HasFailure()) return;
                }
            }
}

INSTANTIATE_TEST_SUITE_P(Sources, DecodeSplits, testing::ValuesIn(sources), [](const auto& tested) {
    std::string name = tested.param.name;
    std::replace_if(
        name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
    return name;
});

TEST(DecodeSplit, FillsTheChip) {
    const Source& int4 = sources[0];
    // All warps of a block have work, and nearly all multiprocessors a block, for the linears of a large model.
    for (const auto& [rows, columns] :
         {std::pair<int64_t, int64_t>{28672, 4096}, {57344, 8192}, {8192, 28672}, {4096, 14336}, {4096, 4096}}) {
        const DecodeSplit split = split_decode(sizes_of(int4, rows, columns, false), 1, multiprocessors, block_bytes);
        EXPECT_EQ(split.warps(), most_decode_warps) << rows << " x " << columns;
        const int64_t blocks = core::ceil_div(core::ceil_div(rows, rows_per_tile), split.tiles_per_block);
        EXPECT_TRUE(blocks > multiprocessors * 9 / 10 && blocks <= multiprocessors) << rows << " x " << columns << ": " << blocks;
        EXPECT_EQ(split.row_tiles, 2);
    }
}

}  // namespace
}  // namespace lowbit::cuda
