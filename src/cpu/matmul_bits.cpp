#include "core/status.hpp"
#include "cpu/finish.hpp"
#include "cpu/matmul.hpp"
#include "cpu/pieces.hpp"
#include "cpu/prepare.hpp"

namespace lowbit::cpu {
namespace {

BitRows rows_of(const core::QuantizedView& view, int64_t first, int64_t rows) {
    return {view.row_codes(first), view.row_bytes(), rows, view.columns};
}

}  // namespace

std::string supports_bits(const core::MatmulProblem& problem) {
    for (const core::Operand* operand : {&problem.x, &problem.weight}) {
        const core::Format format = operand->format();
        if (format.element != Element::int1) return "for int1 on both sides";
        if (!format.scale_is_constant_along_row()) return "scales change along K";
    }
    return "";
}

void run_bits(const Isa& isa, const core::MatmulProblem& problem) {
    const core::QuantizedView &x = problem.x.quantized, &weight = problem.weight.quantized;
    const Finisher finisher(problem, isa, {row_scales(x), row_scales(weight)});
    const Pieces pieces = cut(problem);
    problem.context->parallel(pieces.count(), [&](int64_t index) {
        const Finisher::Piece piece = pieces[index];
        const auto sums = std::make_unique_for_overwrite<int32_t[]>(piece.sums());
        isa.bits(rows_of(weight, piece.first_row, piece.rows), rows_of(x, piece.first_token, piece.tokens), sums.get(), piece.stride());
        if (!problem.raw_integers()) return finisher.store(piece, sums.get());
        for (int64_t row = 0; row < piece.rows; ++row)
            for (int64_t i = 0; i < piece.tokens; ++i)
                static_cast<int32_t*>(problem.y.data)[problem.y.offset(piece.first_token + i, piece.first_row + row)] =
                    sums[size_t(row * piece.stride() + i)];
    });
}

}  // namespace lowbit::cpu
