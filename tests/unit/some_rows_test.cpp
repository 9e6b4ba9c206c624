#include "core/some_rows.hpp"

#include <gtest/gtest.h>

#include "core/format.hpp"
#include "core/problem.hpp"
#include "reference/quantize.hpp"
#include "verify/random.hpp"
#include "verify/storage.hpp"

namespace lowbit {
namespace {

// Rows of a view have the values that they have in the whole matrix.
TEST(SomeRows, HaveTheirOwnScales) {
    constexpr int64_t rows = 12, columns = 256, first = 4, count = 5;
    const core::Context context;
    verify::MatrixStorage x(Element::fp32, rows, columns);
    x.fill(verify::normal_values(rows * columns, 5));
    for (const char* name : {"int8:row", "int8:tensor", "uint8:row:asym", "uint8:g32:asym", "int4:g128", "int4:row", "int1:row", "nvfp4",
                             "mxfp8", "fp8_e4m3:block4x128", "q8_1", "q4_k"}) {
        const core::Format format = core::Format::parse(name);
        const verify::QuantizedStorage whole(format, rows, columns);
        core::QuantizeProblem quantize;
        quantize.context = &context, quantize.x = x.tensor(), quantize.result = whole.view();
        reference::quantize(quantize);
        const verify::MatrixStorage all(Element::fp32, rows, columns), some(Element::fp32, count, columns);
        core::DequantizeProblem dequantize;
        dequantize.context = &context, dequantize.x = whole.view(), dequantize.y = all.tensor();
        reference::dequantize(dequantize);
        dequantize.x = core::some_rows(whole.view(), first, count), dequantize.y = some.tensor();
        reference::dequantize(dequantize);
        for (int64_t row = 0; row < count; ++row)
            for (int64_t column = 0; column < columns; ++column)
                ASSERT_EQ(some.at(row, column), all.at(first + row, column)) << name << " " << row << " " << column;
    }
}

TEST(SomeRows, OfPlainNumbers) {
    verify::MatrixStorage x(Element::bf16, 6, 7, true);
    x.fill(verify::normal_values(6 * 7, 3));
    const core::Tensor some = core::some_rows(x.tensor(), 2, 3);
    EXPECT_EQ(some.rows, 3);
    for (int64_t row = 0; row < 3; ++row)
        for (int64_t column = 0; column < 7; ++column) EXPECT_EQ(double(core::load(some, row, column)), x.at(2 + row, column));
}

}  // namespace
}  // namespace lowbit
