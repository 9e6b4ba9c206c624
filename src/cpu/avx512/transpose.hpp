// A square of 16 x 16 elements of 4 bytes, turned over in registers.
#pragma once
#include "cpu/simd/intrinsics.hpp"

namespace lowbit::cpu {
namespace {

// Sixteen rows of 64 bytes as a 16 x 16 matrix of 4-byte elements, transposed: element j of row i goes to element i of row j.
[[gnu::always_inline]] inline void transpose(__m512i (&rows)[16]) {
    __m512i pairs[16];
    for (int i = 0; i < 16; i += 2) {
        pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    __m512i fours[16];  // in each 128-bit lane l, fours[4 g + j]: element 4 l + j of rows 4 g .. 4 g + 3
    for (int i = 0; i < 16; i += 4) {
        fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
        fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
        fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    for (int j = 0; j < 4; ++j) {
        const __m512i low = _mm512_shuffle_i32x4(fours[j], fours[4 + j], 0x44),
                      high = _mm512_shuffle_i32x4(fours[8 + j], fours[12 + j], 0x44);
        const __m512i low2 = _mm512_shuffle_i32x4(fours[j], fours[4 + j], 0xee),
                      high2 = _mm512_shuffle_i32x4(fours[8 + j], fours[12 + j], 0xee);
        rows[j] = _mm512_shuffle_i32x4(low, high, 0x88);
        rows[4 + j] = _mm512_shuffle_i32x4(low, high, 0xdd);
        rows[8 + j] = _mm512_shuffle_i32x4(low2, high2, 0x88);
        rows[12 + j] = _mm512_shuffle_i32x4(low2, high2, 0xdd);
    }
}

}  // namespace
}  // namespace lowbit::cpu
