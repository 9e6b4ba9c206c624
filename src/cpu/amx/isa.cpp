#include "cpu/amx/products.hpp"
#include "cpu/amx/tiles.hpp"

namespace lowbit::cpu {

// Four independent results keep the tile multiplier busy.
int64_t amx::integer_peak(int64_t rounds) {
    const TileScope tiles;
    for (int64_t round = 0; round < rounds; ++round) {
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
    }
    return rounds * 4 * 2 * tile_rows * tile_rows * tile_bytes;
}

const Isa& amx_isa() {
    static const Isa isa = [] {
        Isa table = avx512_isa();
        table.name = "amx";
        table.int8 = amx::int8;
        table.q4_0_q8 = amx::q4_0_q8;
        table.q8_0_q8 = amx::q8_0_q8;
        table.integer_peak = amx::integer_peak;
        return table;
    }();
    return isa;
}

}  // namespace lowbit::cpu
