// What a processor can do at best: the yardsticks of `bench --op peak`.
#pragma once
#include <cstring>

#include "cpu/simd/tiles.hpp"

namespace lowbit::cpu {
namespace {

// Adds up all of the memory.
template <class S>
uint64_t read(const void* memory, int64_t n) {
    constexpr int64_t vectors = 4, step = vectors * int64_t(sizeof(typename S::Int)), ahead = 2048, line = 64;
    const auto* bytes = static_cast<const uint8_t*>(memory);
    typename S::Int sums[vectors] = {};
    int64_t i = 0;
    for (; i + step <= n; i += step) {
        for (int64_t p = 0; p < step; p += line) __builtin_prefetch(bytes + i + ahead + p);
        for (int v = 0; v < vectors; ++v) sums[v] = S::add(sums[v], S::load_int(bytes + i + v * int64_t(sizeof(typename S::Int))));
    }
    uint64_t total = 0;
    for (const auto& sum : sums) total += uint32_t(S::sum(sum));
    for (; i < n; ++i) total += bytes[i];
    return total;
}

// Enough independent sums to keep every multiplier busy through the latency of an instruction.
template <class S>
int64_t integer_peak(int64_t rounds) {
    constexpr int independent = S::peak_sums;
    typename S::Int sums[independent] = {};
    alignas(64) int8_t ones[S::int8_step];
    std::memset(ones, 1, sizeof ones);
    asm volatile("" ::"r"(ones) : "memory");  // the compiler shall not know the operands
    const typename S::WeightCodes weight = S::load_weight_codes(ones);
    typename S::TokenCodes token = S::load_token_codes(ones);
    for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
        for (int i = 0; i < independent; ++i) {
            token = S::kept(token);  // nor that it never changes
            sums[i] = S::kept(S::dot(sums[i], weight, token));
        }
    }
    for (int i = 1; i < independent; ++i) sums[0] = S::add(sums[0], sums[i]);
    asm volatile("" ::"r"(S::sum(sums[0])));  // and shall not find the result unused
    return rounds * independent * S::int8_step * 2;
}

}  // namespace
}  // namespace lowbit::cpu
