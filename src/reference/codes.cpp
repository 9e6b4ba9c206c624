#include "reference/codes.hpp"

#include <algorithm>
#include <array>

#include "core/ggml_blocks.hpp"
#include "reference/ggml.hpp"

namespace lowbit::reference {
namespace {

template <size_t Count>
std::array<float, Count> make_table(Element element) {
    std::array<float, Count> table;
    for (size_t code = 0; code < Count; ++code) table[code] = code_value(element, unsigned(code));
    return table;
}

template <class Real>
void decode_ggml_row(const core::QuantizedView& view, int64_t row, int64_t first_column, int64_t count, Real* values) {
    const GgmlType& type = *find_ggml_type(view.format.element);
    const uint8_t* block = view.row_codes(row) + first_column / type.values * type.bytes;
    float decoded[256];
    for (int64_t done = 0; done < count; done += type.values, block += type.bytes) {
        type.dequantize(block, decoded);
        for (int i = 0; i < type.values; ++i) values[done + i] = Real(decoded[i]);
    }
}

}  // namespace

std::span<const float> code_values(Element element) {
    static const auto int8 = make_table<256>(Element::int8);
    static const auto uint8 = make_table<256>(Element::uint8);
    static const auto int4 = make_table<16>(Element::int4);
    static const auto uint4 = make_table<16>(Element::uint4);
    static const auto int1 = make_table<2>(Element::int1);
    static const auto e4m3 = make_table<256>(Element::fp8_e4m3);
    static const auto e5m2 = make_table<256>(Element::fp8_e5m2);
    static const auto e2m1 = make_table<16>(Element::fp4_e2m1);
    static const auto nf4 = make_table<16>(Element::nf4);
    switch (element) {
    case Element::int8: return int8;
    case Element::uint8: return uint8;
    case Element::int4: return int4;
    case Element::uint4: return uint4;
    case Element::int1: return int1;
    case Element::fp8_e4m3: return e4m3;
    case Element::fp8_e5m2: return e5m2;
    case Element::fp4_e2m1: return e2m1;
    case Element::nf4: return nf4;
    default: return {};
    }
}

void encode_group(Element element, const float* x, int64_t count, float scale, int zero_point, uint8_t* row, int64_t first) {
    const bool usable = is_usable_scale(scale);
    const int bits = core::element_bits(element);
    const auto write = [&]<Element Of>() {  // the element as a constant: the choice is made outside of the loop
        for (int64_t i = 0; i < count; ++i) write_code(row, bits, first + i, encode_value(Of, x[i], scale, usable, zero_point));
    };
    switch (element) {
    case Element::int8: return write.operator()<Element::int8>();
    case Element::int4: return write.operator()<Element::int4>();
    case Element::uint8: return write.operator()<Element::uint8>();
    case Element::uint4: return write.operator()<Element::uint4>();
    case Element::fp8_e4m3: return write.operator()<Element::fp8_e4m3>();
    case Element::fp8_e5m2: return write.operator()<Element::fp8_e5m2>();
    case Element::fp4_e2m1: return write.operator()<Element::fp4_e2m1>();
    case Element::nf4: return write.operator()<Element::nf4>();
    case Element::int1: return write.operator()<Element::int1>();
    default: return;
    }
}

template <class Real>
void decode_row(const core::QuantizedView& view, int64_t row, int64_t first_column, int64_t count, Real* values) {
    const core::Format& format = view.format;
    if (format.is_ggml()) return decode_ggml_row(view, row, first_column, count, values);
    const uint8_t* codes = view.row_codes(row);
    if (format.is_plain()) {
        for (int64_t i = 0; i < count; ++i) values[i] = Real(core::load(format.element, codes, first_column + i));
        return;
    }
    const float* table = code_values(format.element).data();
    const int bits = core::element_bits(format.element);
    const int64_t span = format.span(view.columns), end = first_column + count;
    for (int64_t column = first_column; column < end;) {
        const int64_t group_end = std::min(end, (column / span + 1) * span);
        const int64_t index = format.scale_index(row, column, view.columns);
        const Real scale = Real(view.scale_at(index));
        const float zero = float(view.zero_point_at(index));
        for (; column < group_end; ++column) values[column - first_column] = Real(table[read_code(codes, bits, column)] - zero) * scale;
    }
}

template void decode_row(const core::QuantizedView&, int64_t, int64_t, int64_t, float*);
template void decode_row(const core::QuantizedView&, int64_t, int64_t, int64_t, double*);

}  // namespace lowbit::reference
