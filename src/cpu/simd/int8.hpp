// The exact product of int8 rows and int8 tokens.
//
// Where the instruction wants one unsigned operand, the weight enters as code + S::int8_offset, and offset times the sum of the token's
// codes is taken off at the end; int32 arithmetic is modulo 2^32, so nothing is lost on the way.
#pragma once
#include <cstring>

#include "cpu/isa.hpp"
#include "cpu/simd/panels.hpp"
#include "cpu/simd/stream.hpp"

namespace lowbit::cpu {
namespace {

template <class S>
struct Int8Kernel {
    using Sum = typename S::Int;
    static constexpr int64_t step = S::int8_step;  // codes per vector
    static constexpr int64_t chunk = 2048;
    template <int Tokens>
    static constexpr int rows = S::template tile_rows<Tokens>;

    const int8_t* weight;
    int64_t weight_stride;
    int64_t columns;
    const int8_t* x;
    int64_t x_stride;
    int32_t* out;
    int64_t out_stride;

    const int8_t* batch = nullptr;
    int64_t batch_start = 0;
    const int8_t* panel = nullptr;
    uint32_t corrections[batch_tokens] = {};
    // The codes after the last whole vector, followed by zeros.
    alignas(64) int8_t weight_tails[panel_rows][step] = {};
    alignas(64) int8_t token_tails[batch_tokens][step] = {};

    int64_t whole() const { return columns / step * step; }

    void begin_tokens(int64_t token, int64_t count) {
        batch = x + token * x_stride;
        batch_start = token;
        for (int64_t t = 0; t < count; ++t) {
            const int8_t* codes = batch + t * x_stride;
            if (columns > whole()) std::memcpy(token_tails[t], codes + whole(), size_t(columns - whole()));
            if constexpr (S::int8_offset != 0) {
                int32_t sum = 0;
                for (int64_t k = 0; k < columns; ++k) sum += codes[k];
                corrections[t] = uint32_t(sum) * uint32_t(S::int8_offset);
            }
        }
    }

    void decode(int64_t row, int64_t count, int64_t first, int64_t codes) {
        panel = weight + row * weight_stride;
        const Stream stream{weight_stride, panel_rows};
        const bool has_tail = first + codes > whole();
        for (int64_t r = 0; r < count; ++r) {
            stream.prefetch_ahead(reinterpret_cast<const uint8_t*>(panel + r * weight_stride), first, codes);
            if (has_tail) std::memcpy(weight_tails[r], panel + r * weight_stride + whole(), size_t(columns - whole()));
        }
    }

    template <int Rows, int Tokens>
    [[gnu::always_inline]] static void add(const int8_t* weights, int64_t weights_stride, const int8_t* tokens, int64_t tokens_stride,
                                           Sum (&sums)[Rows][Tokens]) {
        typename S::TokenCodes codes[Tokens];
#pragma GCC unroll 8
        for (int t = 0; t < Tokens; ++t) codes[t] = S::load_token_codes(tokens + t * tokens_stride);
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
            const typename S::WeightCodes row = S::load_weight_codes(weights + r * weights_stride);
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) sums[r][t] = S::dot(sums[r][t], row, codes[t]);
        }
    }

    template <int Rows, int Tokens>
    [[gnu::always_inline]] void multiply(int64_t row, int64_t token, int64_t first, int64_t codes, Sum (&sums)[Rows][Tokens]) const {
        const int64_t end = smaller(first + codes, whole());
        const int8_t* weights = panel + row * weight_stride;
        const int8_t* tokens = batch + token * x_stride;
        for (int64_t k = first; k < end; k += step) add(weights + k, weight_stride, tokens + k, x_stride, sums);
        if (first + codes > whole()) add(weight_tails[row], step, token_tails[token], step, sums);
    }

    void finish(int64_t row, int64_t token, Sum sum) const {
        out[row * out_stride + token] = int32_t(uint32_t(S::sum(sum)) - corrections[token - batch_start]);
    }
};

template <class S>
void int8(const int8_t* weight, int64_t weight_stride, int64_t rows, int64_t columns, const IntegerTokens& x, int32_t* out,
          int64_t out_stride) {
    Int8Kernel<S> kernel{weight, weight_stride, columns, x.codes, x.stride, out, out_stride};
    multiply_panels(kernel, rows, columns, x.tokens);
}

}  // namespace
}  // namespace lowbit::cpu
