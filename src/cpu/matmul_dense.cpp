#include <algorithm>

#include "core/ggml_blocks.hpp"
#include "core/status.hpp"
#include "cpu/finish.hpp"
#include "cpu/matmul.hpp"
#include "cpu/prepare.hpp"

namespace lowbit::cpu {
namespace {

// A block of the weight in fp32 stays in the second-level cache (128 KB) while many tokens pass by, in the first (32 KB) for a few. 1024 is
// a multiple of every GGML block.
constexpr int64_t block_columns = 1024, block_stride = float_row_stride(block_columns);
int64_t rows_per_block(const core::MatmulProblem& problem) { return is_turned(problem.weight) ? rows_at_once : problem.m() > 8 ? 32 : 8; }

// The operand's rows can be read in place: fp32, whole rows, nothing to pad.
const float* rows_in_place(const core::Operand& operand, int64_t& stride) {
    if (operand.is_quantized || operand.tensor.element != Element::fp32 || operand.tensor.column_stride != 1) return nullptr;
    if (operand.columns() % column_padding != 0) return nullptr;
    stride = operand.tensor.row_stride;
    return static_cast<const float*>(operand.tensor.data);
}

}  // namespace

std::string supports_dense(const core::MatmulProblem& problem) { return problem.raw_integers() ? "no raw int32 output" : ""; }

void run_dense(const Isa& isa, const core::MatmulProblem& problem) {
    const core::Context& context = *problem.context;
    const PreparedFloats x = prepare_floats(context, isa, problem.x, TokenOrder::natural);
    const Finisher finisher(problem, isa);
    const int64_t tokens = problem.m(), columns = problem.k(), block_rows = rows_per_block(problem);
    int64_t in_place_stride = 0;
    const float* in_place = rows_in_place(problem.weight, in_place_stride);
    context.parallel(core::ceil_div(problem.n(), block_rows), [&](int64_t task) {
        const int64_t first = task * block_rows, rows = std::min(block_rows, problem.n() - first);
        const Finisher::Piece piece{first, rows, 0, tokens};
        const auto sums = std::make_unique<float[]>(piece.sums());
        const auto decoded = std::make_unique_for_overwrite<float[]>(in_place ? 0 : size_t(block_rows * block_stride));
        for (int64_t column = 0; column < columns; column += block_columns) {
            const int64_t count = std::min(block_columns, columns - column), padded = padded_columns(count);
            const float* weight = in_place ? in_place + first * in_place_stride + column : decoded.get();
            if (!in_place) {
                load_rows(isa, problem.weight, first, rows, column, count, decoded.get(), block_stride);
                for (int64_t row = 0; row < rows; ++row)
                    std::fill(decoded.get() + row * block_stride + count, decoded.get() + row * block_stride + padded, 0.0f);
            }
            const FloatTokens part{x.tokens.values + column, x.tokens.stride, tokens};
            isa.dense(weight, in_place ? in_place_stride : block_stride, rows, padded, part, sums.get(), piece.stride());
        }
        finisher.store(piece, sums.get());
    });
}

}  // namespace lowbit::cpu
