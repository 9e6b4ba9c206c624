// Plain numbers from one type to another: through fp32, which holds all of them, in pieces that stay in the first-level cache.
#include "cpu/convert.hpp"

#include <algorithm>

#include "core/status.hpp"
#include "cpu/prepare.hpp"

namespace lowbit::cpu {
namespace {

// Of one row; of a tensor that lies column by column several short rows, not a multiple of 4 KB apart.
constexpr int64_t row_piece = 4096, turned_piece = 128, turned_stride = turned_piece + 16, task_values = 32768;
constexpr int64_t most_values = std::max(row_piece, rows_at_once* turned_stride);

void store_row(const Isa& isa, const core::Tensor& y, int64_t row, int64_t column, int64_t count, const float* values) {
    const int bytes = core::element_bytes(y.element);
    if (y.rows_are_contiguous() && bytes > 1)
        return isa.from_float(y.element, values, static_cast<std::byte*>(y.data) + y.offset(row, column) * bytes, count);
    for (int64_t i = 0; i < count; ++i) core::store(y.element, y.data, y.offset(row, column + i), values[i]);
}

}  // namespace

std::string supports_convert(const core::ConvertProblem&) { return ""; }

void run_convert(const Isa& isa, const core::ConvertProblem& problem) {
    const core::ConvertProblem ordered = problem.in_order();
    const core::Tensor& y = ordered.y;
    core::Operand x;
    x.tensor = ordered.x;
    const bool turned = is_turned(x);
    const int64_t height = turned ? rows_at_once : 1, width = std::min(turned ? turned_piece : row_piece, std::max<int64_t>(y.columns, 1));
    const int64_t across = core::ceil_div(y.columns, width), pieces = core::ceil_div(y.rows, height) * across;
    const int64_t per_task = std::max<int64_t>(1, task_values / (height * width));
    problem.context->parallel(core::ceil_div(pieces, per_task), [&](int64_t task) {
        alignas(64) float values[most_values];
        for (int64_t index = task * per_task; index < std::min(pieces, (task + 1) * per_task); ++index) {
            const int64_t first = index / across * height, rows = std::min(height, y.rows - first);
            const int64_t column = index % across * width, count = std::min(width, y.columns - column);
            load_rows(isa, x, first, rows, column, count, values, turned_stride);
            for (int64_t row = 0; row < rows; ++row) store_row(isa, y, first + row, column, count, values + row * turned_stride);
        }
    });
}

}  // namespace lowbit::cpu
