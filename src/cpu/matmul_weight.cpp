#include "core/status.hpp"
#include "cpu/matmul.hpp"
#include "cpu/stream_rows.hpp"
#include "reference/codes.hpp"

namespace lowbit::cpu {
namespace {

using core::MatmulProblem;

// Above this many tokens decoding a block once into fp32 and multiplying that (cpu_..._dense) wins.
constexpr int64_t most_tokens = 32;
// The same for 8-bit codes with groups of 32 and less, which multiply by a scale after every two vectors.
constexpr int64_t most_tokens_of_small_groups = 16, small_group = 32;
// The same for numbers in fp32, which are not decoded.
constexpr int64_t most_tokens_of_floats = 10;
// Above this many tokens in fp16, which are two products of bf16 each, those of fp32 take less time.
constexpr int64_t most_tokens_of_two_parts = 2;

std::string reason_against_tokens(const MatmulProblem& problem) {
    if (problem.raw_integers()) return "no raw int32 output";
    if (problem.m() > most_tokens) return core::join("more than ", most_tokens, " tokens");
    if (!problem.weight.is_quantized) return "the weight is not quantized";
    return "";
}

// The order that weight4 wants its tokens in, if it wants one; the memory stays with the caller.
core::Buffer pack_tokens(const core::Context& context, const Isa& isa, const Weight4& kind, FloatTokens& x) {
    const int64_t bytes = isa.packed4_bytes ? isa.packed4_bytes(kind, x) : 0;
    if (bytes == 0) return {};
    core::Buffer memory(core::Allocator::aligned_heap(), bytes);
    auto* packed = reinterpret_cast<uint8_t*>(memory.data());
    const int64_t parts = context.threads();
    context.parallel(parts, [&](int64_t part) { isa.pack4(x, kind.columns, part, parts, packed); });
    x.packed = packed;
    return memory;
}

// The sixteen values of q4_0 and iq4_nl codes.
constexpr float q4_0_values[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
constexpr float iq4_nl_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

}  // namespace

std::string supports_weight4(const MatmulProblem& problem) {
    if (const std::string reason = reason_against_tokens(problem); !reason.empty()) return reason;
    const core::Format& format = problem.weight.quantized.format;
    if (format.element == Element::q4_0 || format.element == Element::iq4_nl) return "";
    if (format.is_ggml() || core::element_bits(format.element) != 4)
        return "for weights of 4 bits: int4, uint4, nf4, fp4_e2m1, q4_0, iq4_nl";
    if (format.group_columns % 32 && format.group_columns < problem.k())
        return core::join("groups of ", format.group_columns, " are not a multiple of 32");
    return "";
}

std::string supports_weight4_tiles(const MatmulProblem& problem) {
    if (std::string reason = supports_weight4(problem); !reason.empty()) return reason;
    const core::Format& format = problem.weight.quantized.format;
    if (problem.m() < 2) return "vectors are faster for one token";
    if (format.is_ggml() || format.element == Element::nf4) return "levels that bf16 does not hold, or groups of 32";
    const bool one_group = format.group_columns == 0 || format.group_columns >= problem.k();
    return one_group || format.group_columns % 128 == 0 ? "" : core::join("groups of ", format.group_columns, " are not a multiple of 128");
}

std::string supports_weight4_bf16(const MatmulProblem& problem) {
    if (std::string reason = supports_weight4(problem); !reason.empty()) return reason;
    const core::Format& format = problem.weight.quantized.format;
    const int parts = bf16_parts(problem.x);
    if (parts > 2) return "for tokens in bf16 or fp16";
    if (parts > 1 && problem.m() > most_tokens_of_two_parts) return core::join("more than ", most_tokens_of_two_parts, " tokens in fp16");
    if (format.element == Element::nf4) return "levels that bf16 does not hold";
    const bool one_group = format.is_ggml() || format.group_columns == 0 || format.group_columns >= problem.k();
    if (one_group || format.group_columns % 128 == 0) return "";
    if (format.asymmetric) return "zero points of groups smaller than 128";
    return 128 % format.group_columns == 0 ? ""
                                           : core::join("groups of ", format.group_columns, " neither divide 128 nor are multiples of it");
}

void run_weight4(const Isa& isa, const MatmulProblem& problem) {
    const core::QuantizedView& view = problem.weight.quantized;
    const Element element = view.format.element;
    const float* values = element == Element::q4_0     ? q4_0_values
                          : element == Element::iq4_nl ? iq4_nl_values
                                                       : reference::code_values(element).data();
    const TokenOrder order = view.format.is_ggml() ? TokenOrder::natural : TokenOrder::even_then_odd;
    PreparedFloats x = prepare_floats(*problem.context, isa, problem.x, order);
    RowScales none;
    const core::Buffer packed = pack_tokens(*problem.context, isa, rows_of_weight<Weight4>(isa, view, 0, 0, none), x.tokens);
    stream_rows(isa, problem, [&](const Finisher::Piece& piece, float* sums) {
        RowScales scales;
        Weight4 weight = rows_of_weight<Weight4>(isa, view, piece.first_row, piece.rows, scales);
        weight.values = values;
        isa.weight4(weight, x.tokens, sums, piece.stride());
    });
}

std::string supports_weight4_int8(const MatmulProblem& problem) {
    if (const std::string reason = reason_against_tokens(problem); !reason.empty()) return reason;
    const core::Format& format = problem.weight.quantized.format;
    if (!has_blocks(problem.x.format())) return "for q8_1, q8_0 or int8 tokens with one scale each";
    if (format.element != (format.asymmetric ? Element::uint4 : Element::int4)) return "for int4, and uint4 with zero points";
    if (problem.k() % 32 || problem.k() == 0) return core::join("K = ", problem.k(), " is not a multiple of 32");
    const int64_t group = format.group_columns;
    if (group && group < problem.k() && group % 128 && 128 % group) return core::join("groups of ", group);
    return group && group < 32 ? core::join("groups of ", group) : "";
}

void run_weight4_int8(const Isa& isa, const MatmulProblem& problem) {
    const PreparedBlocks x = prepare_blocks(*problem.context, problem.x.quantized);
    stream_rows(isa, problem, isa.weight4_int8(problem.weight.format().asymmetric), x.part(0, problem.m()));
}

std::string supports_weight8(const MatmulProblem& problem) {
    if (const std::string reason = reason_against_tokens(problem); !reason.empty()) return reason;
    const core::Format& format = problem.weight.quantized.format;
    if (format.group_columns > 0 && format.group_columns <= small_group && problem.m() > most_tokens_of_small_groups)
        return core::join("groups of ", format.group_columns, " with more than ", most_tokens_of_small_groups, " tokens");
    switch (format.element) {
    case Element::int8:
    case Element::uint8:
    case Element::fp8_e4m3:
    case Element::fp8_e5m2:
    case Element::q8_0: return "";
    default: return "for weights of 8 bits: int8, uint8, fp8, q8_0";
    }
}

std::string supports_rows(const MatmulProblem& problem) {
    if (problem.raw_integers()) return "no raw int32 output";
    const int64_t most = problem.weight.format().element == Element::fp32 ? most_tokens_of_floats : most_tokens;
    if (problem.m() > most) return core::join("more than ", most, " tokens");
    return is_rows_of_numbers(problem.weight) ? "" : "for numbers of 16 and 32 bits in rows that run on";
}

void run_rows(const Isa& isa, const MatmulProblem& problem) {
    const PreparedFloats x = prepare_floats(*problem.context, isa, problem.x, TokenOrder::natural);
    stream_rows(isa, problem, [&](const Finisher::Piece& piece, float* sums) {
        RowScales scales;
        CodedWeight weight = coded_rows(isa, problem.weight, piece.first_row, piece.rows, scales);
        if (weight.element == Element::q8_0) weight.element = Element::int8;
        isa.rows(weight, x.tokens, sums, piece.stride());
    });
}

}  // namespace lowbit::cpu
