// The tile registers: 8 tiles of 16 rows of 64 bytes. Here, tiles 0 .. 3 collect results, 4 and 5 hold left operands, 6 and 7 right ones,
// in which four consecutive numbers of a column stand together:
//
//     TDPBSSD     result[16][16] int32 += left[16][depth] int8 * right[depth / 4][16][4] int8            depth <= 64
//     TDPBF16PS   result[16][16] fp32 += left[16][depth / 2] bf16 * right[depth / 4][16][2] bf16       (depth in bytes)
//
// Fewer columns of the right operand and the result are possible: result_bytes / 4.
#pragma once
#include <cstdint>

#include "cpu/simd/intrinsics.hpp"

namespace lowbit::cpu {
namespace {

constexpr int64_t tile_rows = 16, tile_bytes = 64, tile_size = tile_rows * tile_bytes;

// The tiles in these sizes, for the life of this object; afterwards they are released, so that the operating system need not save them any
// more.
class TileScope {
public:
    explicit TileScope(int64_t depth, int64_t result_bytes = tile_bytes) {
        struct alignas(64) Configuration {
            uint8_t palette = 1, start_row = 0, reserved[14] = {};
            uint16_t row_bytes[16] = {};
            uint8_t rows[16] = {};
        } configuration;
        for (int tile = 0; tile < 8; ++tile) {
            const bool is_left = tile == 4 || tile == 5, is_right = tile >= 6;
            configuration.row_bytes[tile] = uint16_t(is_left ? depth : result_bytes);
            configuration.rows[tile] = uint8_t(is_right ? depth / 4 : tile_rows);
        }
        // Not _tile_loadconfig: GCC 12's declares only 8 of the 64 bytes as read, and drops the stores to the others.
        asm volatile("ldtilecfg %0" ::"m"(configuration));
    }
    ~TileScope() { _tile_release(); }
    TileScope(const TileScope&) = delete;
    TileScope& operator=(const TileScope&) = delete;
};

}  // namespace
}  // namespace lowbit::cpu
