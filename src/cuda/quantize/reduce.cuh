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

// Of numbers without sign, as their bits.
__device__ inline uint32_t warp_largest(uint32_t bits) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_max_sync(all_lanes, bits);
#else
#pragma unroll
    for (int distance = warp_size / 2; distance > 0; distance /= 2) {
        const uint32_t other = __shfl_xor_sync(all_lanes, bits, distance);
        bits = other > bits ? other : bits;
    }
    return bits;
#endif
}

// Of `lanes` neighbouring lanes, a power of two.
__device__ inline uint32_t group_largest(uint32_t bits, int lanes) {
    for (int distance = 1; distance < lanes; distance *= 2) {
        const uint32_t other = __shfl_xor_sync(all_lanes, bits, distance);
        bits = other > bits ? other : bits;
    }
    return bits;
}

__device__ inline int64_t warp_sum(int64_t count) {
#pragma unroll
    for (int distance = warp_size / 2; distance > 0; distance /= 2) count += __shfl_xor_sync(all_lanes, count, distance);
    return count;
}

}  // namespace lowbit::cuda
