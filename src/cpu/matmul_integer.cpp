#include <algorithm>

#include "core/status.hpp"
#include "cpu/finish.hpp"
#include "cpu/matmul.hpp"
#include "cpu/pieces.hpp"
#include "cpu/prepare.hpp"

namespace lowbit::cpu {
namespace {

using core::MatmulProblem;

// sum (x + cx)(w + cw) = sum x w + cx sum w + cw sum x + K cx cw, exactly.
int64_t correction(const PreparedIntegers& x, int64_t token, const PreparedIntegers& weight, int64_t row, int64_t k) {
    const int64_t cx = x.offsets.empty() ? 0 : x.offsets[size_t(token)], cw = weight.offsets.empty() ? 0 : weight.offsets[size_t(row)];
    return (cx ? cx * weight.sums[size_t(row)] : 0) + (cw ? cw * x.sums[size_t(token)] : 0) + k * cx * cw;
}

// The order that int8 wants its tokens in, if it wants one; the memory stays with the caller.
core::Buffer pack_tokens(const core::Context& context, const Isa& isa, int64_t columns, IntegerTokens& x) {
    const int64_t bytes = isa.packed8_bytes ? isa.packed8_bytes(x, columns) : 0;
    if (bytes == 0) return {};
    core::Buffer memory(core::Allocator::aligned_heap(), bytes);
    auto* packed = reinterpret_cast<int8_t*>(memory.data());
    const int64_t parts = context.threads();
    context.parallel(parts, [&](int64_t part) { isa.pack8(x, columns, part, parts, packed); });
    x.packed = packed;
    return memory;
}

}  // namespace

std::string supports_int8(const MatmulProblem& problem) {
    const core::Format x = problem.x.format(), weight = problem.weight.format();
    if (!x.is_integer() || !weight.is_integer()) return "for integer codes on both sides";
    if (!x.scale_is_constant_along_row() || !weight.scale_is_constant_along_row()) return "scales change along K";
    constexpr int64_t most = 131071;  // K * 128 * 128 < 2^31
    if (problem.k() > most) return core::join("K is more than ", most);
    return "";
}

// Codes of 4 bits are widened for every call, which takes many times as long as to read them.
std::string defers_int8(const MatmulProblem& problem) {
    const bool narrow = core::element_bits(problem.weight.format().element) == 4;
    return narrow && supports_weight4(problem).empty() ? "few tokens: weights of 4 bits stream as they are" : "";
}

void run_int8(const Isa& isa, const MatmulProblem& problem) {
    const core::QuantizedView &x = problem.x.quantized, &weight = problem.weight.quantized;
    const core::Context& context = *problem.context;
    const PreparedIntegers left = prepare_integers(context, x, 0, problem.m(), weight.format.asymmetric);
    const bool corrected = x.format.asymmetric || weight.format.asymmetric;
    const Finisher finisher(problem, isa, {row_scales(x), row_scales(weight)});
    IntegerTokens tokens{left.codes, left.stride, problem.m()};
    const core::Buffer packed = pack_tokens(context, isa, problem.k(), tokens);
    const Pieces pieces = tokens.packed ? cut_small(problem, IntegerTokens::block) : cut(problem);
    context.parallel(pieces.count(), [&](int64_t index) {
        const Finisher::Piece piece = pieces[index];
        const PreparedIntegers right = prepare_integers(context, weight, piece.first_row, piece.rows, x.format.asymmetric);
        // Aligned, for no row of a tile to lie in two cache lines.
        const core::Buffer memory(core::Allocator::aligned_heap(), int64_t(piece.sums() * sizeof(int32_t)));
        auto* sums = reinterpret_cast<int32_t*>(memory.data());
        isa.int8(right.codes, right.stride, piece.rows, problem.k(), tokens.part(piece.first_token, piece.tokens, problem.k()), sums,
                 piece.stride());
        if (!corrected && !problem.raw_integers()) return finisher.store(piece, sums);
        const auto floats = std::make_unique_for_overwrite<float[]>(problem.raw_integers() ? 0 : piece.sums());
        for (int64_t row = 0; row < piece.rows; ++row)
            for (int64_t i = 0; i < piece.tokens; ++i) {
                const int64_t token = piece.first_token + i,
                              sum = sums[size_t(row * piece.stride() + i)] + correction(left, token, right, row, problem.k());
                if (problem.raw_integers())
                    static_cast<int32_t*>(problem.y.data)[problem.y.offset(token, piece.first_row + row)] = int32_t(sum);
                else
                    floats[size_t(row * piece.stride() + i)] = float(sum);
            }
        if (!problem.raw_integers()) finisher.store(piece, floats.get());
    });
}

std::string supports_ggml(const MatmulProblem& problem) {
    const Element weight = problem.weight.format().element;
    if (!has_blocks(problem.x.format())) return "for q8_1, q8_0 or int8 tokens with one scale each";
    if (problem.raw_integers()) return "no raw int32 output";
    if (weight != Element::q4_0 && weight != Element::q8_0) return "for q4_0 and q8_0 weights";
    return "";
}

void run_ggml(const Isa& isa, const MatmulProblem& problem) {
    const core::QuantizedView& weight = problem.weight.quantized;
    const core::Context& context = *problem.context;
    const PreparedBlocks x = prepare_blocks(context, problem.x.quantized);
    const Finisher finisher(problem, isa);
    const auto product = weight.format.element == Element::q4_0 ? isa.q4_0_q8 : isa.q8_0_q8;
    const Pieces pieces = cut(problem);
    context.parallel(pieces.count(), [&](int64_t index) {
        const Finisher::Piece piece = pieces[index];
        const auto sums = std::make_unique_for_overwrite<float[]>(piece.sums());
        product(weight.row_codes(piece.first_row), weight.row_bytes(), piece.rows, x.part(piece.first_token, piece.tokens), sums.get(),
                piece.stride());
        finisher.store(piece, sums.get());
    });
}

}  // namespace lowbit::cpu
