// Properties that hold for any data: dequantize(quantize(x)) is within the format's bound, and the rules of docs/formats.md.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/format.hpp"
#include "lowbit/lowbit.hpp"
#include "verify/random.hpp"

namespace lowbit {
namespace {

std::vector<float> there_and_back(const std::string& format, const std::vector<float>& x, int64_t rows) {
    const Context context = Context::cpu();
    const int64_t columns = int64_t(x.size()) / rows;
    std::vector<float> back(x.size(), -1e30f);
    dequantize(context, quantize(context, view(x.data(), {rows, columns}), format), view(back.data(), {rows, columns}));
    return back;
}

// The largest error of one value, in units of the largest magnitude of its group: half a step, and half a unit in the last place of the
// scale for formats whose scale is rounded (fp16: 2^-11) or a power of two (the largest value may be cut from 8 to 6, or from 512 to 448).
double error_bound(const core::Format& format) {
    const double rounded = format.scale == Element::fp16 ? 0x1p-10 : 0;
    switch (format.element) {
    case Element::int8: return 0.5 / 127 * (1 + 2 * rounded) + 1e-6;
    case Element::uint8: return 2.0 / 255 + 1e-6;  // half a step, and half a step of the zero point, over up to twice the magnitude
    case Element::int4: return 0.5 / 7 * (1 + 2 * rounded) + rounded;
    case Element::uint4: return 2.0 / 15 + 2 * rounded;
    case Element::int1: return std::numeric_limits<double>::infinity();
    case Element::fp8_e4m3: return format.scale == Element::e8m0 ? 1.0 / 8 + 1e-6 : 0x1p-4 + 1e-6;
    case Element::fp8_e5m2: return 0x1p-3 + 1e-6;
    case Element::fp4_e2m1:
        return format.scale == Element::e8m0 ? 0.25 + 1e-6 : format.scale == Element::fp8_e4m3 ? 1.0 / 6 + 0x1p-3 : 1.0 / 6 + 2 * rounded;
    case Element::nf4: return 0.152 + 2 * rounded;
    default: return 0;
    }
}

TEST(QuantizeProperty, ErrorsStayWithinTheBound) {
    for (const core::Format& format : core::common_formats()) {
        if (format.is_ggml() || format.is_plain()) continue;
        for (const float magnitude : {1.0f, 1e-3f, 300.0f}) {
            const int64_t rows = 5, columns = 300;
            std::vector<float> x = verify::normal_values(rows * columns, 11);
            for (float& value : x) value *= magnitude;
            const std::vector<float> back = there_and_back(format.print(), x, rows);
            float tensor_largest = 0;
            for (const float value : x) tensor_largest = std::fmax(tensor_largest, std::fabs(value));
            for (int64_t row = 0; row < rows; ++row)
                for (int64_t column = 0; column < columns; ++column) {
                    float largest = 0;
                    for (int64_t r = 0; r < rows; ++r)
                        for (int64_t c = 0; c < columns; ++c)
                            if (format.scale_index(r, c, columns) == format.scale_index(row, column, columns))
                                largest = std::fmax(largest, std::fabs(x[size_t(r * columns + c)]));
                    const size_t i = size_t(row * columns + column);
                    // A group far below the tensor's largest value falls under the smallest e4m3 scale.
                    const double slack = format.has_tensor_scale() ? tensor_largest * 0x1p-9 / 448 * 6 : 0;
                    ASSERT_LE(std::fabs(double(x[i]) - back[i]), error_bound(format) * largest + slack)
                        << format.print() << " x = " << x[i] << " largest " << largest;
                }
        }
    }
}

struct GgmlBound {
    const char* format;
    double error;  // relative, ||x - back|| / ||x|| on normal data with outliers
};

TEST(QuantizeProperty, GgmlErrorsAreThoseOfTheirBits) {
    const GgmlBound table[] = {{"q4_0", 0.14}, {"q4_1", 0.13}, {"q5_0", 0.07}, {"q5_1", 0.065}, {"q8_0", 0.01}, {"q8_1", 0.01},
                               {"q2_k", 0.38}, {"q3_k", 0.2},  {"q4_k", 0.11}, {"q5_k", 0.055}, {"q6_k", 0.03}, {"iq4_nl", 0.12}};
    const std::vector<float> x = verify::normal_values(16 * 512, 3);
    for (const GgmlBound& row : table) {
        const std::vector<float> back = there_and_back(row.format, x, 16);
        double error = 0, norm = 0;
        for (size_t i = 0; i < x.size(); ++i) error += std::pow(double(x[i]) - back[i], 2), norm += std::pow(double(x[i]), 2);
        EXPECT_LT(std::sqrt(error / norm), row.error) << row.format;
        EXPECT_GT(std::sqrt(error / norm), row.error / 4) << row.format;
    }
}

TEST(QuantizeProperty, QuantizedNumbersStayWhatTheyAre) {
    const std::vector<float> x = verify::normal_values(4 * 256, 9);
    for (const char* format : {"fp32", "fp16", "bf16", "int8:row", "int4:g32", "uint8:row:asym", "fp8_e4m3:row", "fp8_e5m2:tensor", "mxfp4",
                               "mxfp8", "q8_0", "q4_0"}) {
        const std::vector<float> once = there_and_back(format, x, 4), twice = there_and_back(format, once, 4);
        for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(once[i], twice[i], std::fabs(once[i]) * 1e-3 + 1e-6) << format;
    }
}

TEST(QuantizeRules, ZeroStaysZero) {
    for (const core::Format& format : core::common_formats()) {
        if (format.element == Element::int1) continue;
        std::vector<float> x(2 * 256, 0.0f);
        for (size_t i = 256; i < 512; i += 2) x[i] = float(i % 7) + 0.5f;  // the second row: positive numbers and zeros
        const std::vector<float> back = there_and_back(format.print(), x, 2);
        for (size_t i = 0; i < 256; ++i) EXPECT_EQ(back[i], 0.0f) << format.print();
        const bool has_offset = format.element == Element::q4_1 || format.element == Element::q5_1 || format.element == Element::q2_k ||
                                format.element == Element::q4_k || format.element == Element::q5_k || format.element == Element::iq4_nl ||
                                format.element == Element::q3_k || format.element == Element::q6_k;
        for (size_t i = 257; i < 512 && !has_offset; i += 2) EXPECT_EQ(back[i], 0.0f) << format.print();
    }
}

TEST(QuantizeRules, NotANumberAndInfinity) {
    const float infinity = std::numeric_limits<float>::infinity();
    const std::vector<float> x = {1.0f, NAN, infinity, -infinity, -0.5f, 0.0f, 0.25f, 1.0f};
    const auto back = [&](const char* format) { return there_and_back(format, x, 1); };
    for (const char* format : {"int8:row", "int4:row", "uint8:row:asym", "uint4:row:asym", "nf4:g64", "mxfp4", "fp4_e2m1:row"}) {
        const std::vector<float> y = back(format);
        EXPECT_EQ(y[1], 0.0f) << format;  // NaN has no code: it becomes zero
        EXPECT_TRUE(std::isfinite(y[2]) && y[2] >= 1.0f - 0.08f) << format << y[2];
        EXPECT_TRUE(std::isfinite(y[3]) && y[3] <= -0.4f) << format << y[3];
        EXPECT_NEAR(y[0], 1.0f, 0.08) << format;  // the scale comes from the finite values
    }
    for (const char* format : {"fp8_e4m3:row", "fp8_e5m2:row", "mxfp8"}) {
        const std::vector<float> y = back(format);
        EXPECT_TRUE(std::isnan(y[1])) << format;
        EXPECT_TRUE(std::isfinite(y[2]) && y[2] >= 0.99f) << format;
    }
    for (const char* format : {"fp16", "bf16", "fp32"}) {
        const std::vector<float> y = back(format);
        EXPECT_TRUE(std::isnan(y[1]) && y[2] == infinity && y[3] == -infinity) << format;
    }
}

TEST(QuantizeRules, LastGroupMayBeShort) {
    std::vector<float> x(100, 1.0f);
    for (size_t i = 96; i < 100; ++i) x[i] = 1e-3f;  // the last group of four has a scale of its own
    for (const char* format : {"int8:g32", "int4:g32", "uint4:g48:asym", "mxfp4", "nf4:g96"}) {
        const std::vector<float> back = there_and_back(format, x, 1);
        for (size_t i = 96; i < 100; ++i) EXPECT_NEAR(back[i], 1e-3f, 3e-4f) << format;
    }
}

TEST(QuantizeRules, StridedInputIsTheSameAsItsCopy) {
    const Context context = Context::cpu();
    const std::vector<float> kn = verify::normal_values(64 * 48, 21);  // [K = 64, N = 48]
    std::vector<float> nk(kn.size()), from_strided(kn.size()), from_copy(kn.size());
    for (size_t k = 0; k < 64; ++k)
        for (size_t n = 0; n < 48; ++n) nk[n * 64 + k] = kn[k * 48 + n];
    for (const char* format : {"int8:row", "int4:g32", "q4_0", "fp8_e4m3:block16", "int8:tensor"}) {
        dequantize(context, quantize(context, view(kn.data(), {64, 48}).transposed(), format), view(from_strided.data(), {48, 64}));
        dequantize(context, quantize(context, view(nk.data(), {48, 64}), format), view(from_copy.data(), {48, 64}));
        EXPECT_EQ(from_strided, from_copy) << format;
    }
    std::vector<float> x = verify::normal_values(3 * 64, 22), y1(3 * 48), y2(3 * 48);
    matmul(context, view(x.data(), {3, 64}), view(kn.data(), {64, 48}).transposed(), view(y1.data(), {3, 48}));
    matmul(context, view(x.data(), {3, 64}), view(nk.data(), {48, 64}), view(y2.data(), {3, 48}));
    for (size_t i = 0; i < y1.size(); ++i) EXPECT_NEAR(y1[i], y2[i], 1e-4);
}

}  // namespace
}  // namespace lowbit
