// Statistics across the lanes of a warp.
#pragma once
#include "reference/scales.hpp"

namespace lowbit::cuda {

using reference::Range;

constexpr int warp_size = 32;
constexpr unsigned all_lanes = 0xffffffffu;

// Every lane gets the range of all. The order does not matter: minimum and maximum are exact.
__device__ inline Range warp_range(Range range) {
#pragma unroll
    for (int distance = warp_size / 2; distance > 0; distance /= 2) {
        Range other;
        other.lowest = __shfl_xor_sync(all_lanes, range.lowest, distance);
        other.highest = __shfl_xor_sync(all_lanes, range.highest, distance);
        range.merge(other);
    }
    return range;
}

// The sum in lane 0 is that of the format: lane i takes lane i + 16, then i + 8, ...
__device__ inline double warp_sum_pairwise(double sum) {
#pragma unroll
    for (int distance = warp_size / 2; distance > 0; distance /= 2) sum += __shfl_down_sync(all_lanes, sum, distance);
    return sum;
}

__device__ inline int64_t warp_sum(int64_t count) {
#pragma unroll
    for (int distance = warp_size / 2; distance > 0; distance /= 2) count += __shfl_xor_sync(all_lanes, count, distance);
    return count;
}

}  // namespace lowbit::cuda
