// What the plan of a convolution (plan.hpp) tells its kernel (tensor_conv.cuh).
#pragma once
#include "cuda/convolve/result.cuh"

namespace lowbit::cuda {

constexpr int conv_most_taps = 16;     // along an axis
constexpr int conv_most_classes = 16;  // of one axis
constexpr int conv_threads = 256, conv_warps = conv_threads / 32, conv_groups = 2;
constexpr int conv_cell_bytes = 16;
constexpr int conv_staging_bytes = 128 + 16;  // of a position: what is stored at a time, and a step aside for the next position's banks

struct ConvAxisArgs {
    int size, kernel, stride, before, dilation, positions;
    int classes;
    int16_t first[conv_most_classes], end[conv_most_classes];  // taps inside, of each class

    __device__ int phase(int tap) const { return tap * dilation % stride; }
    __device__ int shift(int tap) const { return tap * dilation / stride; }
    __device__ int class_of(int position) const {
        const int start = position * stride - before;
        const int inside = start >= 0 ? 0 : (-start + dilation - 1) / dilation, beyond = (size - start + dilation - 1) / dilation;
        const int from = inside < kernel ? inside : kernel, to = beyond < from ? from : beyond < kernel ? beyond : kernel;
        int found = 0;
        while (found < classes - 1 && (first[found] != from || end[found] != to)) ++found;
        return found;
    }
};

// Where things lie in shared memory, in bytes.
struct ConvShared {
    int cells, weight, counts, places, terms, classes, corrections, scales, taps, chunks, steps, staging, total;
};

struct TensorConvArgs {
    const uint8_t *x, *weight;
    ConvAxisArgs down, across;
    int images, channels, pixel_bytes, group_bytes, outputs, weight_row_bytes;  // outputs, channels: of a group
    int unit;                                                                   // bytes that can be read at a time: 16, 8, 4 or 1
    int row_cells, image_rows;
    int pieces;   // cells of a pixel
    bool paired;  // a cell has two pixels
    // Columns of the weight that one chunk takes: a second one (else -1) where cells have two pixels.
    int columns;
    int8_t column_first[conv_most_taps], column_second[conv_most_taps];
    int chunks, steps;
    int tile_cells, plane_bytes, blocks, tiles;  // blocks: of 64 positions, per warpgroup
    bool stores_runs;                            // 16 bytes of outputs at a time
    ConvShared at;
    ConvResult result;
};

}  // namespace lowbit::cuda
