// The tile of a kernel of the Hopper main loop.
#pragma once

namespace lowbit::cuda {

constexpr int hopper_most_splits = 8;  // blocks of a cluster that share out K: more than eight need leave

struct HopperTile {
    int rows, tokens;   // of the result, per block
    int stages;         // of the ring
    int depth = 1;      // k blocks (128 bytes of a token) per stage
    int cluster = 1;    // blocks that share their tokens: each copies its part of them to all
    int boxes = 4;      // of the output that a warpgroup has under way
    int term_sets = 1;  // of what the epilogue needs for a tile, in shared memory: two where tiles are short and stores overlap
    bool alternate =
        false;  // each warpgroup has a tile of its own, and one multiplies while the other stores; else they halve a tile's rows

    // Warpgroups that multiply: four hide decoding better behind each other's products, where few tokens need few registers; three divide
    // rows that two do not.
    int groups = 2;
    // Teams of them take the stages of a tile by turns, and add up their sums at the end: few rows per block without too few warpgroups,
    // and far less to exchange than with as many blocks that share out K. A block has one tile, then.
    int teams = 1;
    constexpr int threads() const { return 128 * (groups + 1); }
    // The register file is dealt out evenly at the launch; then the warpgroup that copies gives most of its share away.
    constexpr int copy_registers() const { return groups == 2 ? 40 : 32; }
    constexpr int multiply_registers() const { return groups == 2 ? 232 : groups == 3 ? 160 : 112; }
};

}  // namespace lowbit::cuda
