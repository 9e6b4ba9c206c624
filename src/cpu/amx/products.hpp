// What amx_isa() has of its own. Few tokens go to avx512_isa(): filling tiles does not pay for them.
#pragma once
#include "cpu/isa.hpp"

namespace lowbit::cpu::amx {

void int8(const int8_t* weight, int64_t weight_stride, int64_t rows, int64_t columns, const IntegerTokens& x, int32_t* out,
          int64_t out_stride);
int64_t packed8_bytes(const IntegerTokens& x, int64_t columns);
void pack8(const IntegerTokens& x, int64_t columns, int64_t part, int64_t parts, int8_t* packed);
void q4_0_q8(const uint8_t* weight, int64_t row_stride, int64_t rows, const BlockTokens& x, float* out, int64_t out_stride);
void q8_0_q8(const uint8_t* weight, int64_t row_stride, int64_t rows, const BlockTokens& x, float* out, int64_t out_stride);
void weight4(const Weight4& weight, const FloatTokens& x, float* out, int64_t out_stride);
int64_t packed4_bytes(const Weight4& kind, const FloatTokens& x);
void pack4(const FloatTokens& x, int64_t columns, int64_t part, int64_t parts, uint8_t* packed);
void int_lines(const int32_t* sums, int64_t stride, int64_t rows, int64_t tokens, const LineFactors& factors, float* lines,
               int64_t line_stride);
void float_lines(const float* sums, int64_t stride, int64_t rows, int64_t tokens, const LineFactors& factors, float* lines,
                 int64_t line_stride);
int64_t integer_peak(int64_t rounds);

}  // namespace lowbit::cpu::amx
