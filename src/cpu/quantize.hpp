// The drivers of quantize and dequantize.
#pragma once
#include <string>

#include "core/problem.hpp"
#include "cpu/isa.hpp"

namespace lowbit::cpu {

// int8 with any scale, from the widest registers.
std::string supports_quantize_int8(const core::QuantizeProblem& problem);
void run_quantize_int8(const Isa& isa, const core::QuantizeProblem& problem);

// q4_0, q8_0, q8_1.
std::string supports_quantize_ggml(const core::QuantizeProblem& problem);
void run_quantize_ggml(const Isa& isa, const core::QuantizeProblem& problem);

// Every format: the reference's steps, rows spread over the threads.
void run_quantize_rows(const core::QuantizeProblem& problem);
void run_dequantize_rows(const core::DequantizeProblem& problem);

}  // namespace lowbit::cpu
