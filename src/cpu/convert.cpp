// Plain numbers from one type to another: through fp32, which holds all of them, in pieces that stay in the first-level cache.
#include "cpu/convert.hpp"

#include <algorithm>

#include "core/status.hpp"
#include "reference/codes.hpp"

namespace lowbit::cpu {
namespace {

constexpr int64_t piece_values = 2048, task_values = 16 * piece_values;

bool is_byte(Element element) { return core::element_bits(element) == 8; }

std::byte* place(const core::Tensor& tensor, int64_t row, int64_t column) {
    return static_cast<std::byte*>(tensor.data) + tensor.offset(row, column) * core::element_bytes(tensor.element);
}

void load_piece(const Isa& isa, const core::Tensor& x, int64_t row, int64_t column, int64_t count, float* values) {
    if (!x.rows_are_contiguous()) {
        for (int64_t i = 0; i < count; ++i) values[i] = core::load(x, row, column + i);
    } else if (is_byte(x.element)) {
        const float* table = reference::code_values(x.element).data();
        const std::byte* codes = place(x, row, column);
        for (int64_t i = 0; i < count; ++i) values[i] = table[uint8_t(codes[i])];
    } else {
        isa.to_float(x.element, place(x, row, column), values, count);
    }
}

void store_piece(const Isa& isa, const core::Tensor& y, int64_t row, int64_t column, int64_t count, const float* values) {
    if (y.rows_are_contiguous() && !is_byte(y.element)) return isa.from_float(y.element, values, place(y, row, column), count);
    for (int64_t i = 0; i < count; ++i) core::store(y.element, y.data, y.offset(row, column + i), values[i]);
}

}  // namespace

std::string supports_convert(const core::ConvertProblem&) { return ""; }

void run_convert(const Isa& isa, const core::ConvertProblem& problem) {
    const core::ConvertProblem ordered = problem.in_order();
    const core::Tensor &x = ordered.x, &y = ordered.y;
    const int64_t per_row = core::ceil_div(y.columns, piece_values), pieces = y.rows * per_row;
    const int64_t per_task = std::max<int64_t>(1, task_values / std::clamp<int64_t>(y.columns, 1, piece_values));
    problem.context->parallel(core::ceil_div(pieces, per_task), [&](int64_t task) {
        alignas(64) float values[piece_values];
        for (int64_t index = task * per_task; index < std::min(pieces, (task + 1) * per_task); ++index) {
            const int64_t row = index / per_row, column = index % per_row * piece_values;
            const int64_t count = std::min(piece_values, y.columns - column);
            load_piece(isa, x, row, column, count, values);
            store_piece(isa, y, row, column, count, values);
        }
    });
}

}  // namespace lowbit::cpu
