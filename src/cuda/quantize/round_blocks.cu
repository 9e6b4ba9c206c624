// Tokens of a product rounded to q8_0 or q8_1 (whose values are the same) and held in fp16: what quantizing and dequantizing them makes of
// them, in one pass. For few tokens, so latency counts: eight lanes share a block of 32 values, four each.
#include "cuda/formats/load_bytes.cuh"
#include "cuda/numbers.cuh"
#include "cuda/quantize/fast.hpp"
#include "cuda/quantize/launcher.cuh"
#include "reference/ggml_simple.hpp"

namespace lowbit::cuda {
namespace {

constexpr int round_threads = 128, lane_values = 4, lanes_of_block = reference::ggml::Q8_1::values / lane_values;

struct RoundArguments {
    core::Tensor x;
    uint8_t* rows;      // of fp16
    int64_t pitch;      // in bytes; zeros from the last column on
    int blocks_of_row;  // of the grid
    bool whole;         // four neighbours of x can be loaded at once
};

__device__ inline void load_four(const RoundArguments& arguments, int64_t row, int64_t column, float (&values)[lane_values]) {
    const core::Tensor& x = arguments.x;
    const int64_t index = row * x.row_stride + column * x.column_stride;
    if (!arguments.whole) {
#pragma unroll
        for (int i = 0; i < lane_values; ++i) values[i] = load_number(x.element, x.data, index + i * x.column_stride);
    } else if (x.element == Element::fp32) {
        const float4 four = *reinterpret_cast<const float4*>(static_cast<const float*>(x.data) + index);
        values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
    } else {
        const uint2 two = *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(x.data) + index);
        const uint32_t words[2] = {two.x, two.y};
#pragma unroll
        for (int i = 0; i < lane_values; ++i) values[i] = number_from_bits(x.element, words[i / 2] >> (16 * (i % 2)) & 0xffffu);
    }
}

__global__ void __launch_bounds__(round_threads) round_blocks(RoundArguments arguments) {
    wait_in_chain(true);
    const int64_t row = int(blockIdx.x) / arguments.blocks_of_row;
    const int64_t column = (int64_t(int(blockIdx.x) % arguments.blocks_of_row) * round_threads + threadIdx.x) * lane_values;
    if (column * 2 >= arguments.pitch) return;  // whole warps: a pitch is a multiple of 256 bytes
    // Rows are whole blocks: all lanes of a block are inside, or none.
    float values[lane_values] = {};
    if (column < arguments.x.columns) load_four(arguments, row, column, values);
    float largest = 0.0f;
#pragma unroll
    for (int i = 0; i < lane_values; ++i) largest = fmaxf(largest, fabsf(values[i]));  // NaN counts for nothing
#pragma unroll
    for (int distance = lanes_of_block / 2; distance > 0; distance /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
    const float scale = core::divide(largest, 127.0f), inverse = reference::ggml::inverse_or_zero(scale);
    const float stored = half_to_float(float_to_half(scale));
    uint32_t halves[lane_values];
#pragma unroll
    for (int i = 0; i < lane_values; ++i) {
        const int code = reference::ggml::round_half_away_between(core::product(values[i], inverse), -128, 127);
        halves[i] = float_to_half(core::product(float(code), stored));
    }
    *reinterpret_cast<uint2*>(arguments.rows + row * arguments.pitch + column * 2) =
        make_uint2(halves[0] | halves[1] << 16, halves[2] | halves[3] << 16);
}

}  // namespace

void run_round_blocks(const core::Context& context, const core::Tensor& x, uint8_t* rows, int64_t pitch) {
    const int bytes = core::element_bytes(x.element);
    const bool whole = x.column_stride == 1 && is_aligned(x.data, lane_values * bytes) && (x.rows <= 1 || x.row_stride % lane_values == 0);
    const int blocks_of_row = int(core::ceil_div(pitch / 2, round_threads * lane_values));
    const RoundArguments arguments{x, rows, pitch, blocks_of_row, whole};
    launch_in_chain(context, "round_blocks", round_blocks, {unsigned(x.rows * blocks_of_row), round_threads, 0}, arguments);
}

}  // namespace lowbit::cuda
