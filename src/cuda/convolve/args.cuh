// What the plan of a convolution (plan.hpp) tells its kernel (tensor_conv.cuh).
#pragma once
#include "cuda/convolve/result.cuh"

namespace lowbit::cuda {

constexpr int conv_most_taps = 16;     // along an axis
constexpr int conv_most_classes = 16;  // of one axis
constexpr int conv_threads = 256, conv_warps = conv_threads / 32, conv_groups = 2;
// Blocks of a multiprocessor, as far as registers go.
__host__ __device__ constexpr int conv_resident_blocks(int outputs) { return outputs == 64 ? 3 : 2; }
constexpr int conv_cell_bytes = 16;
constexpr int conv_staging_bytes = 128 + 16;  // of a position: what is stored at a time, and a step aside for the next position's banks

// Quotients of numbers below 2^30 by one that is known before the launch.
struct Divisor {
    uint32_t value = 1, multiplier = 0, shift = 0;

    Divisor() = default;
    explicit Divisor(int divisor) : value(uint32_t(divisor)) {
        while ((uint64_t(1) << shift) < value) ++shift;
        // Rounded up: for n < 2^30 the error stays below 1 / value.
        multiplier = uint32_t(((uint64_t(1) << (31 + shift)) + value - 1) / value);
    }
    __device__ int quotient(int n) const { return value == 1 ? n : int(uint64_t(uint32_t(n)) * multiplier >> 31 >> shift); }
};

struct ConvAxisArgs {
    int size, kernel, stride, before, dilation, positions;
    int classes;
    int16_t first[conv_most_classes], end[conv_most_classes];  // taps inside, of each class

    __device__ int phase(int tap) const { return tap * dilation % stride; }
    __device__ int shift(int tap) const { return tap * dilation / stride; }
    __device__ int rounded_up(int distance) const { return dilation == 1 ? distance : (distance + dilation - 1) / dilation; }
    __device__ int class_of(int position) const {
        const int start = position * stride - before;
        const int inside = start >= 0 ? 0 : rounded_up(-start), beyond = size > start ? rounded_up(size - start) : 0;
        const int from = inside < kernel ? inside : kernel, to = beyond < from ? from : beyond < kernel ? beyond : kernel;
        int found = 0;
        while (found < classes - 1 && (first[found] != from || end[found] != to)) ++found;
        return found;
    }
};

// Where things lie in shared memory, in bytes.
struct ConvShared {
    int cells, weight, counts, places, terms, classes, line_classes, corrections, scales, taps, chunks, steps, staging, total;
};

struct TensorConvArgs {
    const uint8_t *x, *weight;
    ConvAxisArgs down, across;
    int images, channels, pixel_bytes, group_bytes, outputs, weight_row_bytes;  // outputs, channels: of a group
    int unit;                                                                   // bytes that can be read at a time: 16, 8, 4 or 1
    int row_cells, image_rows;
    Divisor by_row_cells, by_image_rows, by_pieces;
    int pieces;   // cells of a pixel
    bool paired;  // a cell has two pixels
    // Columns of the weight that one chunk takes: a second one (else -1) where cells have two pixels.
    int columns;
    int8_t column_first[conv_most_taps], column_second[conv_most_taps];
    int chunks, steps;
    int tile_cells, plane_bytes, buffer_bytes;  // of cells; there are two buffers, for this tile and the next
    int blocks, tiles;                          // blocks: of 64 positions, per warpgroup
    bool stores_runs;                           // 16 bytes of outputs at a time
    ConvShared at;
    ConvResult result;
};

}  // namespace lowbit::cuda
