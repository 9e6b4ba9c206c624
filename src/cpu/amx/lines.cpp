// Sums of many tokens, turned into lines of the output: 16 x 16 of them are transposed in registers.
#include "cpu/amx/products.hpp"
#include "cpu/amx/tiles.hpp"
#include "cpu/avx512/transpose.hpp"
#include "cpu/simd/arithmetic.hpp"

namespace lowbit::cpu::amx {
namespace {

constexpr int64_t side = 16, rows_at_once = 64;  // a line gets whole cache lines that lie side by side

template <class Sum, class ToFloat>
void square(const Sum* sums, int64_t stride, int64_t rows, int64_t tokens, const LineFactors& factors, float* lines, int64_t line_stride,
            const ToFloat& to_float) {
    const auto tokens_there = __mmask16((1u << tokens) - 1), rows_there = __mmask16((1u << rows) - 1);
    __m512i block[side];
    for (int64_t r = 0; r < side; ++r)
        block[r] = r < rows ? _mm512_maskz_loadu_epi32(tokens_there, sums + r * stride) : _mm512_setzero_si512();
    transpose(block);
    const __m512 row_factors = _mm512_maskz_loadu_ps(rows_there, factors.rows), bias = _mm512_maskz_loadu_ps(rows_there, factors.bias);
    for (int64_t t = 0; t < tokens; ++t) {
        const __m512 scaled = _mm512_mul_ps(_mm512_mul_ps(to_float(block[t]), _mm512_set1_ps(factors.tokens[t])), row_factors);
        _mm512_mask_storeu_ps(lines + t * line_stride, rows_there, _mm512_add_ps(scaled, bias));
    }
}

template <class Sum, class ToFloat>
void all_lines(const Sum* sums, int64_t stride, int64_t rows, int64_t tokens, const LineFactors& factors, float* lines, int64_t line_stride,
               const ToFloat& to_float) {
    for (int64_t first = 0; first < rows; first += rows_at_once)
        for (int64_t token = 0; token < tokens; token += side)
            for (int64_t row = first; row < smaller(rows, first + rows_at_once); row += side)
                square(sums + row * stride + token, stride, smaller(side, rows - row), smaller(side, tokens - token),
                       {factors.tokens + token, factors.rows + row, factors.bias + row}, lines + token * line_stride + row, line_stride,
                       to_float);
}

}  // namespace

void int_lines(const int32_t* sums, int64_t stride, int64_t rows, int64_t tokens, const LineFactors& factors, float* lines,
               int64_t line_stride) {
    all_lines(sums, stride, rows, tokens, factors, lines, line_stride, [](__m512i sum) { return _mm512_cvtepi32_ps(sum); });
}

void float_lines(const float* sums, int64_t stride, int64_t rows, int64_t tokens, const LineFactors& factors, float* lines,
                 int64_t line_stride) {
    all_lines(sums, stride, rows, tokens, factors, lines, line_stride, [](__m512i sum) { return _mm512_castsi512_ps(sum); });
}

}  // namespace lowbit::cpu::amx
