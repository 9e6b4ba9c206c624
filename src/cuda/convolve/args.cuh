// What the plan of a convolution (plan.hpp) tells its kernel (tensor_conv.cuh).
#pragma once
#include "cuda/convolve/result.cuh"

namespace lowbit::cuda {

constexpr int conv_most_taps = 16;    // along an axis
constexpr int conv_most_steps = 256;  // products of 256 bits that make a result
// Warpgroups of a multiprocessor, as far as registers go: in one block or in several.
__host__ __device__ constexpr int conv_most_groups(int outputs) { return outputs <= 64 ? 6 : 4; }
// How the bits of a pixel or a tap are read: whole cells; 8 bytes, which fold with their complement into a cell; or whatever there is.
enum class ConvBits { cells, folded, any };
constexpr int conv_cell_bytes = 16;
constexpr int conv_staging_bytes = 128 + 16;  // of a position: what is stored at a time, and a step aside for the next position's banks

// Quotients of numbers below 2^31 by one that is known before the launch.
struct Divisor {
    uint32_t multiplier = 0, shift = 0, one = 1;  // one: by 1, for which no multiplier is small enough

    Divisor() = default;
    explicit Divisor(int value) {
        if (value == 1) return;
        one = 0;
        while ((int64_t(1) << (shift + 1)) < value) ++shift;
        // Rounded up: for n < 2^31 the error stays below 1 / value.
        multiplier = uint32_t(((uint64_t(1) << (32 + shift)) + uint64_t(value) - 1) / uint64_t(value));
    }
    __device__ int quotient(int n) const { return int((__umulhi(uint32_t(n), multiplier) >> shift) + uint32_t(n) * one); }
};

struct ConvAxisArgs {
    int size, kernel, stride, before, dilation, positions;
    Divisor by_dilation;

    __host__ __device__ int phase(int tap) const { return tap * dilation % stride; }
    __host__ __device__ int shift(int tap) const { return tap * dilation / stride; }
    // How many taps of a position of the result are inside of the image.
    __device__ int taps_inside(int position) const {
        const int start = position * stride - before;
        const int first = by_dilation.quotient(max(-start, 0) + dilation - 1);
        const int end = min(by_dilation.quotient(max(size - start, 0) + dilation - 1), kernel);
        return max(end - first, 0);
    }
};

// Where things lie in shared memory, in bytes. Of cells, places and terms there are two: for this tile and the next.
struct ConvShared {
    int cells, weight, places, terms, scales, staging, total;
};

struct TensorConvArgs {
    const uint8_t *x, *weight;
    ConvAxisArgs down, across;
    int images, pixel_bytes, group_bytes, outputs, weight_row_bytes;  // outputs: of a group
    int tap_bits;  // what a tap inside adds to the number that comes off twice the matches: channels, and twice the bits that fill up cells
    int unit;      // bytes that can be read at a time: 16, 8, 4 or 1
    int row_cells, image_rows;
    Divisor by_row_cells, by_image_rows, by_pieces, by_slots;
    int phases;  // pixels that a position steps over
    int pieces;  // cells of a pixel, without those of its complement
    ConvBits bits;
    bool folded;     // a cell has both the bits of a pixel and their complement
    int slots;       // pieces of the weight of an output, with those that fill up a step
    int pass_cells;  // what the threads of a block bring at a time
    int tile_cells, plane_bytes, complement_bytes, buffer_bytes;
    int groups, blocks, tiles;                    // warpgroups; blocks of 64 positions that one of them takes of a tile
    bool stores_runs;                             // 16 bytes of outputs at a time
    int image_bytes, line_bytes, position_bytes;  // of the result
    ConvShared at;
    ConvResult result;
    // Of each step the first of its two cells, and how far the second is from it (in the upper 16 bits).
    int steps;
    uint32_t step_cells[conv_most_steps];
    uint8_t folded_taps[conv_most_taps * conv_most_taps];  // which tap comes when, where a step takes two
};

}  // namespace lowbit::cuda
