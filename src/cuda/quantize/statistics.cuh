// Statistics and scales of any input: a warp per group, and two passes for what depends on the whole tensor.
#pragma once
#include "cuda/quantize/reduce.cuh"
#include "cuda/quantize/units.cuh"

namespace lowbit::cuda {

constexpr int statistics_threads = 256;
constexpr int statistics_warps = statistics_threads / warp_size;

// A rectangle of x: the values that share a scale.
struct Group {
    int64_t first_row, last_row, first_column, last_column;  // without the last ones
};

// By a whole warp; every lane gets the result.
__device__ inline Range group_range(const core::Tensor& x, const Group& group, int lane) {
    Range range;
    for (int64_t row = group.first_row; row < group.last_row; ++row)
        for (int64_t column = group.first_column + lane * unit_values; column < group.last_column; column += warp_size * unit_values) {
            float values[unit_values];
            load_unit(x, row, column, int(smaller(unit_values, group.last_column - column)), values);
#pragma unroll
            for (int i = 0; i < unit_values; ++i) range.add(values[i]);
        }
    return warp_range(range);
}

// For the mean of |x| of int1: lane i has partial sum i of the format, so that the order of the additions is the reference's.
struct Magnitudes {
    double sum = 0;
    int64_t finite = 0;

    LOWBIT_HOST_DEVICE float mean() const { return finite ? float(sum / double(finite)) : 0.0f; }
};

// By a whole warp; lane 0 gets the result.
__device__ inline Magnitudes group_magnitudes(const core::Tensor& x, const Group& group, int lane) {
    Magnitudes all;
    for (int64_t row = group.first_row; row < group.last_row; ++row) {
        Magnitudes own;
        for (int64_t column = group.first_column + lane; column < group.last_column; column += warp_size) {
            const float value = load_value(x, row, column);
            if (!core::is_finite(value)) continue;
            own.sum += fabs(double(value));
            ++own.finite;
        }
        all.sum += warp_sum_pairwise(own.sum);
        all.finite += warp_sum(own.finite);
    }
    return all;
}

__device__ inline void store_scale(const core::QuantizedView& result, int64_t index, const Range& range, float mean) {
    const core::Format& format = result.format;
    const float tensor_scale = format.scale == Element::fp8_e4m3 ? *result.tensor_scale : 0.0f;
    const reference::Scale scale = reference::make_scale(format, range, mean, tensor_scale);
    reference::store_scale_bits(format.scale, result.scales, index, scale.bits);
    if (format.asymmetric) result.zero_points[index] = scale.zero_point;
}

// The group of scale `index` for row, group and block granularity.
LOWBIT_HOST_DEVICE inline Group group_of(const core::QuantizedView& result, int64_t index, int64_t scale_columns) {
    const core::Format& format = result.format;
    const int64_t scale_row = quotient(index, scale_columns), scale_column = index - scale_row * scale_columns;
    const int64_t height = format.granularity == Granularity::block ? smaller(format.group_rows, result.rows) : 1;
    const int64_t span = scale_span(format, result.columns);
    return {scale_row * height, smaller(result.rows, (scale_row + 1) * height), scale_column * span,
            smaller(result.columns, (scale_column + 1) * span)};
}

// One warp per scale.
__global__ void __launch_bounds__(statistics_threads)
    compute_scales(core::Tensor x, core::QuantizedView result, int64_t scales, int64_t scale_columns) {
    const int lane = int(threadIdx.x) % warp_size;
    const int64_t index = int64_t(blockIdx.x) * statistics_warps + threadIdx.x / warp_size;
    if (index >= scales) return;  // whole warps
    const Group group = group_of(result, index, scale_columns);
    const Range range = group_range(x, group, lane);
    const float mean = result.format.element == Element::int1 ? group_magnitudes(x, group, lane).mean() : 0.0f;
    if (lane == 0) store_scale(result, index, range, mean);
}

// What depends on the whole tensor, first pass: one warp per piece of x, a rectangle; one row where magnitudes are asked for, whose sums
// are added in the order of the rows.
struct Pieces {
    int64_t rows, columns;  // of one piece
    int64_t per_row;
    int64_t count;
};

struct PieceStatistics {
    Range range;
    Magnitudes magnitudes;
};

__global__ void __launch_bounds__(statistics_threads)
    measure_pieces(core::Tensor x, Pieces pieces, bool with_magnitudes, PieceStatistics* found) {
    const int lane = int(threadIdx.x) % warp_size;
    const int64_t index = int64_t(blockIdx.x) * statistics_warps + threadIdx.x / warp_size;
    if (index >= pieces.count) return;
    const int64_t down = quotient(index, pieces.per_row), along = index - down * pieces.per_row;
    const Group group{down * pieces.rows, smaller(x.rows, (down + 1) * pieces.rows), along * pieces.columns,
                      smaller(x.columns, (along + 1) * pieces.columns)};
    PieceStatistics own;
    own.range = group_range(x, group, lane);
    if (with_magnitudes) own.magnitudes = group_magnitudes(x, group, lane);
    if (lane == 0) found[index] = own;
}

// Second pass, one block: merges the pieces in order and stores the scale of the tensor.
__global__ void __launch_bounds__(statistics_threads)
    finish_tensor_scale(core::QuantizedView result, int64_t pieces, const PieceStatistics* found) {
    __shared__ Range ranges[statistics_warps];
    const int lane = int(threadIdx.x) % warp_size, warp = int(threadIdx.x) / warp_size;
    Range range;
    for (int64_t i = threadIdx.x; i < pieces; i += statistics_threads) range.merge(found[i].range);
    range = warp_range(range);
    if (lane == 0) ranges[warp] = range;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 0; i < statistics_warps; ++i) range.merge(ranges[i]);
    if (result.format.scale == Element::fp8_e4m3) {
        *result.tensor_scale = reference::fitted_tensor_scale(result.format.element, range);
        return;
    }
    Magnitudes all;
    if (result.format.element == Element::int1)
        for (int64_t i = 0; i < pieces; ++i) all.sum += found[i].magnitudes.sum, all.finite += found[i].magnitudes.finite;
    store_scale(result, 0, range, all.mean());
}

}  // namespace lowbit::cuda
