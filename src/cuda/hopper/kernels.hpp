// The kernels of the Hopper main loop, one list per kind of weight: what a tile is good for, and how it is launched.
#pragma once
#include <span>

#include "core/context.hpp"
#include "core/format.hpp"
#include "cuda/hopper/config.cuh"

namespace lowbit::cuda {

struct HopperKernel {
    HopperTile tile;
    int shared_bytes = 0, most_splits = 1, store_tokens = 0;  // tokens of a box of the output
    // Of the tensor core's rate, in the main loop of a chip full of such tiles.
    double efficiency = 1.0;
    // `blocks` of the grid in clusters of `cluster`.
    void (*launch)(const HopperArgs& args, int blocks, int cluster, const core::Context& context) = nullptr;
};

using HopperKernels = std::span<const HopperKernel>;

HopperKernels hopper_bf16();
HopperKernels hopper_fp16();
HopperKernels hopper_int8();
HopperKernels hopper_fp8();
// Weights in tiles; `short_groups`: groups are shorter than 64 values. Empty: no kernel for the element.
HopperKernels hopper_tiles_bf16(Element element, bool short_groups);
HopperKernels hopper_tiles_fp16(Element element, bool short_groups);

struct HopperChoice {
    int kernel = 0, splits = 1;
};

// The kernel with the least cost, in plain numbers; `k_blocks` of 128 bytes of a token.
HopperChoice choose_hopper(HopperKernels kernels, int64_t rows, int64_t tokens, int64_t k_blocks, int multiprocessors);

}  // namespace lowbit::cuda
