// fp32 rows times fp32 tokens.
#pragma once
#include "cpu/isa.hpp"
#include "cpu/simd/panels.hpp"

namespace lowbit::cpu {
namespace {

template <class S>
struct DenseKernel {
    using Sum = typename S::Float;
    static constexpr int64_t chunk = 512;  // columns: four rows and four tokens of them are 16 KB, a third of L1
    template <int Tokens>
    static constexpr int rows = S::template tile_rows<Tokens>;

    const float* weight;
    int64_t row_stride;
    FloatTokens x;
    float* out;
    int64_t out_stride;
    const float* panel = nullptr;
    const float* batch = nullptr;

    void begin_tokens(int64_t token, int64_t) { batch = x.values + token * x.stride; }
    void decode(int64_t row, int64_t, int64_t, int64_t) { panel = weight + row * row_stride; }

    template <int Rows, int Tokens>
    [[gnu::always_inline]] void multiply(int64_t row, int64_t token, int64_t first, int64_t columns, Sum (&sums)[Rows][Tokens]) const {
        const float* weights = panel + row * row_stride + first;
        const float* tokens = batch + token * x.stride + first;
        for (int64_t k = 0; k < columns; k += S::width) {
            Sum values[Tokens];
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) values[t] = S::load(tokens + t * x.stride + k);
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                const Sum row_values = S::load(weights + r * row_stride + k);
#pragma GCC unroll 8
                for (int t = 0; t < Tokens; ++t) sums[r][t] = S::fma(row_values, values[t], sums[r][t]);
            }
        }
    }

    void finish(int64_t row, int64_t token, Sum sum) const { out[row * out_stride + token] += S::sum(sum); }
};

template <class S>
void dense(const float* weight, int64_t row_stride, int64_t rows, int64_t columns, const FloatTokens& x, float* out, int64_t out_stride) {
    DenseKernel<S> kernel{weight, row_stride, x, out, out_stride};
    multiply_panels(kernel, rows, columns, x.tokens);
}

}  // namespace
}  // namespace lowbit::cpu
