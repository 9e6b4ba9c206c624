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

// One of the two ways to the exact product of int8 rows and tokens: slabs for many tokens, or the loop for any number, which may want
// its tokens in an order of its own.
class IntegerProduct {
public:
    IntegerProduct(const Isa& isa, const MatmulProblem& problem, const IntegerTokens& tokens)
        : isa_(isa), tokens_(tokens), k_(problem.k()) {
        const core::Context& context = *problem.context;
        if (isa.exact_slabs && tokens.tokens >= fewest_slab_tokens && k_ > 0) {
            slabs_ = isa.exact_slabs();
            packed_ = pack_tokens(context, slabs_, tokens, k_);
            pieces_ = cut_slabs(problem);
            return;
        }
        const int64_t bytes = isa.packed8_bytes ? isa.packed8_bytes(tokens, k_) : 0;
        pieces_ = bytes ? cut_small(problem, IntegerTokens::block) : cut(problem);
        if (bytes == 0) return;
        packed_ = core::Buffer(core::Allocator::aligned_heap(), bytes);
        tokens_.packed = reinterpret_cast<int8_t*>(packed_.data());
        const int64_t parts = context.threads();
        context.parallel(parts, [&](int64_t part) { isa.pack8(tokens, k_, part, parts, reinterpret_cast<int8_t*>(packed_.data())); });
    }

    int64_t pieces() const { return pieces_.count(); }
    Finisher::Piece piece(int64_t index) const {
        Finisher::Piece piece = pieces_[index];
        piece.by_tokens = slabs_.multiply != nullptr;
        return piece;
    }
    void run(const Finisher::Piece& piece, const PreparedIntegers& rows, int32_t* sums) const {
        if (slabs_.multiply) {
            CodedWeight weight;
            weight.codes = reinterpret_cast<const uint8_t*>(rows.codes);
            weight.row_stride = rows.stride;
            weight.rows = piece.rows;
            weight.columns = weight.group = k_;
            slabs_.multiply(weight, reinterpret_cast<const uint8_t*>(packed_.data()), tokens_.tokens, piece.first_token, piece.tokens, sums,
                            piece.stride());
        } else {
            isa_.int8(rows.codes, rows.stride, piece.rows, k_, tokens_.part(piece.first_token, piece.tokens, k_), sums, piece.stride());
        }
    }

private:
    static constexpr int64_t fewest_slab_tokens = 16;  // fewer wait for memory, which rows that stream as they are do better

    const Isa& isa_;
    IntegerTokens tokens_;
    int64_t k_;
    ExactSlabs slabs_;
    core::Buffer packed_;
    Pieces pieces_;
};

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
    const IntegerProduct product(isa, problem, {left.codes, left.stride, problem.m()});
    context.parallel(product.pieces(), [&](int64_t index) {
        const Finisher::Piece piece = product.piece(index);
        const PreparedIntegers right = prepare_integers(context, weight, piece.first_row, piece.rows, x.format.asymmetric);
        // Aligned, for no row of a tile to lie in two cache lines.
        const core::Buffer memory(core::Allocator::aligned_heap(), int64_t(piece.sums() * sizeof(int32_t)));
        auto* sums = reinterpret_cast<int32_t*>(memory.data());
        product.run(piece, right, sums);
        if (!corrected && !problem.raw_integers()) return finisher.store(piece, sums);
        const auto floats = std::make_unique_for_overwrite<float[]>(problem.raw_integers() ? 0 : piece.sums());
        for (int64_t row = 0; row < piece.rows; ++row)
            for (int64_t i = 0; i < piece.tokens; ++i) {
                const auto at = size_t(piece.index(row, i));
                const int64_t token = piece.first_token + i, sum = sums[at] + correction(left, token, right, row, problem.k());
                if (problem.raw_integers())
                    static_cast<int32_t*>(problem.y.data)[problem.y.offset(token, piece.first_row + row)] = int32_t(sum);
                else
                    floats[at] = float(sum);
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
