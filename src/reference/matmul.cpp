// Y[M,N] = epilogue(X[M,K] . W[N,K]^T), the obvious way: integer codes in exact integers, everything else in double.
#include "core/status.hpp"
#include "reference/codes.hpp"
#include "reference/quantize.hpp"

namespace lowbit::reference {
namespace {

using core::MatmulProblem;
using core::Operand;

std::vector<double> row_values(const Operand& operand, int64_t row) {
    std::vector<double> values(size_t(operand.columns()));
    if (operand.is_quantized)
        decode_row(operand.quantized, row, 0, operand.columns(), values.data());
    else
        for (int64_t k = 0; k < operand.columns(); ++k) values[size_t(k)] = double(core::load(operand.tensor, row, k));
    return values;
}

// The codes less their zero points.
std::vector<int> row_integers(const Operand& operand, int64_t row) {
    const core::QuantizedView& view = operand.quantized;
    const float* table = code_values(view.format.element).data();
    std::vector<int> integers(size_t(view.columns));
    for (int64_t k = 0; k < view.columns; ++k) {
        const unsigned code = read_code(view.row_codes(row), core::element_bits(view.format.element), k);
        integers[size_t(k)] = int(table[code]) - view.zero_point_at(view.format.scale_index(row, k, view.columns));
    }
    return integers;
}

double row_scale(const Operand& operand, int64_t row) {
    return double(operand.quantized.scale_at(operand.quantized.format.scale_index(row, 0, operand.columns())));
}

template <class Number>
std::vector<std::vector<Number>> all_rows(const Operand& operand, std::vector<Number> (*row_of)(const Operand&, int64_t)) {
    std::vector<std::vector<Number>> rows;
    for (int64_t row = 0; row < operand.rows(); ++row) rows.push_back(row_of(operand, row));
    return rows;
}

template <class Sum, class Number>
Sum dot(const std::vector<Number>& x, const std::vector<Number>& weight) {
    Sum sum = 0;
    for (size_t k = 0; k < weight.size(); ++k) sum += Sum(x[k]) * Sum(weight[k]);
    return sum;
}

// What the epilogue makes of product(m, n, row n of the weight). A gate takes a second row for each result.
template <class Number, class Product>
void store_products(const MatmulProblem& problem, std::vector<Number> (*row_of)(const Operand&, int64_t), const Product& product) {
    const core::Epilogue& epilogue = problem.epilogue;
    const int64_t columns = problem.n();
    for (int64_t n = 0; n < columns; ++n) {
        const std::vector<Number> row = row_of(problem.weight, n);
        const std::vector<Number> second = epilogue.gate ? row_of(problem.weight, n + columns) : std::vector<Number>();
        for (int64_t m = 0; m < problem.m(); ++m) {
            double value = core::finish(epilogue, m, n, product(m, n, row));
            if (epilogue.gate) value *= core::scale_and_bias(epilogue, m, n + columns, product(m, n + columns, second));
            core::store_result(problem.y, epilogue, m, n, value);
        }
    }
}

void raw_matmul(const MatmulProblem& problem) {
    const auto x = all_rows<int>(problem.x, row_integers);
    for (int64_t n = 0; n < problem.n(); ++n) {
        const std::vector<int> row = row_integers(problem.weight, n);
        for (int64_t m = 0; m < problem.m(); ++m)
            static_cast<int32_t*>(problem.y.data)[problem.y.offset(m, n)] = int32_t(dot<int64_t>(x[size_t(m)], row));
    }
}

void integer_matmul(const MatmulProblem& problem) {
    const auto x = all_rows<int>(problem.x, row_integers);
    store_products(problem, row_integers, [&](int64_t m, int64_t n, const std::vector<int>& row) {
        return row.empty() ? 0.0 : double(dot<int64_t>(x[size_t(m)], row)) * row_scale(problem.x, m) * row_scale(problem.weight, n);
    });
}

void real_matmul(const MatmulProblem& problem) {
    const auto x = all_rows<double>(problem.x, row_values);
    store_products(problem, row_values, [&](int64_t m, int64_t, const std::vector<double>& row) { return dot<double>(x[size_t(m)], row); });
}

}  // namespace

void matmul(const MatmulProblem& problem) {
    const core::Format x = problem.x.format(), weight = problem.weight.format();
    const bool scale_once = x.scale_is_constant_along_row() && weight.scale_is_constant_along_row();
    if (problem.raw_integers())
        raw_matmul(problem);
    else if (x.is_integer() && weight.is_integer() && scale_once)
        integer_matmul(problem);
    else
        real_matmul(problem);
}

}  // namespace lowbit::reference
