#include "reference/codes.hpp"

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>

#include "core/ggml_blocks.hpp"
#include "reference/ggml.hpp"

namespace lowbit::reference {
namespace {

// The quantiles of a normal distribution, scaled to [-1, 1], that define NF4.
constexpr std::array<float, 16> nf4_values = {-1.0f,
                                              -0.6961928009986877f,
                                              -0.5250730514526367f,
                                              -0.39491748809814453f,
                                              -0.28444138169288635f,
                                              -0.18477343022823334f,
                                              -0.09105003625154495f,
                                              0.0f,
                                              0.07958029955625534f,
                                              0.16093020141124725f,
                                              0.24611230194568634f,
                                              0.33791524171829224f,
                                              0.44070982933044434f,
                                              0.5626170039176941f,
                                              0.7229568362236023f,
                                              1.0f};
constexpr unsigned nf4_zero = 7;

template <size_t Count, class Decode>
std::array<float, Count> make_table(Decode decode) {
    std::array<float, Count> table;
    for (size_t code = 0; code < Count; ++code) table[code] = decode(unsigned(code));
    return table;
}

// The nearest of the sixteen values; exactly between two, the lower.
unsigned encode_nf4(float value) {
    unsigned code = 0;
    while (code < 15 && value > (nf4_values[code] + nf4_values[code + 1]) / 2) ++code;
    return code;
}

// round(x / scale) to even, kept in [low, high]; NaN gives 0. Adding 1.5 * 2^23 leaves no bits below 1, so the addition rounds.
int round_and_clamp(float quotient, int low, int high) {
    if (std::isnan(quotient)) return 0;
    constexpr float shift = 0x1.8p23f;
    return int((std::clamp(quotient, float(low), float(high)) + shift) - shift);
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
    static const auto int8 = make_table<256>([](unsigned c) { return float(int8_t(c)); });
    static const auto uint8 = make_table<256>([](unsigned c) { return float(c); });
    static const auto int4 = make_table<16>([](unsigned c) { return float(int(c ^ 8) - 8); });
    static const auto uint4 = make_table<16>([](unsigned c) { return float(c); });
    static const auto int1 = make_table<2>([](unsigned c) { return c ? -1.0f : 1.0f; });
    static const auto e4m3 = make_table<256>([](unsigned c) { return core::e4m3_to_float(uint8_t(c)); });
    static const auto e5m2 = make_table<256>([](unsigned c) { return core::e5m2_to_float(uint8_t(c)); });
    static const auto e2m1 = make_table<16>([](unsigned c) { return core::e2m1_to_float(c); });
    switch (element) {
    case Element::int8: return int8;
    case Element::uint8: return uint8;
    case Element::int4: return int4;
    case Element::uint4: return uint4;
    case Element::int1: return int1;
    case Element::fp8_e4m3: return e4m3;
    case Element::fp8_e5m2: return e5m2;
    case Element::fp4_e2m1: return e2m1;
    case Element::nf4: return nf4_values;
    default: return {};
    }
}

float largest_value(Element element) {
    switch (element) {
    case Element::int8: return 127;
    case Element::uint8: return 255;
    case Element::int4: return 7;
    case Element::uint4: return 15;
    case Element::fp8_e4m3: return 448;
    case Element::fp8_e5m2: return 57344;
    case Element::fp4_e2m1: return 6;
    default: return 1;
    }
}

void encode_group(Element element, const float* x, int64_t count, float scale, int zero_point, uint8_t* row, int64_t first) {
    const bool usable = scale >= FLT_MIN && scale <= FLT_MAX;
    const int bits = core::element_bits(element);
    const auto write = [&](auto code_of) {
        for (int64_t i = 0; i < count; ++i) {
            const float quotient = std::isnan(x[i]) ? x[i] : usable ? x[i] / scale : 0.0f;
            write_code(row, bits, first + i, code_of(quotient));
        }
    };
    switch (element) {
    case Element::int8: return write([](float q) { return unsigned(round_and_clamp(q, -128, 127)) & 0xff; });
    case Element::int4: return write([](float q) { return unsigned(round_and_clamp(q, -8, 7)) & 0xf; });
    case Element::uint8: return write([=](float q) { return unsigned(round_and_clamp(q, -zero_point, 255 - zero_point) + zero_point); });
    case Element::uint4: return write([=](float q) { return unsigned(round_and_clamp(q, -zero_point, 15 - zero_point) + zero_point); });
    case Element::fp8_e4m3: return write([](float q) { return unsigned(core::float_to_e4m3(q)); });
    case Element::fp8_e5m2: return write([](float q) { return unsigned(core::float_to_e5m2(q)); });
    case Element::fp4_e2m1: return write(core::float_to_e2m1);
    case Element::nf4: return write([](float q) { return std::isnan(q) ? nf4_zero : encode_nf4(q); });
    case Element::int1:  // the sign alone
        for (int64_t i = 0; i < count; ++i) write_code(row, 1, first + i, x[i] < 0);
        return;
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
