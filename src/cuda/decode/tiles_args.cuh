// A weight in tiles, and the launches that take one.
#pragma once
#include "core/context.hpp"
#include "core/packed.hpp"
#include "cuda/decode/config.cuh"

namespace lowbit::cuda {

struct TilesArgs {
    const uint8_t* codes = nullptr;
    int64_t tile_bytes = 0;          // from tile to tile
    int atoms = 0;                   // of a tile
    const uint8_t* terms = nullptr;  // of GGML types (block_tiles.cuh)
    int64_t tile_term_bytes = 0;
    int blocks = 0;  // of a row
};

// Null: no kernel for these groups and scales.
using TilesLaunch = void (*)(DecodeArgs, const TilesArgs&, int64_t columns, const core::Context&);

// One function per type of tokens, each in a file of its own. `segments`: groups of 128 values.
TilesLaunch nibbles_bf16_launch(const core::Format& format, int segments);
TilesLaunch nibbles_fp16_launch(const core::Format& format, int segments);
TilesLaunch nibbles_int8_launch(const core::Format& format, int segments);  // x int8 or q8_1
TilesLaunch blocks_bf16_launch(Element element);
TilesLaunch blocks_fp16_launch(Element element);
TilesLaunch blocks_int8_launch(Element element);  // x int8 or q8_1

}  // namespace lowbit::cuda
