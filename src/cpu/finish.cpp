#include "cpu/finish.hpp"

#include <algorithm>
#include <type_traits>

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
    const core::Tensor& y = problem_.y;
    const bool plain = problem_.epilogue.activation == Activation::none && problem_.epilogue.beta == 0.0f;
    if ((has_lines<Sum>() || piece.by_tokens) && y.element == Element::fp32 && y.column_stride == 1 && plain)
        return load_lines(piece, 0, piece.rows, 0, piece.tokens, sums,
                          static_cast<float*>(y.data) + y.offset(piece.first_token, piece.first_row), y.row_stride);
    alignas(64) float lines[height * width];
    for (int64_t row = 0; row < piece.rows; row += width) {
        const int64_t count = std::min(width, piece.rows - row);
        for (int64_t token = 0; token < piece.tokens; token += height) {
            const int64_t tokens = std::min(height, piece.tokens - token);
            load_lines(piece, row, count, token, tokens, sums, lines, width);
            for (int64_t t = 0; t < tokens; ++t) {
                activate_line(lines + t * width, count);
                write_line(lines + t * width, piece.first_token + token + t, piece.first_row + row, count);
            }
        }
    }
}

template <class Sum>
bool Finisher::has_lines() const {
    return std::is_same_v<Sum, int32_t> ? isa_.int_lines != nullptr : isa_.float_lines != nullptr;
}

template <class Sum>
void Finisher::load_lines(const Piece& piece, int64_t row, int64_t rows, int64_t token, int64_t tokens, const Sum* sums, float* lines,
                          int64_t line_stride) const {
    const int64_t stride = piece.stride();
    const LineFactors factors{token_factor_.data() + piece.first_token + token, row_factor_.data() + piece.first_row + row,
                              bias_.data() + piece.first_row + row};
    sums += piece.index(row, token);
    if constexpr (std::is_same_v<Sum, int32_t>) {
        if (isa_.int_lines && !piece.by_tokens) return isa_.int_lines(sums, stride, rows, tokens, factors, lines, line_stride);
    } else {
        if (isa_.float_lines && !piece.by_tokens) return isa_.float_lines(sums, stride, rows, tokens, factors, lines, line_stride);
    }
    for (int64_t t = 0; t < tokens; ++t) {
        float* line = lines + t * line_stride;
        if (piece.by_tokens)
            for (int64_t r = 0; r < rows; ++r) line[r] = float(sums[t * stride + r]);
        else
            for (int64_t r = 0; r < rows; ++r) line[r] = float(sums[r * stride + t]);
        for (int64_t r = 0; r < rows; ++r) line[r] = line[r] * factors.tokens[t] * factors.rows[r] + factors.bias[r];
    }
}

void Finisher::activate_line(float* line, int64_t count) const {
    if (problem_.epilogue.activation != Activation::none)
        for (int64_t i = 0; i < count; ++i) line[i] = core::activate(problem_.epilogue.activation, line[i]);
}

void Finisher::write_line(float* line, int64_t token, int64_t first_row, int64_t count) const {
    const core::Tensor& y = problem_.y;
    const float beta = problem_.epilogue.beta;
    const int64_t offset = y.offset(token, first_row);
    if (y.column_stride == 1 && y.element != Element::int8) {
        auto* destination = static_cast<std::byte*>(y.data) + offset * core::element_bytes(y.element);
        if (beta != 0.0f) {
            alignas(64) float before[width];
            isa_.to_float(y.element, destination, before, count);
            for (int64_t i = 0; i < count; ++i) line[i] += beta * before[i];
        }
        isa_.from_float(y.element, line, destination, count);
        return;
    }
    for (int64_t i = 0; i < count; ++i) core::store_result(y, problem_.epilogue, token, first_row + i, line[i]);
}

template void Finisher::store_any(const Piece&, const float*) const;
template void Finisher::store_any(const Piece&, const int32_t*) const;

}  // namespace lowbit::cpu
