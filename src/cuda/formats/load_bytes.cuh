// A thread's bytes of a row, whatever their address: in pieces of 16, 8 or 4 where they are aligned, else one by one.
#pragma once
#include <cstdint>
#ifndef __CUDA_ARCH__
#include <cstring>
#endif

#include "core/host_device.hpp"

namespace lowbit::cuda {

LOWBIT_HOST_DEVICE inline bool is_aligned(const void* address, int bytes) {
    return (reinterpret_cast<uintptr_t>(address) & uintptr_t(bytes - 1)) == 0;
}

// `Words` words in one instruction; `from` is aligned to all of them.
template <int Words>
LOWBIT_HOST_DEVICE inline void load_words(const void* from, uint32_t* words) {
    static_assert(Words == 1 || Words == 2 || Words == 4);
#ifdef __CUDA_ARCH__
    if constexpr (Words == 4) {
        const uint4 loaded = *static_cast<const uint4*>(from);
        words[0] = loaded.x, words[1] = loaded.y, words[2] = loaded.z, words[3] = loaded.w;
    } else if constexpr (Words == 2) {
        const uint2 loaded = *static_cast<const uint2*>(from);
        words[0] = loaded.x, words[1] = loaded.y;
    } else {
        words[0] = *static_cast<const uint32_t*>(from);
    }
#else
    std::memcpy(words, from, Words * sizeof(uint32_t));
#endif
}

template <int Words>
LOWBIT_HOST_DEVICE inline void store_words(void* to, const uint32_t* words) {
    static_assert(Words == 1 || Words == 2 || Words == 4);
#ifdef __CUDA_ARCH__
    if constexpr (Words == 4)
        *static_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    else if constexpr (Words == 2)
        *static_cast<uint2*>(to) = make_uint2(words[0], words[1]);
    else
        *static_cast<uint32_t*>(to) = words[0];
#else
    std::memcpy(to, words, Words * sizeof(uint32_t));
#endif
}

// The first `Bytes` bytes at `from`, little-endian in words. Only the first `valid` of them are read; the others are 0.
template <int Bytes>
LOWBIT_HOST_DEVICE inline void load_bytes(const uint8_t* from, int valid, uint32_t (&words)[(Bytes + 3) / 4]) {
    constexpr int count = (Bytes + 3) / 4;
    if constexpr (Bytes % 4 == 0) {
        constexpr int at_once = count % 4 == 0 ? 4 : count % 2 == 0 ? 2 : 1;
        if (valid >= Bytes && is_aligned(from, 4 * at_once)) {
            LOWBIT_UNROLL
            for (int i = 0; i < count; i += at_once) load_words<at_once>(from + 4 * i, words + i);
            return;
        }
        if (valid >= Bytes && is_aligned(from, 4)) {
            LOWBIT_UNROLL
            for (int i = 0; i < count; ++i) load_words<1>(from + 4 * i, words + i);
            return;
        }
    }
    LOWBIT_UNROLL
    for (int i = 0; i < count; ++i) words[i] = 0;
    LOWBIT_UNROLL
    for (int i = 0; i < Bytes; ++i)
        if (i < valid) words[i / 4] |= uint32_t(from[i]) << (8 * (i % 4));
}

}  // namespace lowbit::cuda
