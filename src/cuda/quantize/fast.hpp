// Quantizers and dequantizers for aligned inputs, in one pass over memory. Each `supports` says in words why it cannot take a problem.
#pragma once
#include <string>

#include "core/problem.hpp"

namespace lowbit::cuda {

// A block of threads per row, which keeps the row in registers between its maximum and its codes.
std::string supports_quantize_row(const core::QuantizeProblem& problem);
void run_quantize_row(const core::QuantizeProblem& problem);

// A few lanes of a warp per group.
std::string supports_quantize_group(const core::QuantizeProblem& problem);
void run_quantize_group(const core::QuantizeProblem& problem);

// q4_0, q8_0 and q8_1: four lanes per block.
std::string supports_quantize_blocks(const core::QuantizeProblem& problem);
void run_quantize_blocks(const core::QuantizeProblem& problem);

// Scales that cover whole units: per tensor, row, or group of a multiple of eight.
std::string supports_dequantize_units(const core::DequantizeProblem& problem);
void run_dequantize_units(const core::DequantizeProblem& problem);

// q4_0, q8_0 and q8_1.
std::string supports_dequantize_blocks(const core::DequantizeProblem& problem);
void run_dequantize_blocks(const core::DequantizeProblem& problem);

// Numbers rounded to q8_0 or q8_1, which have the same values, in rows of fp16 `pitch` bytes apart (a multiple of 256, zeros behind the
// last column): tokens of the product that follows in the same call.
void run_round_blocks(const core::Context& context, const core::Tensor& x, uint8_t* rows, int64_t pitch);

// Plain numbers with any strides: units of eight where a side has them side by side.
void run_convert(const core::ConvertProblem& problem);

}  // namespace lowbit::cuda
