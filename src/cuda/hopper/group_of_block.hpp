#pragma once
#include <cstdint>

#include "core/host_device.hpp"

namespace lowbit::cuda {

// Which group a k block lies in, where `blocks` of them share one. By a multiplication: the warp that copies has 512 clocks for a k block
// of some tiles, and a division is some thirty instructions that wait for each other.
class GroupOfBlock {
public:
    GroupOfBlock() = default;
    // Exact for all of `k_blocks`.
    GroupOfBlock(int64_t blocks, int64_t k_blocks) : divisor_(uint32_t(blocks < k_blocks ? blocks : k_blocks)) {
        if (blocks < k_blocks) factor_ = blocks * k_blocks < int64_t(1) << 32 ? 0xffffffffu / divisor_ + 1 : divides;
    }

    LOWBIT_HOST_DEVICE int operator()(int k_block) const {
        if (divisor_ == 1) return k_block;
        return int(factor_ == divides ? uint32_t(k_block) / divisor_ : uint32_t(uint64_t(uint32_t(k_block)) * factor_ >> 32));
    }

private:
    static constexpr uint32_t divides = 1;  // no divisor has this factor
    uint32_t divisor_ = 1, factor_ = 0;     // 0: all k blocks lie in the first group
};

}  // namespace lowbit::cuda
