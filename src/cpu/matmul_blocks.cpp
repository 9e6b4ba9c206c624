#include "core/status.hpp"
#include "cpu/matmul.hpp"
#include "cpu/stream_rows.hpp"

namespace lowbit::cpu {
namespace {

using core::MatmulProblem;

// Above this many tokens decoding a block once into fp32 and multiplying that (cpu_..._dense) wins.
constexpr int64_t most_tokens = 32;

std::string reason_against_weight(const core::Format& format) {
    switch (format.element) {
    case Element::q4_1:
    case Element::q5_0:
    case Element::q5_1:
    case Element::q2_k:
    case Element::q3_k:
    case Element::q4_k:
    case Element::q5_k:
    case Element::q6_k: return "";
    default: return "for weights of q4_1, q5_0, q5_1 and K types";
    }
}

}  // namespace

std::string supports_blocks(const MatmulProblem& problem) {
    if (problem.raw_integers()) return "no raw int32 output";
    if (problem.m() > most_tokens) return core::join("more than ", most_tokens, " tokens");
    return reason_against_weight(problem.weight.format());
}

void run_blocks(const Isa& isa, const MatmulProblem& problem) {
    const PreparedFloats x = prepare_floats(*problem.context, isa, problem.x, TokenOrder::natural);
    stream_rows(isa, problem, isa.float_blocks(problem.weight.format().element), x.tokens);
}

std::string supports_blocks_int8(const MatmulProblem& problem) {
    if (!has_blocks(problem.x.format())) return "for q8_1, q8_0 or int8 tokens with one scale each";
    if (problem.raw_integers()) return "no raw int32 output";
    return reason_against_weight(problem.weight.format());
}

void run_blocks_int8(const Isa& isa, const MatmulProblem& problem) {
    const PreparedBlocks x = prepare_blocks(*problem.context, problem.x.quantized);
    stream_rows(isa, problem, isa.integer_blocks(problem.weight.format().element), x.part(0, problem.m()));
}

}  // namespace lowbit::cpu
