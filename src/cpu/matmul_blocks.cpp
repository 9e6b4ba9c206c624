#include <algorithm>

#include "core/ggml_blocks.hpp"
#include "core/status.hpp"
#include "cpu/finish.hpp"
#include "cpu/matmul.hpp"
#include "cpu/pieces.hpp"
#include "cpu/prepare.hpp"

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

// Packs the tokens once, and splits the rows of the weight over the threads.
template <class Tokens>
void multiply(const Isa& isa, const BlockLoop<Tokens>& loop, const MatmulProblem& problem, const Tokens& x) {
    const core::QuantizedView& view = problem.weight.quantized;
    const core::Context& context = *problem.context;
    const core::Buffer packed = pack_tokens(context, loop, x, problem.k());
    const auto* tokens = reinterpret_cast<const uint8_t*>(packed.data());
    const Finisher finisher(problem, isa);
    Pieces pieces = cut(problem);
    pieces.piece_tokens = std::max<int64_t>(problem.m(), 1);  // the packed tokens are one piece
    context.parallel(pieces.count(), [&](int64_t index) {
        const Finisher::Piece piece = pieces[index];
        const auto sums = std::make_unique_for_overwrite<float[]>(piece.sums());
        loop.multiply({view.row_codes(piece.first_row), view.row_bytes(), piece.rows, view.columns}, tokens, piece.tokens, sums.get(),
                      piece.stride());
        finisher.store(piece, sums.get());
    });
}

}  // namespace

std::string supports_blocks(const MatmulProblem& problem) {
    if (problem.raw_integers()) return "no raw int32 output";
    if (problem.m() > most_tokens) return core::join("more than ", most_tokens, " tokens");
    return reason_against_weight(problem.weight.format());
}

void run_blocks(const Isa& isa, const MatmulProblem& problem) {
    const PreparedFloats x = prepare_floats(*problem.context, isa, problem.x, TokenOrder::natural);
    multiply(isa, isa.float_blocks(problem.weight.format().element), problem, x.tokens);
}

std::string supports_blocks_int8(const MatmulProblem& problem) {
    if (!has_blocks(problem.x.format())) return "for q8_1, q8_0 or int8 tokens with one scale each";
    if (problem.raw_integers()) return "no raw int32 output";
    return reason_against_weight(problem.weight.format());
}

void run_blocks_int8(const Isa& isa, const MatmulProblem& problem) {
    const PreparedBlocks x = prepare_blocks(*problem.context, problem.x.quantized);
    multiply(isa, isa.integer_blocks(problem.weight.format().element), problem, x.part(0, problem.m()));
}

}  // namespace lowbit::cpu
