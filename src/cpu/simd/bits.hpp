// The exact product of rows of signs, one bit each: equal bits multiply to 1, others to -1, so a sum is columns - 2 * (bits that differ).
#pragma once
#include <cstring>

#include "cpu/isa.hpp"
#include "cpu/simd/panels.hpp"
#include "cpu/simd/stream.hpp"

namespace lowbit::cpu {
namespace {

template <class S>
struct BitsKernel {
    using Sum = typename S::Int;
    static constexpr int64_t step = sizeof(typename S::Bytes);
    static constexpr int64_t chunk = 2048;  // bytes
    template <int Tokens>
    static constexpr int rows = S::template tile_rows<Tokens>;

    const BitRows& weight;
    const BitRows& x;
    int32_t* out;
    int64_t out_stride;

    const uint8_t* batch = nullptr;
    const uint8_t* panel = nullptr;
    // The bits after the last whole vector, followed by zeros on both sides.
    alignas(64) uint8_t weight_tails[panel_rows][step] = {};
    alignas(64) uint8_t token_tails[batch_tokens][step] = {};

    int64_t whole() const { return weight.columns / (8 * step) * step; }

    void load_tail(const uint8_t* row, uint8_t* tail) const {
        const int64_t bits = weight.columns - 8 * whole();
        if (bits == 0) return;  // of an empty matrix there are no rows either
        std::memcpy(tail, row + whole(), size_t(ceil_div(bits, 8)));
        if (bits % 8) tail[bits / 8] = uint8_t(tail[bits / 8] & ((1 << bits % 8) - 1));
    }

    void begin_tokens(int64_t token, int64_t count) {
        batch = x.bits + token * x.row_stride;
        for (int64_t t = 0; t < count; ++t) load_tail(batch + t * x.row_stride, token_tails[t]);
    }

    void decode(int64_t row, int64_t count, int64_t first, int64_t bytes) {
        panel = weight.bits + row * weight.row_stride;
        const Stream stream{weight.row_stride, panel_rows};
        for (int64_t r = 0; r < count; ++r) {
            stream.prefetch_ahead(panel + r * weight.row_stride, first, bytes);
            if (first + bytes > whole()) load_tail(panel + r * weight.row_stride, weight_tails[r]);
        }
    }

    template <int Rows, int Tokens>
    [[gnu::always_inline]] static void add(const uint8_t* weights, int64_t weights_stride, const uint8_t* tokens, int64_t tokens_stride,
                                           Sum (&sums)[Rows][Tokens]) {
        typename S::Bytes bits[Tokens];
#pragma GCC unroll 8
        for (int t = 0; t < Tokens; ++t) bits[t] = S::load_bytes(tokens + t * tokens_stride);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const typename S::Bytes row = S::load_bytes(weights + r * weights_stride);
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) sums[r][t] = S::add(sums[r][t], S::differing_bits(row, bits[t]));
        }
    }

    template <int Rows, int Tokens>
    [[gnu::always_inline]] void multiply(int64_t row, int64_t token, int64_t first, int64_t bytes, Sum (&sums)[Rows][Tokens]) const {
        const int64_t end = smaller(first + bytes, whole());
        const uint8_t* weights = panel + row * weight.row_stride;
        const uint8_t* tokens = batch + token * x.row_stride;
        for (int64_t k = first; k < end; k += step) add(weights + k, weight.row_stride, tokens + k, x.row_stride, sums);
        if (first + bytes > whole()) add(weight_tails[row], step, token_tails[token], step, sums);
    }

    void finish(int64_t row, int64_t token, Sum sum) const { out[row * out_stride + token] = int32_t(weight.columns) - 2 * S::sum(sum); }
};

template <class S>
void bits(const BitRows& weight, const BitRows& x, int32_t* out, int64_t out_stride) {
    BitsKernel<S> kernel{weight, x, out, out_stride};
    multiply_panels(kernel, weight.rows, ceil_div(weight.columns, 8), x.rows);
}

}  // namespace
}  // namespace lowbit::cpu
