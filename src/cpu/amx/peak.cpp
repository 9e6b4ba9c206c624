#include "cpu/amx/products.hpp"
#include "cpu/amx/tiles.hpp"

namespace lowbit::cpu {

// Four independent results keep the tile multiplier busy. The operands are not zero: with zeros the processor clocks higher than any real
// product lets it.
int64_t amx::integer_peak(int64_t rounds) {
    const TileScope tiles(tile_bytes);
    alignas(64) uint8_t operand[tile_size];
    uint32_t random = 1;
    for (uint8_t& byte : operand) byte = uint8_t((random = random * 1664525u + 1013904223u) >> 24);
    asm volatile("" ::"r"(operand) : "memory");
    _tile_loadd(4, operand, tile_bytes);
    _tile_loadd(5, operand, tile_bytes);
    _tile_loadd(6, operand, tile_bytes);
    _tile_loadd(7, operand, tile_bytes);
    for (int64_t round = 0; round < rounds; ++round) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    return rounds * 4 * 2 * tile_rows * tile_rows * tile_bytes;
}

}  // namespace lowbit::cpu
