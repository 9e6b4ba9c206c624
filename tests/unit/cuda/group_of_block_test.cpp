// Which group of scales a k block has: the multiplication of the copying warp against the division that it stands for.
#include "cuda/hopper/group_of_block.hpp"

#include <gtest/gtest.h>

namespace lowbit::cuda {
namespace {

void expect_quotients(int64_t blocks, int64_t k_blocks, int64_t step) {
    const GroupOfBlock group(blocks, k_blocks);
    for (int64_t k = 0; k < k_blocks; k += step)
        ASSERT_EQ(group(int(k)), k / blocks) << k << " of " << k_blocks << ", " << blocks << " in a group";
    ASSERT_EQ(group(int(k_blocks - 1)), (k_blocks - 1) / blocks) << k_blocks << ", " << blocks << " in a group";
}

TEST(GroupOfBlock, IsTheQuotient) {
    for (const int64_t k_blocks : {1, 2, 3, 63, 64, 65, 224, 448, 1021, 4096})
        for (int64_t blocks = 1; blocks <= k_blocks + 1; ++blocks) expect_quotients(blocks, k_blocks, 1);
}

TEST(GroupOfBlock, IsTheQuotientOfLongRows) {
    // Up to and beyond the products of both that 32 bits hold; a whole row in one group.
    for (const int64_t k_blocks : {65535, 65536, 65537, 70000, 1 << 20, (1 << 25) - 1})
        for (const int64_t blocks : {int64_t(1), int64_t(2), int64_t(3), int64_t(255), int64_t(65535), int64_t(65536), int64_t(65537),
                                     k_blocks - 1, k_blocks, int64_t(INT32_MAX)})
            expect_quotients(blocks, k_blocks, 1 + k_blocks / 4999);
}

}  // namespace
}  // namespace lowbit::cuda
