// C = alpha A B + beta C and conversions, through the public headers, against loops written here.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/tensor.hpp"
#include "lowbit/lowbit.hpp"
#include "verify/random.hpp"

namespace lowbit {
namespace {

constexpr Element types[] = {Element::fp32, Element::fp16, Element::bf16};
constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();

// Rows of any type, `stride` numbers apart; what lies between them must stay as it is.
struct Rows {
    Element element;
    int64_t rows, columns, stride;
    std::vector<uint8_t> bytes;

    Rows(Element e, int64_t m, int64_t n, int64_t gap, const std::vector<float>& values)
        : element(e), rows(m), columns(n), stride(n + gap), bytes(size_t(m * (n + gap) * core::element_bytes(e)), 0xee) {
        for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) core::store(e, bytes.data(), i * stride + j, values[size_t(i * n + j)]);
    }
    double at(int64_t i, int64_t j) const { return double(core::load(element, bytes.data(), i * stride + j)); }
    lowbit_element type() const { return lowbit_element(element); }
    Tensor tensor() {
        lowbit_tensor view = lowbit_matrix(bytes.data(), type(), rows, columns);
        view.strides[0] = stride;
        return Tensor(view);
    }
    bool gaps_are_untouched() const {
        const int width = core::element_bytes(element);
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t byte = (i * stride + columns) * width; byte < (i + 1) * stride * width; ++byte)
                if (bytes[size_t(byte)] != 0xee) return false;
        return true;
    }
};

double unit_of(Element element) { return element == Element::fp32 ? 0x1p-23 : element == Element::fp16 ? 0x1p-10 : 0x1p-7; }

struct Size {
    int64_t m, n, k;
};
constexpr Size sizes[] = {{0, 4, 8}, {4, 0, 8}, {3, 2, 0}, {1, 1, 1}, {2, 3, 5}, {7, 5, 33}, {16, 16, 64}, {33, 17, 129}, {65, 70, 31}};

TEST(Gemm, AgainstLoops) {
    const Context context = Context::cpu();
    uint64_t seed = 0;
    for (const auto& [m, n, k] : sizes)
        for (const Element type_a : types)
            for (const Element type_c : types)
                for (const bool transpose : {false, true})
                    for (const float beta : {0.0f, -1.5f}) {
                        const Element type_b = types[++seed % 3];
                        const float alpha = 0.25f;
                        const Rows a(type_a, m, k, 3, verify::normal_values(m * k, seed));
                        const Rows b(type_b, transpose ? n : k, transpose ? k : n, 1, verify::normal_values(k * n, seed + 1));
                        const Rows before(type_c, m, n, 2,
                                          beta == 0 ? std::vector<float>(size_t(m * n), nan) : verify::normal_values(m * n, seed + 2));
                        Rows c = before;
                        ASSERT_EQ(lowbit_gemm(context.c(), m, n, k, alpha, a.bytes.data(), a.type(), a.stride, b.bytes.data(), b.type(),
                                              b.stride, transpose, beta, c.bytes.data(), c.type(), c.stride),
                                  LOWBIT_OK)
                            << lowbit_last_error();
                        EXPECT_TRUE(c.gaps_are_untouched());
                        for (int64_t i = 0; i < m; ++i)
                            for (int64_t j = 0; j < n; ++j) {
                                double sum = 0, magnitude = 0;
                                for (int64_t l = 0; l < k; ++l) {
                                    const double product = a.at(i, l) * (transpose ? b.at(j, l) : b.at(l, j));
                                    sum += product, magnitude += std::fabs(product);
                                }
                                const double added = beta == 0 ? 0 : double(beta) * before.at(i, j), exact = alpha * sum + added;
                                const double bound = alpha * magnitude * double(k + 8) * 0x1p-24 + std::fabs(added) * 0x1p-23 +
                                                     std::fabs(exact) * unit_of(type_c);
                                ASSERT_NEAR(c.at(i, j), exact, bound) << m << "x" << n << "x" << k << " beta " << beta;
                            }
                    }
}

TEST(Gemm, TheCppCallIsTheSame) {
    const Context context = Context::cpu();
    constexpr int64_t m = 5, n = 7, k = 40;
    Rows a(Element::bf16, m, k, 0, verify::normal_values(m * k, 1)), b(Element::bf16, k, n, 4, verify::normal_values(k * n, 2));
    Rows c(Element::fp32, m, n, 1, verify::normal_values(m * n, 3)), same = c;
    gemm(context, a.tensor(), b.tensor(), c.tensor(), 2.0f, 0.5f);
    ASSERT_EQ(lowbit_gemm(context.c(), m, n, k, 2.0f, a.bytes.data(), LOWBIT_BF16, k, b.bytes.data(), LOWBIT_BF16, n + 4, 0, 0.5f,
                          same.bytes.data(), LOWBIT_FP32, n + 1),
              LOWBIT_OK);
    EXPECT_EQ(c.bytes, same.bytes);
}

// The epilogue's own order: the activation, then what y held; a gate multiplies before it.
TEST(Gemm, BetaComesLast) {
    const Context context = Context::cpu();
    std::vector<float> x(32, 1.0f), w(64, -1.0f), y = {10.0f};
    matmul(context, view(x.data(), {1, 32}), view(w.data(), {1, 32}), view(y.data(), {1, 1}),
           {.activation = Activation::relu, .beta = 0.5f});
    EXPECT_EQ(y[0], 5.0f);
    for (const char* kernel : {"", "reference"}) {
        Context forced = Context::cpu();
        forced.set_kernel(kernel);
        y[0] = 10.0f;
        matmul(forced, view(x.data(), {1, 32}), view(w.data(), {2, 32}), view(y.data(), {1, 1}), {.gate = true, .beta = -1.0f});
        EXPECT_EQ(y[0], 1024.0f - 10.0f) << kernel;
    }
}

TEST(Gemm, BadInput) {
    const Context context = Context::cpu();
    const std::vector<float> numbers(64, 1.0f);
    std::vector<float> c(16, -77.0f);
    struct Call {
        int64_t m = 2, n = 3, k = 4;
        const void *a, *b;
        void* c;
        lowbit_element type_a = LOWBIT_FP32, type_b = LOWBIT_FP32, type_c = LOWBIT_FP32;
        int64_t lda = 4, ldb = 3, ldc = 3;
        int32_t transpose_b = 0;
        lowbit_context* context;
    };
    struct Spoiled {
        const char* mentions;
        void (*spoil)(Call&);
    };
    const Spoiled table[] = {
        {"gemm: context is a null pointer", [](Call& call) { call.context = nullptr; }},
        {"gemm: a is a null pointer", [](Call& call) { call.a = nullptr; }},
        {"gemm: b is a null pointer", [](Call& call) { call.b = nullptr; }},
        {"gemm: c is a null pointer", [](Call& call) { call.c = nullptr; }},
        {"gemm: m = -2", [](Call& call) { call.m = -2; }},
        {"gemm: lda = 3, but a row of a has 4 numbers", [](Call& call) { call.lda = 3; }},
        {"gemm: ldb = 2, but a row of b has 3 numbers", [](Call& call) { call.ldb = 2; }},
        {"gemm: ldb = 3, but a row of b has 4 numbers", [](Call& call) { call.transpose_b = 1; }},
        {"gemm: ldc = -1, but a row of c has 3 numbers", [](Call& call) { call.ldc = -1; }},
        {"gemm: transpose_b = 2; use 0 or 1", [](Call& call) { call.transpose_b = 2; }},
        {"gemm: a has type 4; use fp32, fp16 or bf16", [](Call& call) { call.type_a = LOWBIT_INT8; }},
        {"gemm: b has type 9; use fp32, fp16 or bf16", [](Call& call) { call.type_b = LOWBIT_FP8_E4M3; }},
        {"gemm: c has type 3; use fp32, fp16 or bf16", [](Call& call) { call.type_c = LOWBIT_INT32; }},
        {"does not fit in 64 bits", [](Call& call) { call.lda = INT64_MAX; }},
        {"not aligned to its 4-byte elements", [](Call& call) { call.b = static_cast<const char*>(call.b) + 1; }},
        {"y overlaps x", [](Call& call) { call.a = call.c; }},
        {"y overlaps weight", [](Call& call) { call.b = call.c; }},
    };
    for (const auto& [mentions, spoil] : table) {
        Call call{.a = numbers.data(), .b = numbers.data(), .c = c.data(), .context = context.c()};
        spoil(call);
        EXPECT_EQ(lowbit_gemm(call.context, call.m, call.n, call.k, 1.0f, call.a, call.type_a, call.lda, call.b, call.type_b, call.ldb,
                              call.transpose_b, 1.0f, call.c, call.type_c, call.ldc),
                  LOWBIT_INVALID_ARGUMENT)
            << mentions;
        EXPECT_NE(std::string(lowbit_last_error()).find(mentions), std::string::npos) << mentions << ", got " << lowbit_last_error();
        EXPECT_EQ(c, std::vector<float>(16, -77.0f)) << mentions;
    }
}

TEST(Convert, RoundsOnceAndSaturatesFp8) {
    const Context context = Context::cpu();
    const std::vector<float> x = {1.0f, -0.0f, 1e6f, -infinity, nan, 1.0f + 0x1p-9f, 448.0f + 31.0f, 0x1p-10f};
    const auto converted = [&](auto number) {
        std::vector<decltype(number)> y(x.size());
        convert(context, view(x.data(), {2, 4}), view(y.data(), {2, 4}));
        std::vector<float> back(x.size());
        convert(context, view(y.data(), {8}), view(back.data(), {8}));
        EXPECT_TRUE(std::isnan(back[4]));
        back[4] = 0;
        EXPECT_TRUE(std::signbit(back[1]));
        return back;
    };
    EXPECT_EQ(converted(fp16{}), (std::vector<float>{1, 0, infinity, -infinity, 0, 1.0f + 0x1p-9f, 479, 0x1p-10f}));
    EXPECT_EQ(converted(bf16{}), (std::vector<float>{1, 0, 999424, -infinity, 0, 1, 480, 0x1p-10f}));
    EXPECT_EQ(converted(fp8_e4m3{}), (std::vector<float>{1, 0, 448, -448, 0, 1, 448, 0}));
    EXPECT_EQ(converted(fp8_e5m2{}), (std::vector<float>{1, 0, 57344, -57344, 0, 1, 448, 0x1p-10f}));
}

TEST(Convert, AnyStrides) {
    const Context context = Context::cpu();
    for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{1, 1}, {3, 70}, {129, 5}, {40, 3000}}) {
        Rows x(Element::fp32, rows, columns, 5, verify::normal_values(rows * columns, uint64_t(rows)));
        Rows y(Element::bf16, rows, columns, 3, std::vector<float>(size_t(rows * columns), 0.0f));
        Rows turned(Element::fp16, columns, rows, 1, std::vector<float>(size_t(rows * columns), 0.0f));
        convert(context, x.tensor(), y.tensor());
        convert(context, x.tensor(), turned.tensor().transposed());
        EXPECT_TRUE(y.gaps_are_untouched() && turned.gaps_are_untouched());
        for (int64_t i = 0; i < rows; ++i)
            for (int64_t j = 0; j < columns; ++j) {
                ASSERT_EQ(float(y.at(i, j)), core::bf16_to_float(core::float_to_bf16(float(x.at(i, j)))));
                ASSERT_EQ(float(turned.at(j, i)), core::fp16_to_float(core::float_to_fp16(float(x.at(i, j)))));
            }
    }
}

TEST(Convert, BadInput) {
    const Context context = Context::cpu();
    std::vector<float> x(12, 1.0f), y(12, -77.0f);
    const lowbit_tensor from = lowbit_matrix(x.data(), LOWBIT_FP32, 3, 4), to = lowbit_matrix(y.data(), LOWBIT_FP32, 3, 4);
    const auto refuse = [&](const lowbit_tensor* a, const lowbit_tensor* b, const char* mentions) {
        EXPECT_EQ(lowbit_convert(context.c(), a, b), LOWBIT_INVALID_ARGUMENT) << mentions;
        EXPECT_NE(std::string(lowbit_last_error()).find(mentions), std::string::npos) << mentions << ", got " << lowbit_last_error();
        EXPECT_EQ(y, std::vector<float>(12, -77.0f)) << mentions;
    };
    EXPECT_EQ(lowbit_convert(nullptr, &from, &to), LOWBIT_INVALID_ARGUMENT);
    refuse(nullptr, &to, "x is a null pointer");
    refuse(&from, nullptr, "y is a null pointer");
    refuse(&from, &from, "y overlaps x");
    lowbit_tensor other = lowbit_matrix(y.data(), LOWBIT_FP32, 4, 3);
    refuse(&from, &other, "y is 4 x 3 but x is 3 x 4");
    other = to, other.element = LOWBIT_INT8;
    refuse(&from, &other, "y is int8; use fp32, fp16, bf16, fp8_e4m3 or fp8_e5m2");
    other = to, other.element = LOWBIT_INT4;
    refuse(&from, &other, "y has element type 6");
    other = to, other.strides[0] = 2;
    refuse(&from, &other, "so its elements overlap");
    other = to, other.device = LOWBIT_CUDA;
    refuse(&from, &other, "y is on cuda:0");
    other = to, other.data = nullptr;
    refuse(&from, &other, "y is a null pointer, but has shape 3 x 4");
}

}  // namespace
}  // namespace lowbit
