// The drivers of the CPU products: one per family of inner loops. Each `supports_...` gives the reason against a problem, or "".
#pragma once
#include <string>

#include "core/problem.hpp"
#include "cpu/isa.hpp"

namespace lowbit::cpu {

// Few tokens, in fp32 or whatever becomes it; the weight is decoded as it streams by.
std::string supports_weight4(const core::MatmulProblem& problem);
std::string supports_weight4_tiles(const core::MatmulProblem& problem);  // what matrix tiles do better than vectors
std::string supports_weight4_bf16(const core::MatmulProblem& problem);   // what vectors of bf16 do better than those of fp32
void run_weight4(const Isa& isa, const core::MatmulProblem& problem);
std::string supports_weight4_int8(const core::MatmulProblem& problem);
void run_weight4_int8(const Isa& isa, const core::MatmulProblem& problem);
std::string supports_weight8(const core::MatmulProblem& problem);
std::string supports_rows(const core::MatmulProblem& problem);      // of numbers
void run_rows(const Isa& isa, const core::MatmulProblem& problem);  // of those, and of 8-bit codes

// Signs on both sides: bits that differ are counted.
std::string supports_bits(const core::MatmulProblem& problem);
void run_bits(const Isa& isa, const core::MatmulProblem& problem);

// Integer codes on both sides, exact sums; scales and zero points at the end.
std::string supports_int8(const core::MatmulProblem& problem);
std::string defers_int8(const core::MatmulProblem& problem);
void run_int8(const Isa& isa, const core::MatmulProblem& problem);

// q4_0 and q8_0 weights with q8_1, q8_0 or int8 tokens.
std::string supports_ggml(const core::MatmulProblem& problem);
void run_ggml(const Isa& isa, const core::MatmulProblem& problem);

// The other GGML types: few tokens in fp32 or whatever becomes it; any number of q8_1, q8_0 or int8 tokens.
std::string supports_blocks(const core::MatmulProblem& problem);
void run_blocks(const Isa& isa, const core::MatmulProblem& problem);
std::string supports_blocks_int8(const core::MatmulProblem& problem);
void run_blocks_int8(const Isa& isa, const core::MatmulProblem& problem);

// Codes of up to 8 bits, GGML types among them, with many such tokens: decoded once for all of them.
std::string supports_slabs(const core::MatmulProblem& problem);
std::string defers_slabs(const core::MatmulProblem& problem);
void run_slabs(const Isa& isa, const core::MatmulProblem& problem);
// The same, and rows of bf16, with tokens of bf16 or fp16.
std::string supports_bf16_slabs(const core::MatmulProblem& problem);
std::string defers_bf16_slabs(const core::MatmulProblem& problem);
void run_bf16_slabs(const Isa& isa, const core::MatmulProblem& problem);
// Any tokens in fp32, most weights.
std::string supports_float_slabs(const core::MatmulProblem& problem);
std::string defers_float_slabs(const core::MatmulProblem& problem);
void run_float_slabs(const Isa& isa, const core::MatmulProblem& problem);

// Everything else: blocks of both operands in fp32.
std::string supports_dense(const core::MatmulProblem& problem);
void run_dense(const Isa& isa, const core::MatmulProblem& problem);

}  // namespace lowbit::cpu
