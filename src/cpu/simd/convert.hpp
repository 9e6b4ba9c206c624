// fp16 and bf16 to fp32 and back, to the bit as core/numeric.hpp.
#pragma once
#include <cstring>

#include "cpu/simd/quantize.hpp"
#include "lowbit/types.hpp"

namespace lowbit::cpu {
namespace {

template <class S, class Load>
void widen(const uint16_t* source, float* destination, int64_t n, const Load& load) {
    int64_t i = 0;
    for (; i + S::width <= n; i += S::width) S::store(destination + i, load(source + i));
    if (i == n) return;
    uint16_t last[S::width] = {};
    float values[S::width];
    std::memcpy(last, source + i, size_t(n - i) * sizeof(uint16_t));
    S::store(values, load(last));
    std::memcpy(destination + i, values, size_t(n - i) * sizeof(float));
}

template <class S, class Store>
void narrow(const float* source, uint16_t* destination, int64_t n, const Store& store) {
    for_each_vector<S>(source, n, [&](typename S::Float values, int64_t i, int count) {
        if (count == S::width) {
            store(destination + i, values);
            return;
        }
        uint16_t last[S::width];
        store(last, values);
        std::memcpy(destination + i, last, size_t(count) * sizeof(uint16_t));
    });
}

template <class S>
void to_float(Element type, const void* source, float* destination, int64_t n) {
    const auto* halves = static_cast<const uint16_t*>(source);
    if (type == Element::fp16)
        widen<S>(halves, destination, n, [](const uint16_t* p) { return S::load_fp16(p); });
    else if (type == Element::bf16)
        widen<S>(halves, destination, n, [](const uint16_t* p) { return S::load_bf16(p); });
    else if (n > 0)
        std::memcpy(destination, source, size_t(n) * sizeof(float));
}

template <class S>
void from_float(Element type, const float* source, void* destination, int64_t n) {
    auto* halves = static_cast<uint16_t*>(destination);
    if (type == Element::fp16)
        narrow<S>(source, halves, n, [](uint16_t* p, typename S::Float v) { S::store_fp16(p, v); });
    else if (type == Element::bf16)
        narrow<S>(source, halves, n, [](uint16_t* p, typename S::Float v) { S::store_bf16(p, v); });
    else if (n > 0)
        std::memcpy(destination, source, size_t(n) * sizeof(float));
}

}  // namespace
}  // namespace lowbit::cpu
