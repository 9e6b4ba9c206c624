#include "core/format.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "core/ggml_blocks.hpp"
#include "core/status.hpp"

namespace lowbit::core {
namespace {

struct ElementRow {
    Element element;
    const char* name;
    int bits;  // of a code; 0 for GGML types
};

constexpr std::array elements = {
    ElementRow{Element::fp32, "fp32", 32},        ElementRow{Element::fp16, "fp16", 16},
    ElementRow{Element::bf16, "bf16", 16},        ElementRow{Element::int32, "int32", 32},
    ElementRow{Element::int8, "int8", 8},         ElementRow{Element::uint8, "uint8", 8},
    ElementRow{Element::int4, "int4", 4},         ElementRow{Element::uint4, "uint4", 4},
    ElementRow{Element::int1, "int1", 1},         ElementRow{Element::fp8_e4m3, "fp8_e4m3", 8},
    ElementRow{Element::fp8_e5m2, "fp8_e5m2", 8}, ElementRow{Element::fp4_e2m1, "fp4_e2m1", 4},
    ElementRow{Element::nf4, "nf4", 4},           ElementRow{Element::e8m0, "e8m0", 8},
    ElementRow{Element::q4_0, "q4_0", 0},         ElementRow{Element::q4_1, "q4_1", 0},
    ElementRow{Element::q5_0, "q5_0", 0},         ElementRow{Element::q5_1, "q5_1", 0},
    ElementRow{Element::q8_0, "q8_0", 0},         ElementRow{Element::q8_1, "q8_1", 0},
    ElementRow{Element::q2_k, "q2_k", 0},         ElementRow{Element::q3_k, "q3_k", 0},
    ElementRow{Element::q4_k, "q4_k", 0},         ElementRow{Element::q5_k, "q5_k", 0},
    ElementRow{Element::q6_k, "q6_k", 0},         ElementRow{Element::iq4_nl, "iq4_nl", 0},
};

const ElementRow* find_row(Element element) {
    const auto found = std::ranges::find(elements, element, &ElementRow::element);
    return found == elements.end() ? nullptr : &*found;
}

// The names the field gave to three of the combinations.
struct Alias {
    const char* name;
    Format format;
};
const Alias aliases[] = {
    {"mxfp4", {Element::fp4_e2m1, Granularity::group, Element::e8m0, false, 32, 0}},
    {"nvfp4", {Element::fp4_e2m1, Granularity::group, Element::fp8_e4m3, false, 16, 0}},
    {"mxfp8", {Element::fp8_e4m3, Granularity::group, Element::e8m0, false, 32, 0}},
};

// Where a scale of 2 bytes instead of 4 is a visible part of a weight.
Element default_scale(Element element, Granularity granularity) {
    const ElementRow* row = find_row(element);
    return granularity == Granularity::group && row && row->bits <= 4 ? Element::fp16 : Element::fp32;
}

constexpr const char* scale_prefix = "scale_";

int64_t parse_size(std::string_view digits, std::string_view whole) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool canonical = !digits.empty() && digits.front() != '0' && digits.front() != '-';
    require(error == std::errc{} && end == digits.data() + digits.size() && canonical, "format \"", whole, "\": \"", digits,
            "\" is not a group size; use a positive whole number such as 128");
    return value;
}

void parse_granularity(std::string_view word, std::string_view whole, Format& format) {
    if (word == "tensor") {
        format.granularity = Granularity::tensor;
    } else if (word == "row") {
        format.granularity = Granularity::row;
    } else if (word.starts_with("block")) {
        format.granularity = Granularity::block;
        const std::string_view sizes = word.substr(5);
        const size_t cross = sizes.find('x');
        format.group_rows = parse_size(sizes.substr(0, cross), whole);
        format.group_columns = cross == std::string_view::npos ? format.group_rows : parse_size(sizes.substr(cross + 1), whole);
    } else if (word.starts_with("g")) {
        format.granularity = Granularity::group;
        format.group_columns = parse_size(word.substr(1), whole);
    } else {
        fail(Status::invalid_argument, "format \"", whole, "\": unknown granularity \"", word,
             "\"; use tensor, row, g<size> or block<size>");
    }
}

void parse_modifier(std::string_view word, std::string_view whole, Format& format) {
    if (word == "asym") {
        require(!format.asymmetric, "format \"", whole, "\": \"asym\" stands there twice");
        format.asymmetric = true;
        return;
    }
    if (word.starts_with(scale_prefix))
        for (const Element type : {Element::fp32, Element::fp16, Element::bf16, Element::e8m0, Element::fp8_e4m3})
            if (word.substr(6) == element_name(type)) {
                format.scale = type;
                return;
            }
    fail(Status::invalid_argument, "format \"", whole, "\": unknown modifier \"", word,
         "\"; use asym, scale_fp32, scale_fp16, scale_bf16, scale_e8m0 or scale_fp8_e4m3");
}

std::string granularity_text(const Format& format) {
    switch (format.granularity) {
    case Granularity::none: return "";
    case Granularity::tensor: return ":tensor";
    case Granularity::row: return ":row";
    case Granularity::group: return join(":g", format.group_columns);
    case Granularity::block:
        return format.group_rows == format.group_columns ? join(":block", format.group_rows)
                                                         : join(":block", format.group_rows, "x", format.group_columns);
    }
    return "";
}

}  // namespace

int element_bits(Element element) {
    const ElementRow* row = find_row(element);
    return row ? row->bits : 0;
}

const char* element_name(Element element) {
    const ElementRow* row = find_row(element);
    return row ? row->name : "unknown";
}

Format Format::parse(std::string_view text) {
    for (const Alias& alias : aliases)
        if (text == alias.name) return alias.format;
    std::vector<std::string_view> words;
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find(':', begin), text.size());
        words.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    const auto row = std::ranges::find_if(elements, [&](const ElementRow& r) { return words[0] == r.name; });
    require(row != elements.end() && row->element != Element::int32 && row->element != Element::e8m0, "unknown format \"", text,
            "\"; use for example fp16, int8:row, int4:g128, uint4:g128:asym, fp8_e4m3:block128, nf4:g64, mxfp4, nvfp4, q4_0, q4_k");
    Format format;
    format.element = row->element;
    if (words.size() > 1) {
        parse_granularity(words[1], text, format);
        format.scale = default_scale(format.element, format.granularity);
        for (size_t i = 2; i < words.size(); ++i) parse_modifier(words[i], text, format);
    }
    format.check();
    return format;
}

std::string Format::print() const {
    for (const Alias& alias : aliases)
        if (*this == alias.format) return alias.name;
    std::string text = element_name(element) + granularity_text(*this);
    if (asymmetric) text += ":asym";
    if (scale != default_scale(element, granularity)) text += std::string(":") + scale_prefix + element_name(scale);
    return text;
}

void Format::check() const {
    const ElementRow* row = find_row(element);
    require(row && element != Element::int32 && element != Element::e8m0, "format: unknown element ", int(element));
    const char* name = row->name;
    const bool carries_own_scales = is_ggml() || element == Element::fp32 || element == Element::fp16 || element == Element::bf16;
    if (carries_own_scales) {
        require(granularity == Granularity::none && !asymmetric && scale == Element::fp32 && group_columns == 0 && group_rows == 0,
                "format: ", name, " takes no granularity and no modifier");
        return;
    }
    require(int(granularity) >= int(Granularity::tensor) && int(granularity) <= int(Granularity::block), "format: ", name,
            " needs a granularity: ", name, ":tensor, ", name, ":row, ", name, ":g128 or ", name, ":block128");
    const bool grouped = granularity == Granularity::group || granularity == Granularity::block;
    require(grouped ? group_columns > 0 : group_columns == 0, "format: ", name, ": group size ", group_columns, "; use a positive number",
            grouped ? "" : " only with g or block");
    require(granularity == Granularity::block ? group_rows > 0 : group_rows == 0, "format: ", name, ": block rows ", group_rows,
            "; use a positive number, with block only");
    const bool is_unsigned = element == Element::uint8 || element == Element::uint4;
    require(is_unsigned == asymmetric, "format: ", name, is_unsigned ? " needs" : " cannot have", " a zero point; use ",
            is_unsigned ? name : "uint8 or uint4 with", is_unsigned ? ":...:asym" : " :asym");
    const bool known_scale =
        scale == Element::fp32 || scale == Element::fp16 || scale == Element::bf16 || scale == Element::e8m0 || scale == Element::fp8_e4m3;
    require(known_scale, "format: ", name, ": scales of type ", element_name(scale), "; use fp32, fp16, bf16, e8m0 or fp8_e4m3");
    const bool is_float = element == Element::fp8_e4m3 || element == Element::fp8_e5m2 || element == Element::fp4_e2m1;
    require(is_float || (scale != Element::e8m0 && scale != Element::fp8_e4m3), "format: ", name, ": scales of type ", element_name(scale),
            " belong to fp8 and fp4 elements; use scale_fp32, scale_fp16 or scale_bf16");
    require(scale != Element::fp8_e4m3 || grouped, "format: ", name, ": scales of type fp8_e4m3 need groups or blocks, such as g16");
}

bool Format::is_integer() const {
    return element == Element::int8 || element == Element::uint8 || element == Element::int4 || element == Element::uint4 ||
           element == Element::int1;
}

int64_t Format::span(int64_t columns) const {
    if (is_ggml()) return ggml_block(element).values;
    const bool grouped = granularity == Granularity::group || granularity == Granularity::block;
    return grouped ? std::min(group_columns, std::max<int64_t>(columns, 1)) : std::max<int64_t>(columns, 1);
}

int64_t Format::scale_index(int64_t row, int64_t column, int64_t columns) const {
    switch (granularity) {
    case Granularity::none:
    case Granularity::tensor: return 0;
    case Granularity::row: return row;
    case Granularity::group: return row * ceil_div(columns, group_columns) + column / group_columns;
    case Granularity::block: return row / group_rows * ceil_div(columns, group_columns) + column / group_columns;
    }
    return 0;
}

PlaneSizes Format::measure(int64_t rows, int64_t columns) const {
    const std::string name = print();
    require(rows >= 0 && columns >= 0, name, ": shape ", rows, " x ", columns, "; sizes cannot be negative");
    PlaneSizes sizes;
    if (is_ggml()) {
        const BlockSize block = ggml_block(element);
        require(columns % block.values == 0, name, ": stores blocks of ", block.values, " values, which do not divide K = ", columns,
                "; pad K to ", ceil_div(columns, block.values) * block.values);
        sizes.row_bytes = checked_multiply(columns / block.values, block.bytes, "row bytes");
    } else {
        sizes.row_bytes = ceil_div(checked_multiply(columns, element_bits(element), "row bits"), 8);
    }
    sizes.code_bytes = checked_multiply(rows, sizes.row_bytes, "code bytes");
    switch (granularity) {
    case Granularity::none: break;
    case Granularity::tensor: sizes.scale_rows = 1, sizes.scale_columns = 1; break;
    case Granularity::row: sizes.scale_rows = rows, sizes.scale_columns = 1; break;
    case Granularity::group: sizes.scale_rows = rows, sizes.scale_columns = ceil_div(columns, group_columns); break;
    case Granularity::block: sizes.scale_rows = ceil_div(rows, group_rows), sizes.scale_columns = ceil_div(columns, group_columns); break;
    }
    const int64_t scales = checked_multiply(sizes.scale_rows, sizes.scale_columns, "scales");
    sizes.scale_bytes = checked_multiply(scales, element_bits(scale) / 8, "scale bytes");
    sizes.zero_point_bytes = asymmetric ? scales : 0;
    sizes.tensor_scale_bytes = has_tensor_scale() ? 4 : 0;
    checked_add(checked_add(sizes.code_bytes, sizes.scale_bytes, "bytes"), checked_add(sizes.zero_point_bytes, 4, "bytes"), "bytes");
    return sizes;
}

double Format::bits_per_weight(int64_t rows, int64_t columns) const {
    const double weights = double(rows) * double(columns);
    return weights == 0 ? 0 : 8.0 * double(measure(rows, columns).total()) / weights;
}

const std::vector<Format>& common_formats() {
    static const std::vector<Format> formats = [] {
        std::vector<Format> list;
        for (const char* name : {"fp32",
                                 "fp16",
                                 "bf16",
                                 "int8:tensor",
                                 "int8:row",
                                 "int8:g128",
                                 "uint8:tensor:asym",
                                 "uint8:row:asym",
                                 "uint8:g128:asym",
                                 "int4:row",
                                 "int4:g128",
                                 "int4:g64",
                                 "int4:g32",
                                 "uint4:g128:asym",
                                 "uint4:g32:asym",
                                 "int1:row",
                                 "fp8_e4m3:tensor",
                                 "fp8_e4m3:row",
                                 "fp8_e4m3:g128",
                                 "fp8_e4m3:block128",
                                 "fp8_e5m2:tensor",
                                 "fp8_e5m2:row",
                                 "fp8_e5m2:g128",
                                 "fp8_e5m2:block128",
                                 "mxfp8",
                                 "nf4:g64",
                                 "mxfp4",
                                 "nvfp4",
                                 "q4_0",
                                 "q4_1",
                                 "q5_0",
                                 "q5_1",
                                 "q8_0",
                                 "q8_1",
                                 "q2_k",
                                 "q3_k",
                                 "q4_k",
                                 "q5_k",
                                 "q6_k",
                                 "iq4_nl"})
            list.push_back(Format::parse(name));
        return list;
    }();
    return formats;
}

}  // namespace lowbit::core
