#include "core/status.hpp"
#include "cpu/finish.hpp"
#include "cpu/matmul.hpp"
#include "cpu/pieces.hpp"
#include "cpu/prepare.hpp"
#include "cpu/row_scales.hpp"

namespace lowbit::cpu {
namespace {

using core::MatmulProblem;

std::string reason_against_weight(const MatmulProblem& problem) {
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
    default: return "for weights whose codes are integers of up to 8 bits";
    }
    if (!problem.weight.is_quantized) return "the weight is not quantized";
    if (problem.k() % 32) return core::join("K = ", problem.k(), " is not a multiple of 32");
    const int64_t group = format.group_columns;
    return group % 16 && group < problem.k() ? core::join("groups of ", group, " are not a multiple of 16") : "";
}

// Decoding a slab and turning it over pays from so many tokens on; how many depends on what else there is.
int64_t fewest_tokens(const MatmulProblem& problem) {
    const auto any = [&](auto... supports) { return (supports(problem).empty() || ...); };
    if (problem.weight.format().element == Element::q6_k) return 12;  // the most work to decode
    return any(supports_ggml, supports_blocks_int8, supports_weight4_int8) ? 5 : any(supports_weight4, supports_weight8) ? 3 : 1;
}

}  // namespace

std::string supports_slabs(const MatmulProblem& problem) {
    if (!has_blocks(problem.x.format())) return "for q8_1, q8_0 or int8 tokens with one scale each";
    if (problem.raw_integers()) return "no raw int32 output";
    return reason_against_weight(problem);
}

std::string defers_slabs(const MatmulProblem& problem) {
    const int64_t fewest = fewest_tokens(problem);
    return problem.m() < fewest ? core::join("fewer than ", fewest, " tokens: weights stream as they are") : "";
}

void run_slabs(const Isa& isa, const MatmulProblem& problem) {
    const core::QuantizedView& view = problem.weight.quantized;
    const core::Context& context = *problem.context;
    const PreparedBlocks x = prepare_blocks(context, problem.x.quantized);
    const BlockTokens tokens = x.part(0, problem.m());
    const auto rows_of = [&](int64_t first, int64_t rows, RowScales& scales) {
        CodedWeight weight = rows_of_weight<CodedWeight>(isa, view, first, rows, scales);
        weight.element = view.format.element;
        return weight;
    };
    RowScales none;
    const BlockSlabs loop = isa.integer_slabs(rows_of(0, 0, none), tokens.one_scale);
    const core::Buffer memory_of_tokens = pack_tokens(context, loop, tokens, problem.k());
    const auto* packed = reinterpret_cast<const uint8_t*>(memory_of_tokens.data());
    const Finisher finisher(problem, isa);
    const Pieces pieces = cut_slabs(problem);
    context.parallel(pieces.count(), [&](int64_t index) {
        Finisher::Piece piece = pieces[index];
        piece.by_tokens = true;
        const core::Buffer memory(core::Allocator::aligned_heap(), int64_t(piece.sums() * sizeof(float)));
        auto* sums = reinterpret_cast<float*>(memory.data());
        RowScales scales;
        loop.multiply(rows_of(piece.first_row, piece.rows, scales), packed, problem.m(), piece.first_token, piece.tokens, sums,
                      piece.stride());
        finisher.store(piece, sums);
    });
}

}  // namespace lowbit::cpu
