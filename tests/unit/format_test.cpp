#include "core/format.hpp"

#include <gtest/gtest.h>

#include "core/status.hpp"
#include "lowbit/lowbit.hpp"

namespace lowbit::core {
namespace {

TEST(Format, CommonFormatsPrintAndParse) {
    for (const core::Format& format : common_formats()) {
        EXPECT_EQ(core::Format::parse(format.print()), format) << format.print();
        EXPECT_EQ(lowbit::Format(format.print()).print(), format.print());
    }
}

// Every combination of fields that check() accepts has a string of its own, and that string means just these fields.
TEST(Format, EveryValidCombinationRoundTrips) {
    int valid = 0;
    for (int element = 0; element <= int(Element::iq4_nl); ++element)
        for (int granularity = 0; granularity <= 4; ++granularity)
            for (const Element scale : {Element::fp32, Element::fp16, Element::bf16, Element::e8m0, Element::fp8_e4m3})
                for (const bool asymmetric : {false, true})
                    for (const int64_t columns : {0, 1, 7, 16, 32, 128, 1000003})
                        for (const int64_t rows : {0, 1, 128}) {
                            const core::Format format{Element(element), Granularity(granularity), scale, asymmetric, columns, rows};
                            try {
                                format.check();
                            } catch (const Failure&) {
                                continue;
                            }
                            ++valid;
                            EXPECT_EQ(core::Format::parse(format.print()), format) << format.print();
                        }
    EXPECT_GT(valid, 400);
}

struct BadFormat {
    const char* text;
    const char* mentions;
};

TEST(Format, BadStringsAreRefusedWithAReason) {
    const BadFormat table[] = {{"", "unknown format"},
                               {"int5:row", "int5:row"},
                               {"int8", "needs a granularity"},
                               {"int8:", "unknown granularity"},
                               {"int8:rows", "unknown granularity \"rows\""},
                               {"int4:g", "not a group size"},
                               {"int4:g0", "\"0\" is not a group size"},
                               {"int4:g-1", "\"-1\" is not a group size"},
                               {"int4:g007", "not a group size"},
                               {"int4:g99999999999999999999", "not a group size"},
                               {"int4:g128x", "not a group size"},
                               {"int8:block", "not a group size"},
                               {"int8:block4x", "not a group size"},
                               {"uint8:row", "needs a zero point"},
                               {"int8:row:asym", "cannot have a zero point"},
                               {"uint8:row:asym:asym", "twice"},
                               {"int8:row:foo", "unknown modifier \"foo\""},
                               {"int8:row:scale_fp64", "unknown modifier"},
                               {"int8:row:scale_e8m0", "belong to fp8 and fp4"},
                               {"fp8_e4m3:row:scale_fp8_e4m3", "need groups"},
                               {"fp16:row", "takes no granularity"},
                               {"q4_0:g32", "takes no granularity"},
                               {"int32:row", "unknown format"},
                               {"e8m0", "unknown format"},
                               {"INT8:row", "unknown format"},
                               {" int8:row", "unknown format"}};
    for (const BadFormat& bad : table) {
        try {
            core::Format::parse(bad.text);
            ADD_FAILURE() << "accepted \"" << bad.text << '"';
        } catch (const Failure& failure) {
            EXPECT_EQ(failure.status(), Status::invalid_argument);
            EXPECT_NE(std::string(failure.what()).find(bad.mentions), std::string::npos) << bad.text << ": " << failure.what();
        }
    }
}

struct SizeRow {
    const char* format;
    int64_t rows, columns;
    int64_t code_bytes, scale_bytes, zero_point_bytes, tensor_scale_bytes;
};

TEST(Format, SizesAreExact) {
    const SizeRow table[] = {{"fp32", 3, 5, 60, 0, 0, 0},        {"bf16", 3, 5, 30, 0, 0, 0},
                             {"int8:tensor", 3, 5, 15, 4, 0, 0}, {"int8:row", 3, 5, 15, 12, 0, 0},
                             {"int8:g2", 3, 5, 15, 36, 0, 0},    {"int4:g128", 4096, 14336, 4096 * 7168, 4096 * 112 * 2, 0, 0},
                             {"int4:row", 3, 5, 9, 12, 0, 0},    {"uint4:g2:asym", 3, 5, 9, 18, 9, 0},
                             {"int1:row", 3, 9, 6, 12, 0, 0},    {"fp8_e4m3:block128", 129, 257, 129 * 257, 2 * 3 * 4, 0, 0},
                             {"mxfp4", 2, 33, 34, 4, 0, 0},      {"nvfp4", 2, 33, 34, 6, 0, 4},
                             {"mxfp8", 2, 33, 66, 4, 0, 0},      {"q4_0", 2, 64, 72, 0, 0, 0},
                             {"q8_1", 2, 64, 144, 0, 0, 0},      {"q6_k", 1, 512, 420, 0, 0, 0},
                             {"int8:row", 3, 0, 0, 12, 0, 0},    {"int4:g128", 0, 7, 0, 0, 0, 0}};
    for (const SizeRow& row : table) {
        const PlaneSizes sizes = core::Format::parse(row.format).measure(row.rows, row.columns);
        EXPECT_EQ(sizes.code_bytes, row.code_bytes) << row.format;
        EXPECT_EQ(sizes.scale_bytes, row.scale_bytes) << row.format;
        EXPECT_EQ(sizes.zero_point_bytes, row.zero_point_bytes) << row.format;
        EXPECT_EQ(sizes.tensor_scale_bytes, row.tensor_scale_bytes) << row.format;
    }
    EXPECT_DOUBLE_EQ(core::Format::parse("int4:g128").bits_per_weight(4096, 14336), 4.125);
    EXPECT_DOUBLE_EQ(core::Format::parse("q4_k").bits_per_weight(16, 256), 4.5);
}

TEST(Format, ImpossibleShapesAreRefused) {
    for (const auto& [format, rows, columns] : {std::tuple{"q4_0", int64_t(1), int64_t(33)},
                                                {"q4_k", 1, 32},
                                                {"int8:row", -1, 4},
                                                {"int8:row", 4, -1},
                                                {"fp32", int64_t(1) << 40, int64_t(1) << 40},
                                                {"int4:g1", int64_t(1) << 31, int64_t(1) << 32},
                                                {"int8:tensor", INT64_MAX, 2},
                                                {"fp32", 1, INT64_MAX}})
        EXPECT_THROW(core::Format::parse(format).measure(rows, columns), Failure) << format << " " << rows << " x " << columns;
}

TEST(Format, CStructsAreChecked) {
    lowbit_format format{};
    char text[64];
    format.element = lowbit_element(99);
    EXPECT_EQ(lowbit_format_print(&format, text, sizeof(text)), LOWBIT_INVALID_ARGUMENT);
    EXPECT_EQ(lowbit_format_parse("int4:g128", &format), LOWBIT_OK);
    EXPECT_EQ(lowbit_format_print(&format, text, 9), LOWBIT_INVALID_ARGUMENT);
    EXPECT_EQ(lowbit_format_print(&format, text, 10), LOWBIT_OK);
    EXPECT_STREQ(text, "int4:g128");
    EXPECT_EQ(lowbit_format_parse(nullptr, &format), LOWBIT_INVALID_ARGUMENT);
    EXPECT_EQ(lowbit_format_parse("int8:row", nullptr), LOWBIT_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace lowbit::core
