#include "cpu/finish.hpp"

#include <algorithm>

namespace lowbit::cpu {
namespace {

std::vector<float> factors(const std::vector<float>& operand, const std::optional<core::Tensor>& epilogue, int64_t count, float scale) {
    std::vector<float> result(size_t(count), scale);
    for (int64_t i = 0; i < count; ++i) {
        if (!operand.empty()) result[size_t(i)] *= operand[size_t(i)];
        if (epilogue) result[size_t(i)] *= core::load(*epilogue, 0, i);
    }
    return result;
}

}  // namespace

Finisher::Finisher(const core::MatmulProblem& problem, const Isa& isa, const OperandScales& scales)
    : problem_(problem),
      isa_(isa),
      token_factor_(factors(scales.tokens, problem.epilogue.row_scale, problem.m(), problem.epilogue.scale)),
      row_factor_(factors(scales.rows, problem.epilogue.column_scale, problem.n(), 1.0f)),
      bias_(size_t(problem.n()), 0.0f) {
    if (problem.epilogue.bias)
        for (int64_t n = 0; n < problem.n(); ++n) bias_[size_t(n)] = core::load(*problem.epilogue.bias, 0, n);
}

template <class Sum>
void Finisher::store_any(const Piece& piece, const Sum* sums) const {
    float line[width];
    const int64_t stride = piece.stride();
    for (int64_t row = 0; row < piece.rows; row += width) {
        const int64_t count = std::min(width, piece.rows - row), first_row = piece.first_row + row;
        for (int64_t token = 0; token < piece.tokens; ++token) {
            for (int64_t i = 0; i < count; ++i) line[i] = float(sums[(row + i) * stride + token]);
            finish_line(line, piece.first_token + token, first_row, count);
            write_line(line, piece.first_token + token, first_row, count);
        }
    }
}

void Finisher::finish_line(float* line, int64_t token, int64_t first_row, int64_t count) const {
    const float factor = token_factor_[size_t(token)];
    const float* row_factor = row_factor_.data() + first_row;
    const float* bias = bias_.data() + first_row;
    for (int64_t i = 0; i < count; ++i) line[i] = line[i] * factor * row_factor[i] + bias[i];
    if (problem_.epilogue.activation != Activation::none)
        for (int64_t i = 0; i < count; ++i) line[i] = core::activate(problem_.epilogue.activation, line[i]);
}

void Finisher::write_line(const float* line, int64_t token, int64_t first_row, int64_t count) const {
    const core::Tensor& y = problem_.y;
    const int64_t offset = y.offset(token, first_row);
    if (y.column_stride == 1 && y.element != Element::int8) {
        auto* destination = static_cast<std::byte*>(y.data) + offset * core::element_bytes(y.element);
        isa_.from_float(y.element, line, destination, count);
        return;
    }
    for (int64_t i = 0; i < count; ++i) core::store_result(y, problem_.epilogue, token, first_row + i, line[i]);
}

template void Finisher::store_any(const Piece&, const float*) const;
template void Finisher::store_any(const Piece&, const int32_t*) const;

}  // namespace lowbit::cpu
