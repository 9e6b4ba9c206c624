#include "cpu/row_scales.hpp"

#include <vector>

#include "core/numeric.hpp"
#include "core/status.hpp"
#include "reference/codes.hpp"

namespace lowbit::cpu {
namespace {

const float* e8m0_table() {
    static const std::vector<float> table = [] {
        std::vector<float> made;
        for (int code = 0; code < 256; ++code) made.push_back(core::e8m0_to_float(uint8_t(code)));
        return made;
    }();
    return table.data();
}

}  // namespace

void RowScales::load(const Isa& isa, const core::QuantizedView& view, int64_t first_row, int64_t rows) {
    const core::Format& format = view.format;
    const bool grouped = format.granularity == Granularity::group || format.granularity == Granularity::block;
    groups = grouped ? core::ceil_div(view.columns, format.group_columns) : 1;
    const int64_t count = rows * groups;
    scales = std::make_unique_for_overwrite<float[]>(size_t(count));
    if (format.asymmetric) zeros = std::make_unique_for_overwrite<float[]>(size_t(count));
    if (format.granularity == Granularity::group || format.granularity == Granularity::row) {
        load_run(isa, view, first_row * groups, count);
        return;
    }
    for (int64_t i = 0; i < count; ++i) {
        scales[size_t(i)] = view.scale_at(index(view, first_row, i));
        if (format.asymmetric) zeros[size_t(i)] = float(view.zero_points[index(view, first_row, i)]);
    }
}

// Scales that stand one after the other in their plane.
void RowScales::load_run(const Isa& isa, const core::QuantizedView& view, int64_t first, int64_t count) {
    const Element type = view.format.scale;
    const auto* source = static_cast<const uint8_t*>(view.scales) + first * core::element_bytes(type);
    if (core::element_bytes(type) > 1) {
        isa.to_float(type, source, scales.get(), count);
    } else {
        const float* table = type == Element::e8m0 ? e8m0_table() : reference::code_values(type).data();
        const float unit = view.tensor_scale ? *view.tensor_scale : 1.0f;
        for (int64_t i = 0; i < count; ++i) scales[size_t(i)] = table[source[i]] * unit;
    }
    for (int64_t i = 0; zeros && i < count; ++i) zeros[size_t(i)] = float(view.zero_points[first + i]);
}

int64_t RowScales::index(const core::QuantizedView& view, int64_t first_row, int64_t i) const {
    const int64_t column = view.format.group_columns ? i % groups * view.format.group_columns : 0;
    return view.format.scale_index(first_row + i / groups, column, view.columns);
}

}  // namespace lowbit::cpu
