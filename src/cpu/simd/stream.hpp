// A weight that is read once, from memory: asks for its bytes some way ahead of their use. The processor's own prefetcher stops at the end
// of each 4 KB page and has to learn every row anew.
#pragma once
#include <cstdint>

namespace lowbit::cpu {
namespace {

struct Stream {
    int64_t row_stride;
    int64_t rows_at_once;  // read side by side: what follows the end of a row is the row that will be read in its place

    int64_t distance = 1024;

    static constexpr int64_t line = 64;

    // Bytes first .. first + count of the row are about to be used. Prefetching does not fault, so no address is too far.
    void prefetch(const uint8_t* row, int64_t first, int64_t count) const {
        int64_t ahead = first + distance;
        if (ahead >= row_stride) ahead += (rows_at_once - 1) * row_stride;
        const uintptr_t address = uintptr_t(row) + uintptr_t(ahead);
        for (int64_t i = 0; i < count; i += line) __builtin_prefetch(reinterpret_cast<const void*>(address + uintptr_t(i)));
    }
};

}  // namespace
}  // namespace lowbit::cpu
