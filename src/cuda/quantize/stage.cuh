// Blocks of 18, 34 or 36 bytes between memory and the lanes of a warp: memory is accessed in 16 bytes per lane, the fields of a block in
// halves and words of shared memory that belongs to the warp.
#pragma once
#include "cuda/formats/load_bytes.cuh"
#include "cuda/quantize/reduce.cuh"

namespace lowbit::cuda {

// Both addresses are aligned to 16; `bytes` is even. The shared memory is complete for the warp before and after.
__device__ inline void copy_to_stage(const uint8_t* memory, int bytes, uint8_t* stage, int lane) {
    for (int at = 16 * lane; at + 16 <= bytes; at += 16 * warp_size) {
        uint32_t words[4];
        load_words<4>(memory + at, words);
        store_words<4>(stage + at, words);
    }
    for (int at = bytes / 16 * 16 + 2 * lane; at < bytes; at += 2 * warp_size)
        *reinterpret_cast<uint16_t*>(stage + at) = *reinterpret_cast<const uint16_t*>(memory + at);
    __syncwarp();
}

__device__ inline void copy_from_stage(const uint8_t* stage, int bytes, uint8_t* memory, int lane) {
    __syncwarp();
    for (int at = 16 * lane; at + 16 <= bytes; at += 16 * warp_size) {
        uint32_t words[4];
        load_words<4>(stage + at, words);
        store_words<4>(memory + at, words);
    }
    for (int at = bytes / 16 * 16 + 2 * lane; at < bytes; at += 2 * warp_size)
        *reinterpret_cast<uint16_t*>(memory + at) = *reinterpret_cast<const uint16_t*>(stage + at);
}

__device__ inline uint32_t stage_half(const uint8_t* stage) { return *reinterpret_cast<const uint16_t*>(stage); }
__device__ inline void stage_half(uint8_t* stage, uint32_t half) { *reinterpret_cast<uint16_t*>(stage) = uint16_t(half); }

// A word at an even address, or at a multiple of four.
__device__ inline uint32_t stage_word(const uint8_t* stage) { return stage_half(stage) | stage_half(stage + 2) << 16; }
template <bool Aligned>
__device__ inline void stage_word(uint8_t* stage, uint32_t word) {
    if constexpr (Aligned) {
        *reinterpret_cast<uint32_t*>(stage) = word;
    } else {
        stage_half(stage, word);
        stage_half(stage + 2, word >> 16);
    }
}

}  // namespace lowbit::cuda
