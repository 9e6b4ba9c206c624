#include "core/some_rows.hpp"

#include "core/status.hpp"

namespace lowbit::core {

Tensor some_rows(const Tensor& matrix, int64_t first, int64_t count) {
    Tensor some = matrix;
    some.data = static_cast<std::byte*>(matrix.data) + matrix.offset(first, 0) * element_bytes(matrix.element);
    some.rows = count;
    return some;
}

QuantizedView some_rows(const QuantizedView& matrix, int64_t first, int64_t count) {
    const Format& format = matrix.format;
    int64_t scales_before = 0;
    switch (format.granularity) {
    case Granularity::row: scales_before = first; break;
    case Granularity::group: scales_before = first * ceil_div(matrix.columns, format.group_columns); break;
    case Granularity::block: scales_before = first / format.group_rows * ceil_div(matrix.columns, format.group_columns); break;
    default: break;
    }
    QuantizedView some = matrix;
    some.rows = count;
    some.codes = matrix.row_codes(first);
    if (matrix.scales) some.scales = static_cast<std::byte*>(matrix.scales) + scales_before * element_bytes(format.scale);
    if (matrix.zero_points) some.zero_points = matrix.zero_points + scales_before;
    return some;
}

}  // namespace lowbit::core
