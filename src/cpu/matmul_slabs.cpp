#include <atomic>
#include <cmath>

#include "core/status.hpp"
#include "cpu/finish.hpp"
#include "cpu/matmul.hpp"
#include "cpu/pieces.hpp"
#include "cpu/prepare.hpp"
#include "cpu/row_scales.hpp"

namespace lowbit::cpu {
namespace {

using core::MatmulProblem;

std::string reason_against_weight(const MatmulProblem& problem, bool only_integers = true) {
    const core::Format& format = problem.weight.format();
    if (problem.k() == 0) return "nothing to add up";
    switch (format.element) {
    case Element::q4_0:
    case Element::q4_1:
    case Element::q5_0:
    case Element::q5_1:
    case Element::q8_0:
    case Element::iq4_nl:
    case Element::q2_k:
    case Element::q3_k:
    case Element::q4_k:
    case Element::q5_k:
    case Element::q6_k: return "";
    case Element::int4:
    case Element::int8:
    case Element::fp4_e2m1:
        if (format.asymmetric) return "zero points of signed codes";
        break;
    case Element::uint4:
    case Element::uint8:
        if (!format.asymmetric) return "unsigned codes without zero points";
        break;
    case Element::nf4:
    case Element::fp8_e4m3:
    case Element::fp8_e5m2:
        if (!only_integers) break;
        [[fallthrough]];
    default: return only_integers ? "for weights whose codes are integers of up to 8 bits" : "for weights of 4 to 32 bits";
    }
    if (!problem.weight.is_quantized) return "the weight is not quantized";
    if (problem.k() % 32) return core::join("K = ", problem.k(), " is not a multiple of 32");
    const int64_t group = format.group_columns;
    return group % 16 && group < problem.k() ? core::join("groups of ", group, " are not a multiple of 16") : "";
}

template <class... Supports>
bool any(const MatmulProblem& problem, Supports... supports) {
    return (supports(problem).empty() || ...);
}

// Decoding a slab and turning it over pays from so many tokens on, as measured; how many depends on what else there is.
int64_t fewest_tokens(const MatmulProblem& problem) {
    if (problem.weight.format().element == Element::q6_k) return 12;  // the most work to decode
    return any(problem, supports_ggml, supports_blocks_int8, supports_weight4_int8) ? 5
           : any(problem, supports_weight4, supports_weight8)                       ? 3
                                                                                    : 1;
}

// The same for tokens that become fp32 ...
int64_t fewest_float_tokens(const MatmulProblem& problem) {
    const Element element = problem.weight.format().element;
    if (element == Element::fp32) return 14;
    if (any(problem, supports_rows)) return 13;
    if (any(problem, supports_weight4)) return element == Element::nf4 || problem.weight.format().is_ggml() ? 8 : 24;
    if (any(problem, supports_weight8)) return problem.weight.format().is_ggml() ? 8 : 20;
    return any(problem, supports_blocks) ? 20 : 1;
}

// ... and for bf16 tokens.
int64_t fewest_bf16_tokens(const MatmulProblem& problem) {
    if (any(problem, supports_rows)) return 9;
    if (any(problem, supports_weight4)) return 16;
    if (any(problem, supports_weight8)) return problem.weight.format().is_ggml() ? 7 : 14;
    return any(problem, supports_blocks) ? 12 : 1;
}

std::string reason_against_few(const MatmulProblem& problem, int64_t fewest) {
    return problem.m() < fewest ? core::join("fewer than ", fewest, " tokens: weights stream as they are") : "";
}

}  // namespace

std::string supports_slabs(const MatmulProblem& problem) {
    if (!has_blocks(problem.x.format())) return "for q8_1, q8_0 or int8 tokens with one scale each";
    if (problem.raw_integers()) return "no raw int32 output";
    return reason_against_weight(problem);
}

std::string defers_slabs(const MatmulProblem& problem) { return reason_against_few(problem, fewest_tokens(problem)); }

namespace {

// A product in pieces.
template <class Loop, class Tokens>
void run(const Isa& isa, const MatmulProblem& problem, const Loop& loop, const Tokens& x) {
    const core::Context& context = *problem.context;
    const core::Buffer memory_of_tokens = pack_tokens(context, loop, x, problem.k());
    const auto* packed = reinterpret_cast<const uint8_t*>(memory_of_tokens.data());
    const Finisher finisher(problem, isa);
    const Pieces pieces = cut_slabs(problem);
    context.parallel(pieces.count(), [&](int64_t index) {
        Finisher::Piece piece = pieces[index];
        piece.by_tokens = true;
        const core::Buffer memory(core::Allocator::aligned_heap(), int64_t(piece.sums() * sizeof(float)));
        auto* sums = reinterpret_cast<float*>(memory.data());
        RowScales scales;
        loop.multiply(coded_rows(isa, problem.weight, piece.first_row, piece.rows, scales), packed, problem.m(), piece.first_token,
                      piece.tokens, sums, piece.stride());
        finisher.store(piece, sums);
    });
}

template <class LoopOf>
void run_with_floats(const Isa& isa, const MatmulProblem& problem, const FloatTokens& x, const LoopOf& loop_of) {
    RowScales none;
    run(isa, problem, loop_of(coded_rows(isa, problem.weight, 0, 0, none)), x);
}

// Products of bf16 take subnormal numbers for zero, and no sum shall overflow before it is scaled that would not do so in the end.
bool fits_bf16_products(const core::Context& context, const FloatTokens& x, int64_t columns) {
    std::atomic<bool> fits{true};
    context.parallel(x.tokens, [&](int64_t token) {
        const float* values = x.values + token * x.stride;
        bool inside = true;
        for (int64_t i = 0; i < columns; ++i) {
            const float magnitude = std::abs(values[i]);
            inside &= magnitude == 0.0f || (magnitude >= 0x1p-100f && magnitude <= 0x1p+90f);
        }
        if (!inside) fits = false;
    });
    return fits;
}

}  // namespace

void run_slabs(const Isa& isa, const MatmulProblem& problem) {
    const PreparedBlocks x = prepare_blocks(*problem.context, problem.x.quantized);
    RowScales none;
    run(isa, problem, isa.integer_slabs(coded_rows(isa, problem.weight, 0, 0, none), x.one_scale), x.part(0, problem.m()));
}

std::string supports_float_slabs(const MatmulProblem& problem) {
    if (problem.raw_integers()) return "no raw int32 output";
    if (problem.k() == 0) return "nothing to add up";
    if (problem.weight.is_quantized && !problem.weight.format().is_plain()) return reason_against_weight(problem, false);
    return is_rows_of_numbers(problem.weight) ? "" : "for numbers of 16 and 32 bits in rows that run on";
}

std::string defers_float_slabs(const MatmulProblem& problem) { return reason_against_few(problem, fewest_float_tokens(problem)); }

void run_float_slabs(const Isa& isa, const MatmulProblem& problem) {
    const PreparedFloats x = prepare_floats(*problem.context, isa, problem.x, TokenOrder::natural);
    run_with_floats(isa, problem, x.tokens, isa.float_slabs);
}

std::string supports_bf16_slabs(const MatmulProblem& problem) {
    if (bf16_parts(problem.x) > 1) return "for tokens in bf16";
    if (std::string reason = supports_float_slabs(problem); !reason.empty()) return reason;
    if (problem.weight.is_quantized && !problem.weight.format().is_plain()) return reason_against_weight(problem);
    return problem.weight.format().element == Element::bf16 ? "" : "for weights of bf16, or whose codes are integers of up to 8 bits";
}

std::string defers_bf16_slabs(const MatmulProblem& problem) { return reason_against_few(problem, fewest_bf16_tokens(problem)); }

void run_bf16_slabs(const Isa& isa, const MatmulProblem& problem) {
    const PreparedFloats x = prepare_floats(*problem.context, isa, problem.x, TokenOrder::natural);
    if (!fits_bf16_products(*problem.context, x.tokens, problem.k())) return run_dense(isa, problem);
    run_with_floats(isa, problem, x.tokens, isa.bf16_slabs);
}

}  // namespace lowbit::cpu
