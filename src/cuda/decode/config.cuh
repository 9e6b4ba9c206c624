// What the parts of the streaming product (stream.cuh) agree on: a launch's arguments, and what a kernel is compiled for.
#pragma once
#include <cstdint>

#include "cuda/decode/split.hpp"
#include "cuda/gemm/epilogue.cuh"
#include "cuda/gemm/group_scales.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/tensor_copy.cuh"

namespace lowbit::cuda {

// Tokens of 8 bits as they are given, and the workspace for them in the order of tiles (integer_tokens.cuh).
struct IntegerTokens {
    const uint8_t* codes = nullptr;
    int64_t row_bytes = 0, columns = 0;
    bool blocks = false;  // q8_1; otherwise rows of int8, whose scale is the epilogue's
    int segments = 1;     // of 128: 1 or 4 (2 where groups have 64, 8 where they have 16)
    int units = 0, tokens = 0;
    uint8_t* workspace = nullptr;
};

struct DecodeArgs {
    DecodeSplit split;
    int64_t rows = 0;  // of the weight
    int tiles = 0;
    int half_tiles = 0;               // of each half of the weight, where one gates the other; 0: no gate
    const uint8_t* tokens = nullptr;  // rows of whole units, zeros beyond K
    const uint8_t* terms = nullptr;   // of integer tokens in order, [token][unit]
    int64_t token_stride = 0;         // bytes
    int token_count = 0;
    IntegerTokens integers;
    bool orders_tokens = false;  // every block those of all of K for itself
    // Before the launch in front of it has ended: where the context asks for that, and behind a launch of the same call. That one writes no
    // weight, and began after those that may.
    bool begins_early = false;
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

// Where the copy engine finds the tokens, and the terms of integer ones.
struct TokenMaps {
    CUtensorMap tokens, terms;
};
constexpr int token_term_bytes = 32;  // of a unit

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

// Sources whose weights have their scales in; all products still have to be multiplied with this, which the epilogue does.
template <class Source>
constexpr bool has_scaled_weights = requires {
    Source::product_unit;
};
template <class Source>
constexpr float product_unit() {
    if constexpr (has_scaled_weights<Source>)
        return Source::product_unit;
    else
        return 1.0f;
}

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
    static constexpr bool scales_sums = Segments > 0 && !has_scaled_weights<Source>;
    // Before the warps that multiply stands one that brings the tokens. Two tiles of each take more registers than 17 warps have: it gives
    // up its own then, which takes four warps at a time.
    static constexpr bool trades_registers = TokenTiles * RowTiles > 2;
    static constexpr int helping_warps = trades_registers ? 4 : 1, most_threads = (helping_warps + most_decode_warps) * 32;
    // Of codes. Where memory is waited for, several times what its speed needs; where arithmetic is, what is asked for too early only
    // delays the tokens and the other blocks.
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
