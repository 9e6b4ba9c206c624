// Slabs of decoded rows (cpu/avx512/slabs.hpp), and rows that stream (cpu/simd/rows.hpp), at the ends of what they hold: the largest codes
// and zero points, sums that fill 32 bits, NaN among the codes, rows of any stride, and tokens that products of bf16 cannot take.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "core/registry.hpp"
#include "verify/random.hpp"
#include "verify/storage.hpp"

namespace lowbit {
namespace {

// Runs a kernel by name on its own; false where this CPU cannot.
bool run(const char* name, const core::MatmulProblem& problem) {
    const core::Kernel<core::MatmulProblem>* kernel = core::kernels_for<core::MatmulProblem>().find(name);
    if (!kernel || !kernel->unavailable.empty()) return false;
    EXPECT_EQ(kernel->supports(problem), "");
    kernel->run(problem);
    return true;
}

core::Operand operand(const core::QuantizedView& view) { return {true, {}, view}; }
core::Operand operand(const core::Tensor& tensor) { return {false, tensor, {}}; }

core::Format with_float_scales(const char* name) {
    core::Format format = core::Format::parse(name);
    format.scale = Element::fp32;
    return format;
}

void fill(const core::QuantizedView& view, uint8_t code, uint8_t zero_point, float scale) {
    for (int64_t row = 0; row < view.rows; ++row) std::fill_n(view.row_codes(row), view.row_bytes(), code);
    for (int64_t i = 0; i < view.format.measure(view.rows, view.columns).scales(); ++i) {
        static_cast<float*>(view.scales)[i] = scale;
        if (view.format.asymmetric) view.zero_points[i] = zero_point;
    }
}

// Every sum of such codes is a number that fp32 holds.
TEST(Slabs, LargestCodesAreExact) {
    constexpr int64_t rows = 33, tokens = 19, columns = 1024;
    core::Context context;
    context.set_threads(2);
    for (const char* name : {"uint8:g128:asym", "uint8:g32:asym", "uint8:row:asym", "uint4:g128:asym"})
        for (const int code : {0, 255})
            for (const int zero_point : {0, 255})
                for (const int token : {-128, 127}) {
                    const verify::QuantizedStorage weight(with_float_scales(name), rows, columns);
                    const verify::QuantizedStorage x(with_float_scales("int8:row"), tokens, columns);
                    const verify::MatrixStorage y(Element::fp32, tokens, rows);
                    fill(weight.view(), uint8_t(code), uint8_t(zero_point), 0.5f);
                    fill(x.view(), uint8_t(token), 0, 2.0f);
                    core::MatmulProblem problem;
                    problem.context = &context, problem.x = operand(x.view()), problem.weight = operand(weight.view()),
                    problem.y = y.tensor();
                    if (!run("cpu_avx512_slabs", problem)) GTEST_SKIP() << "this CPU has no AVX-512 with VNNI";
                    const int number = weight.view().format.element == Element::uint4 ? code & 15 : code;
                    for (int64_t t = 0; t < tokens; ++t)
                        for (int64_t r = 0; r < rows; ++r)
                            ASSERT_EQ(y.at(t, r), double(number - zero_point) * token * columns)
                                << name << " " << code << " " << zero_point;
                }
}

TEST(Slabs, Int8FillsAllBitsOfASum) {
    constexpr int64_t rows = 3, tokens = 17, columns = 131071;
    core::Context context;
    const verify::QuantizedStorage weight(with_float_scales("int8:row"), rows, columns), x(with_float_scales("int8:row"), tokens, columns);
    const verify::MatrixStorage y(Element::int32, tokens, rows);
    fill(weight.view(), 0x80, 0, 1.0f);
    fill(x.view(), 0x80, 0, 1.0f);
    core::MatmulProblem problem;
    problem.context = &context, problem.x = operand(x.view()), problem.weight = operand(weight.view()), problem.y = y.tensor();
    if (!run("cpu_avx512_int8", problem)) GTEST_SKIP() << "this CPU has no AVX-512 with VNNI";
    for (int64_t t = 0; t < tokens; ++t)
        for (int64_t r = 0; r < rows; ++r) ASSERT_EQ(y.at(t, r), 128.0 * 128.0 * columns);
}

bool supports(const char* name, const core::MatmulProblem& problem) {
    const core::Kernel<core::MatmulProblem>* kernel = core::kernels_for<core::MatmulProblem>().find(name);
    return kernel && kernel->supports(problem).empty();
}

// Codes that are no integers, in every loop that knows them: all of them, NaN and infinity, too, in rows of their own and at the ends of
// rows that fill no vector.
TEST(Slabs, EveryCodeHasItsValue) {
    constexpr int64_t rows = 256, tokens = 5;
    const core::Context context;
    int ran = 0;
    for (const char* kernel : {"cpu_avx512_float_slabs", "cpu_avx512_weight8", "cpu_avx2_weight8", "cpu_portable_weight8"})
        for (const char* name : {"nf4:row", "fp8_e4m3:row", "fp8_e5m2:row", "fp4_e2m1:row"})
            for (const int64_t columns : {32, 64, 75})
                for (const bool only_last : {false, true}) {
                    const verify::QuantizedStorage weight(with_float_scales(name), rows, columns);
                    fill(weight.view(), 0, 0, 0.5f);
                    const bool is_nibble = core::element_bits(weight.view().format.element) == 4;
                    const int64_t first = only_last ? weight.view().row_bytes() - 1 : 0, count = weight.view().row_bytes() - first;
                    for (int64_t row = 0; row < rows; ++row)
                        std::fill_n(weight.view().row_codes(row) + first, count, uint8_t(is_nibble ? row % 16 * 17 : row));
                    verify::MatrixStorage x(Element::fp32, tokens, columns);
                    x.fill(std::vector<float>(size_t(tokens * columns), 2.0f));
                    const verify::MatrixStorage found(Element::fp32, tokens, rows), expected(Element::fp32, tokens, rows);
                    core::MatmulProblem problem;
                    problem.context = &context, problem.x = operand(x.tensor()), problem.weight = operand(weight.view()),
                    problem.y = found.tensor();
                    if (!supports(kernel, problem) || !run(kernel, problem)) continue;
                    ++ran;
                    problem.y = expected.tensor();
                    ASSERT_TRUE(run("reference", problem));
                    for (int64_t t = 0; t < tokens; ++t)
                        for (int64_t r = 0; r < rows; ++r) {
                            const double sum = expected.at(t, r);
                            if (std::isfinite(sum))
                                ASSERT_NEAR(found.at(t, r), sum, 0x1p-20 * std::fabs(sum)) << kernel << " " << name << " " << r;
                            else
                                ASSERT_TRUE(found.same_bits(expected, t, r)) << kernel << " " << name << " " << r;
                        }
                }
    EXPECT_GE(ran, 12);  // the portable loop takes two of the formats
}

// To the bit what fp32 vectors make of them.
TEST(Slabs, LeaveExtremeTokensToVectors) {
    constexpr int64_t rows = 21, tokens = 18, columns = 288;
    core::Context context;
    context.set_threads(2);
    verify::MatrixStorage weight(Element::bf16, rows, columns);
    weight.fill(verify::normal_values(rows * columns, 3));
    for (const float extreme : {INFINITY, -INFINITY, float(NAN), 1e-40f, -0x1p-110f, 3e38f}) {
        std::vector<float> values = verify::normal_values(tokens * columns, 4);
        values[columns * 5 + 7] = extreme;
        verify::MatrixStorage x(Element::bf16, tokens, columns);
        x.fill(values);
        const verify::MatrixStorage found(Element::fp32, tokens, rows), expected(Element::fp32, tokens, rows);
        core::MatmulProblem problem;
        problem.context = &context, problem.x = operand(x.tensor()), problem.weight = operand(weight.tensor()), problem.y = found.tensor();
        if (!run("cpu_avx512_bf16_slabs", problem)) GTEST_SKIP() << "this CPU has no AVX-512 with BF16";
        problem.y = expected.tensor();
        ASSERT_TRUE(run("cpu_avx512_dense", problem));
        for (int64_t t = 0; t < tokens; ++t)
            for (int64_t r = 0; r < rows; ++r) ASSERT_TRUE(found.same_bits(expected, t, r)) << extreme << " " << t << " " << r;
    }
}

// Rows that lie apart, or in the other order.
TEST(Slabs, ReadRowsOfAnyStride) {
    constexpr int64_t rows = 37, tokens = 9, columns = 131;
    core::Context context;
    verify::MatrixStorage x(Element::bf16, tokens, columns);
    x.fill(verify::normal_values(tokens * columns, 6));
    int ran = 0;
    for (const char* kernel : {"cpu_avx512_bf16_slabs", "cpu_avx512_float_slabs", "cpu_avx512_rows", "cpu_avx2_rows", "cpu_portable_rows"})
        for (const Element element : {Element::bf16, Element::fp16, Element::fp32})
            for (const bool reversed : {false, true}) {
                verify::MatrixStorage memory(element, 2 * rows, columns + 5);
                memory.fill(verify::normal_values(2 * rows * (columns + 5), 5));
                core::Tensor weight = memory.tensor();
                weight.rows = rows, weight.columns = columns, weight.row_stride *= 2;
                if (reversed) {
                    weight.data = static_cast<uint8_t*>(weight.data) + (rows - 1) * weight.row_stride * core::element_bytes(element);
                    weight.row_stride = -weight.row_stride;
                }
                const verify::MatrixStorage y(Element::fp32, tokens, rows);
                core::MatmulProblem problem;
                problem.context = &context, problem.x = operand(x.tensor()), problem.weight = operand(weight), problem.y = y.tensor();
                if (!supports(kernel, problem) || !run(kernel, problem)) continue;
                ++ran;
                for (int64_t t = 0; t < tokens; ++t)
                    for (int64_t r = 0; r < rows; ++r) {
                        double sum = 0, magnitude = 0;
                        for (int64_t k = 0; k < columns; ++k) {
                            const double term = x.at(t, k) * double(core::load(weight, r, k));
                            sum += term;
                            magnitude += std::fabs(term);
                        }
                        ASSERT_NEAR(y.at(t, r), sum, 16 * 0x1p-24 * magnitude) << kernel << " " << t << " " << r;
                    }
            }
    EXPECT_GE(ran, 6);  // the portable loop
}

}  // namespace
}  // namespace lowbit
