#include "core/numeric.hpp"

#include <gtest/gtest.h>

#include "verify/random.hpp"

namespace lowbit::core {
namespace {

// encode(decode(code)) = code over all codes that are numbers; the Python tests compare the values with ml_dtypes.
TEST(Numeric, CodesRoundTrip) {
    for (unsigned code = 0; code < 256; ++code) {
        if ((code & 0x7f) != 0x7f) {
            EXPECT_EQ(float_to_e4m3(e4m3_to_float(uint8_t(code))), code);
        }
        if ((code & 0x7c) != 0x7c) {
            EXPECT_EQ(float_to_e5m2(e5m2_to_float(uint8_t(code))), code);
        }
        if (code < 16) {
            EXPECT_EQ(float_to_e2m1(e2m1_to_float(code)), code);
        }
    }
    for (unsigned code = 0; code < 65536; ++code) {
        if ((code & 0x7c00) != 0x7c00 || (code & 0x3ff) == 0) {
            EXPECT_EQ(float_to_fp16(fp16_to_float(uint16_t(code))), code);
        }
        if ((code & 0x7f80) != 0x7f80 || (code & 0x7f) == 0) {
            EXPECT_EQ(float_to_bf16(bf16_to_float(uint16_t(code))), code);
        }
    }
}

template <class Decode, class Encode>
void expect_nearest(unsigned codes, float largest, const Decode& decode, const Encode& encode) {
    verify::Random random(5);
    for (int i = 0; i < 20000; ++i) {
        const float x = random.normal() * std::ldexp(largest, -int(random.below(12)));
        const float got = decode(encode(x));
        const float clamped = std::fmin(std::fmax(x, -largest), largest);
        for (unsigned code = 0; code < codes; ++code) {
            const float other = decode(code);
            if (std::isnan(other) || std::isinf(other)) continue;
            EXPECT_LE(std::fabs(double(got) - clamped), std::fabs(double(other) - clamped)) << x;
        }
    }
}

TEST(Numeric, SmallFloatsRoundToTheNearest) {
    expect_nearest(
        256, 448, [](unsigned c) { return e4m3_to_float(uint8_t(c)); }, float_to_e4m3);
    expect_nearest(
        256, 57344, [](unsigned c) { return e5m2_to_float(uint8_t(c)); }, float_to_e5m2);
    expect_nearest(16, 6, e2m1_to_float, float_to_e2m1);
}

TEST(Numeric, SpecialValues) {
    const float infinity = HUGE_VALF;
    EXPECT_EQ(float_to_e4m3(infinity), 0x7e);
    EXPECT_EQ(float_to_e4m3(-infinity), 0xfe);
    EXPECT_EQ(float_to_e4m3(NAN), 0x7f);
    EXPECT_EQ(float_to_e5m2(infinity), 0x7b);
    EXPECT_EQ(float_to_e2m1(-infinity), 15u);
    EXPECT_EQ(float_to_e2m1(NAN), 0u);
    EXPECT_EQ(float_to_fp16(65519.0f), 0x7bff);
    EXPECT_EQ(float_to_fp16(65520.0f), 0x7c00);
    EXPECT_EQ(float_to_fp16(-infinity), 0xfc00);
    EXPECT_TRUE(std::isnan(fp16_to_float(float_to_fp16(NAN))));
    EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(NAN))));
    EXPECT_EQ(e8m0_to_float(0), 0x1p-127f);
    EXPECT_EQ(e8m0_to_float(127), 1.0f);
    EXPECT_EQ(e8m0_to_float(254), 0x1p127f);
    EXPECT_TRUE(std::isnan(e8m0_to_float(255)));
}

}  // namespace
}  // namespace lowbit::core
