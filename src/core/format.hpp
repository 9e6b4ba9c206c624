// How numbers are stored: one small value, printed and parsed as one short string. docs/formats.md has the grammar and the arithmetic.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lowbit/types.hpp"

namespace lowbit::core {

// The planes of a rows x columns matrix in a format.
struct PlaneSizes {
    int64_t row_bytes = 0;
    int64_t code_bytes = 0;
    int64_t scale_rows = 0, scale_columns = 0;
    int64_t scale_bytes = 0;
    int64_t zero_point_bytes = 0;
    int64_t tensor_scale_bytes = 0;

    int64_t scales() const { return scale_rows * scale_columns; }
    int64_t total() const { return code_bytes + scale_bytes + zero_point_bytes + tensor_scale_bytes; }
};

struct Format {
    Element element = Element::fp32;
    Granularity granularity = Granularity::none;
    Element scale = Element::fp32;
    bool asymmetric = false;
    int64_t group_columns = 0;
    int64_t group_rows = 0;

    static Format parse(std::string_view text);
    std::string print() const;
    bool operator==(const Format&) const = default;

    // Refuses a combination of fields that no string describes (a Format from C may hold anything).
    void check() const;

    bool is_plain() const { return granularity == Granularity::none && !is_ggml(); }
    bool is_ggml() const { return int(element) >= int(Element::q4_0); }
    // int8, uint8, int4, uint4, int1: products of codes are integers.
    bool is_integer() const;
    // e4m3 scales count in units of one fp32 scale for the whole tensor.
    bool has_tensor_scale() const { return scale == Element::fp8_e4m3; }
    // One scale for all of a row: an integer product needs scaling only once, at the end.
    bool scale_is_constant_along_row() const { return granularity == Granularity::tensor || granularity == Granularity::row; }

    // Values that one scale covers along K in a matrix of so many columns.
    int64_t span(int64_t columns) const;
    // Where the scale of (row, column) stands in the plane of scales.
    int64_t scale_index(int64_t row, int64_t column, int64_t columns) const;

    // Throws when the shape cannot be stored (negative, overflowing, or not a whole number of GGML blocks).
    PlaneSizes measure(int64_t rows, int64_t columns) const;
    double bits_per_weight(int64_t rows, int64_t columns) const;
};

// Bits of one code; for a GGML type, bits per weight is what counts and this is not defined.
int element_bits(Element element);
const char* element_name(Element element);

// Every format worth a row in a table: `lowbit formats`, the demo and the tests walk this list.
const std::vector<Format>& common_formats();

}  // namespace lowbit::core
