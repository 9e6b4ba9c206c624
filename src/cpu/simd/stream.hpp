// A weight that is read once, from memory: asks for its bytes some way ahead of their use. The processor's own prefetcher stops at the end
// of each 4 KB page and has to learn every row anew.
#pragma once
#include <cstdint>

namespace lowbit::cpu {
namespace {

struct Stream {
    int64_t row_stride;
    int64_t rows_at_once;  // read side by side: what follows the end of a row is the row that will be read in its place

    int64_t distance = 2048;

    static constexpr int64_t line = 64;

    // Which bytes of a row to ask for, `first` of it being about to be used; beyond its end stands the row that follows in its place.
    int64_t ahead(int64_t first) const {
        const int64_t at = first + distance;
        return at >= row_stride ? at + (rows_at_once - 1) * row_stride : at;
    }

    // Into the second-level cache: the first holds a few lines on their way only. Prefetching does not fault, so no address is too far.
    static void prefetch(const uint8_t* row, int64_t at, int64_t count) {
        const uintptr_t address = uintptr_t(row) + uintptr_t(at);
        for (int64_t i = 0; i < count; i += line) __builtin_prefetch(reinterpret_cast<const void*>(address + uintptr_t(i)), 0, 2);
    }

    // Bytes first .. first + count of the row are about to be used.
    void prefetch_ahead(const uint8_t* row, int64_t first, int64_t count) const { prefetch(row, ahead(first), count); }
};

}  // namespace
}  // namespace lowbit::cpu
