// What the parts of the streaming product (stream.cuh) agree on: how a weight is spread over the chip, a launch's arguments, and what a
// kernel is compiled for.
#pragma once
#include <cstdint>

#include "cuda/gemm/epilogue.cuh"
#include "cuda/gemm/group_scales.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/quantize/division.cuh"

namespace lowbit::cuda {

constexpr int rows_per_tile = 16, most_decode_warps = 16, atoms_per_unit = 2;
constexpr int narrow_unit_bytes = 1536;  // units of so many bytes leave registers for a second tile, and take longer to decode than to load
constexpr int most_phase_buffers = 4;
constexpr int fewest_shared_tokens = 3;  // fewer cost less than a cluster

// How a weight is spread over the chip (decode/split.cu).
struct DecodeSplit {
    int tiles_per_block = 1;
    int row_tiles = 1;  // of a warp
    int row_warps = 1, depth_warps = 1;
    int deep_rows = 0;                 // the first of row_warps: one warp more along K each, where some would be left over
    int units = 0;                     // of K
    int ring_slots = 1;                // of a warp; fewer than the kernel's where a warp has fewer units
    int phase_units = 1, phases = 1;   // stretches of K whose tokens come together
    int buffers = 1, token_pitch = 0;  // of phases; bytes from token to token in one
    int buffer_bytes = 0, shared_bytes = 0;
    IndexDivisor span, depth_warp_divisor, deep_warp_divisor;  // segments of K that share a scale; depth_warps, and one more

    __host__ __device__ int warps() const { return row_warps * depth_warps + deep_rows; }
    __host__ __device__ int most_depth() const { return depth_warps + (deep_rows > 0); }

    // Where a warp stands: its row of warps, its place along K, and among how many.
    struct Place {
        int row_warp, depth_warp, depth_warps;
    };
    __device__ Place place(int warp) const {
        const int deep = deep_rows * (depth_warps + 1);
        if (warp < deep) {
            const int row = int(deep_warp_divisor.quotient(uint32_t(warp)));
            return {row, warp - row * (depth_warps + 1), depth_warps + 1};
        }
        const int row = int(depth_warp_divisor.quotient(uint32_t(warp - deep)));
        return {deep_rows + row, warp - deep - row * depth_warps, depth_warps};
    }
};

struct DecodeArgs {
    DecodeSplit split;
    int64_t rows = 0;  // of the weight
    int tiles = 0;
    int half_tiles = 0;               // of each half of the weight, where one gates the other; 0: no gate
    const uint8_t* tokens = nullptr;  // rows of whole units, zeros beyond K
    int64_t token_stride = 0;         // bytes
    int token_count = 0;
    int sharers = 1;     // blocks of a cluster, which bring each other tokens
    GroupScales scales;  // group 0: none
    int groups = 0;      // of a row
    EpilogueArgs epilogue;

    // The tile at a place of the blocks' row of tiles. With a gate, those of the two halves take turns, so that a block has both of each
    // pair. For places that do not exist the last tile will do: its products are not stored.
    __device__ int tile(int place) const {
        const int inside = place < tiles ? place : tiles - 1;
        return half_tiles ? inside / 2 + inside % 2 * half_tiles : inside;
    }
};

// How the scales along K are kept: what changes the inner loop is a matter of the kernel. In the order of tiles, `halves` (fp16 or bf16),
// fp32 or bytes, they come through the ring, as do the terms of GGML `blocks`; in `rows` of any type, straight into registers, a round
// ahead.
enum class DecodeScales { none, halves, fp32, e8m0, e4m3, blocks, rows };

// Of a scale in the order of tiles.
__host__ __device__ constexpr int tile_scale_bytes_of(DecodeScales scales) {
    return scales == DecodeScales::halves ? 2 : scales == DecodeScales::fp32 ? 4 : 1;
}

// Sources that need nothing of a group.
struct NoDecodeGroup {
    __device__ explicit NoDecodeGroup(uint32_t) {}
};
// Sources whose scales are not the terms of blocks.
struct NoTerms {
    static constexpr int bytes = 0;
};

template <class Source_, int TokenTiles_, int RowTiles_, int Segments_, DecodeScales Scales_>
struct DecodeConfig {
    static constexpr DecodeScales Scales = Scales_;
    static constexpr bool zero_points = Source_::zero_points;
    using Source = Source_;
    using Mma = typename Source::Mma;
    static constexpr int TokenTiles = TokenTiles_, RowTiles = RowTiles_;
    static constexpr int Segments = Segments_;  // groups of a unit; 0: no scales along K
    static constexpr int steps_per_unit = atoms_per_unit * Source::steps_per_atom;
    static constexpr int steps_per_segment = steps_per_unit / (Segments > 0 ? Segments : 1);
    // Before the warps that multiply stands one that brings the tokens. Two tiles of each take more registers than 17 warps have: it gives
    // up its own then, which takes four warps at a time.
    static constexpr bool trades_registers = TokenTiles * RowTiles > 2;
    static constexpr int helping_warps = trades_registers ? 4 : 1, most_threads = (helping_warps + most_decode_warps) * 32;
    // Of codes. Where memory is waited for, twice what is needed on average; where arithmetic is, what is asked for too early only delays
    // the tokens and the other blocks.
    static constexpr int ring_bytes = (Source::unit_bytes <= narrow_unit_bytes && !Source::token_terms ? 4096 : 8192) / TokenTiles;
    static constexpr int slots = ring_bytes < 2 * RowTiles * Source::unit_bytes ? 2 : ring_bytes / (RowTiles * Source::unit_bytes);
    // A slot: the codes of the tiles, then their scales or terms, then their zero points.
    static constexpr int scale_room = Scales == DecodeScales::blocks ? Source::Terms::bytes
                                      : Scales == DecodeScales::rows ? 0
                                                                     : Segments * rows_per_tile * tile_scale_bytes_of(Scales);
    static constexpr int scales_at = RowTiles * Source::unit_bytes;
    static constexpr int zeros_at = scales_at + RowTiles * scale_room, zero_room = Segments * rows_per_tile;
    static constexpr int slot_bytes = zeros_at + (zero_points ? RowTiles * zero_room : 0);
    using Part = typename Mma::Accumulator;
    using Sum = std::conditional_t<(Segments > 0), float, Part>;
};

}  // namespace lowbit::cuda
