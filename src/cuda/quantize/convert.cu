// Plain numbers from one type to another.
#include "cuda/quantize/fast.hpp"
#include "cuda/quantize/launcher.cuh"
#include "cuda/quantize/unit_codes.cuh"
#include "cuda/quantize/unit_values.cuh"

namespace lowbit::cuda {
namespace {

constexpr int convert_threads = 256;

__device__ bool is_byte(Element element) { return element == Element::fp8_e4m3 || element == Element::fp8_e5m2; }

__device__ uint8_t* byte_place(const core::Tensor& tensor, int64_t row, int64_t column) {
    return static_cast<uint8_t*>(tensor.data) + row * tensor.row_stride + column * tensor.column_stride;
}

// load_unit and store_unit, for fp8 as well.
__device__ void load_any(const core::Tensor& x, int64_t row, int64_t column, int valid, float (&values)[unit_values]) {
    if (!is_byte(x.element)) return load_unit(x, row, column, valid, values);
    const uint8_t* from = byte_place(x, row, column);
    uint32_t words[2] = {};
    if (x.column_stride == 1) {
        load_bytes<unit_values>(from, valid, words);
    } else {
#pragma unroll
        for (int i = 0; i < unit_values; ++i)
            if (i < valid) words[i / 4] |= uint32_t(from[i * x.column_stride]) << (8 * (i % 4));
    }
    x.element == Element::fp8_e4m3 ? decode_unit<Element::fp8_e4m3>(words, 0, values) : decode_unit<Element::fp8_e5m2>(words, 0, values);
}

__device__ void store_any(const core::Tensor& y, int64_t row, int64_t column, int valid, const float (&values)[unit_values]) {
    if (!is_byte(y.element)) return store_unit(y, row, column, valid, values);
    uint32_t words[2] = {};
#pragma unroll
    for (int i = 0; i < unit_values; i += 2) {
        const uint32_t pair = y.element == Element::fp8_e4m3 ? fp8_pair<Element::fp8_e4m3>(values[i], values[i + 1])
                                                             : fp8_pair<Element::fp8_e5m2>(values[i], values[i + 1]);
        words[i / 4] |= pair << (8 * (i % 4));
    }
    uint8_t* to = byte_place(y, row, column);
    if (valid == unit_values && y.column_stride == 1 && is_aligned(to, 8)) return store_words<2>(to, words);
#pragma unroll
    for (int i = 0; i < unit_values; ++i)
        if (i < valid) to[i * y.column_stride] = uint8_t(words[i / 4] >> (8 * (i % 4)));
}

// A thread per unit.
__global__ void __launch_bounds__(convert_threads) convert_units(core::Tensor x, core::Tensor y, int64_t per_row, int64_t units) {
    const int64_t index = int64_t(blockIdx.x) * convert_threads + threadIdx.x;
    if (index >= units) return;
    const UnitPosition at(index, per_row);
    float values[unit_values];
    load_any(x, at.row, at.column, at.valid(y.columns), values);
    store_any(y, at.row, at.column, at.valid(y.columns), values);
}

// Dense along its rows becomes dense along its columns: tiles of 64 x 64 go through shared memory, so that both sides move whole units.
constexpr int tile = 64, tile_units = tile / unit_values;

// `across` is x with rows and columns exchanged.
__global__ void __launch_bounds__(convert_threads) convert_tiles(core::Tensor across, core::Tensor y, int64_t per_row, int64_t tiles) {
    __shared__ float values[tile][tile + 1];  // [column][row]
    for (int64_t index = blockIdx.x; index < tiles; index += gridDim.x) {
        const int64_t first_row = quotient(index, per_row) * tile, first_column = (index - quotient(index, per_row) * per_row) * tile;
        __syncthreads();
        for (int unit = threadIdx.x; unit < tile * tile_units; unit += convert_threads) {
            const int column = unit / tile_units, row = unit % tile_units * unit_values;
            const int64_t left = y.rows - first_row - row;
            if (first_column + column >= y.columns || left <= 0) continue;
            float eight[unit_values];
            load_any(across, first_column + column, first_row + row, int(smaller(unit_values, left)), eight);
#pragma unroll
            for (int i = 0; i < unit_values; ++i) values[column][row + i] = eight[i];
        }
        __syncthreads();
        for (int unit = threadIdx.x; unit < tile * tile_units; unit += convert_threads) {
            const int row = unit / tile_units, column = unit % tile_units * unit_values;
            const int64_t left = y.columns - first_column - column;
            if (first_row + row >= y.rows || left <= 0) continue;
            float eight[unit_values];
#pragma unroll
            for (int i = 0; i < unit_values; ++i) eight[i] = values[column + i][row];
            store_any(y, first_row + row, first_column + column, int(smaller(unit_values, left)), eight);
        }
    }
}

}  // namespace

void run_convert(const core::ConvertProblem& problem) {
    const core::ConvertProblem ordered = problem.in_order();
    const core::Tensor &x = ordered.x, &y = ordered.y;
    if (y.rows == 0 || y.columns == 0) return;
    if (y.rows > 1 && x.row_stride == 1 && x.column_stride > 1 && y.column_stride == 1) {
        const int64_t per_row = core::ceil_div(y.columns, tile), tiles = core::ceil_div(y.rows, tile) * per_row;
        const auto blocks = unsigned(std::min<int64_t>(tiles, 1 << 20));
        return launch("convert_tiles", convert_tiles, {blocks, convert_threads}, *problem.context, x.transposed(), y, per_row, tiles);
    }
    const int64_t per_row = units_per_row(y.columns), units = y.rows * per_row;
    launch("convert_units", convert_units, {blocks_for(units, convert_threads), convert_threads}, *problem.context, x, y, per_row, units);
}

}  // namespace lowbit::cuda
