// The kernels of the Hopper main loop, one list per kind of weight: what a tile is good for, and how it is launched. All lists of a kind
// have the same tiles in the same places; types that few models have lack some of them.
#pragma once
#include <span>
#include <string>

#include "core/context.hpp"
#include "core/format.hpp"
#include "cuda/hopper/tile.hpp"

namespace lowbit::cuda {

struct HopperArgs;

// Of the loop: the problem's rows and tokens, or, where they have changed places, its tokens and rows.
struct HopperSides {
    int64_t rows, tokens;
};

struct HopperKernel {
    HopperTile tile;
    bool exchanged = false;                                 // the sides have changed places: tile.rows are tokens
    int most_splits = 1, store_rows = 0, store_tokens = 0;  // of a box of the output
    bool can_halve = false;
    float product_unit = 1.0f;  // what the products still have to be multiplied with
    // What a k block takes, in clocks of a multiprocessor (measured on an H200) and in bytes of the weight.
    double clocks = 0;
    int weight_bytes = 0;       // of the loop's weight
    bool turns_scales = false;  // of tokens, by a launch before
    // How many clusters of so many blocks the device holds at a time.
    int (*resident_clusters)(int cluster) = nullptr;
    // `blocks` of the grid in clusters of `cluster`. early: begins before the launch in front of it has ended.
    void (*launch)(const HopperArgs& args, int blocks, int cluster, bool early, const core::Context& context) = nullptr;

    bool exists() const { return launch != nullptr; }
    HopperSides sides(int64_t rows, int64_t tokens) const { return exchanged ? HopperSides{tokens, rows} : HopperSides{rows, tokens}; }
};

using HopperKernels = std::span<const HopperKernel>;

// "128x256": rows and tokens. Of two tiles of a size the one whose warpgroups alternate has that name, the other is "128x128_together".
std::string tile_name(HopperKernels kernels, size_t index);

HopperKernels hopper_bf16();
HopperKernels hopper_fp16();
HopperKernels hopper_int8();
HopperKernels hopper_int8_uint8();  // tokens without sign
HopperKernels hopper_int1();
HopperKernels hopper_fp8(Element weight, Element tokens);
// fp8 with a scale for every 128 values of both sides; one scale: for blocks of whole tiles of the weight's rows.
HopperKernels hopper_fp8_blocks(bool one_scale);
// int4 in tiles x int8 or fp8 (e4m3): a scale per row, or one for every 128 values and more.
HopperKernels hopper_tiles_int8();
HopperKernels hopper_tiles_int8_groups(Element scale);
HopperKernels hopper_tiles_fp8();
HopperKernels hopper_tiles_fp8_groups(Element scale);
// Rows of 8 bits with tokens of 16. Empty: no kernel for the element.
HopperKernels hopper_widened_bf16(Element element);
HopperKernels hopper_widened_fp16(Element element);
// Weights in tiles: with `groups` groups in 64 values, or none that ends inside (1). Empty: no kernel for these.
HopperKernels hopper_tiles_bf16(Element element, int groups, Element scale);
HopperKernels hopper_tiles_fp16(Element element, int groups, Element scale);
// GGML types whose tiles are not nibbles with one scale.
HopperKernels hopper_blocks_bf16(Element element);
HopperKernels hopper_blocks_fp16(Element element);

// How many of the last tiles of clusters are shared out by halves of K: those of a last wave that would leave half of the chip idle.
int halved_tiles(const HopperKernel& kernel, int64_t rows, int64_t tokens, int64_t k_blocks);

struct HopperChoice {
    int kernel = 0, splits = 1;
    double cost = 0;  // in clocks of a multiprocessor
};

// The kernel with the least cost, in plain numbers; `k_blocks` of 128 bytes of a token.
HopperChoice choose_hopper(HopperKernels kernels, int64_t rows, int64_t tokens, int64_t k_blocks);

}  // namespace lowbit::cuda
