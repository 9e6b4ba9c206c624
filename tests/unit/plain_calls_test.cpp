// The calls that take plain pointers, against loops written here.
#include <gtest/gtest.h>

#include <vector>

#include "lowbit/lowbit.hpp"
#include "verify/random.hpp"

namespace lowbit {
namespace {

struct Size {
    int64_t m, n, k;
};
constexpr Size sizes[] = {{0, 4, 8}, {4, 0, 8}, {3, 2, 0}, {1, 1, 1}, {2, 3, 5}, {7, 5, 33}, {16, 16, 64}, {33, 17, 129}, {65, 70, 31}};

std::vector<int8_t> random_bytes(int64_t count, uint64_t seed) {
    verify::Random random(seed);
    std::vector<int8_t> bytes(static_cast<size_t>(count));
    for (int8_t& byte : bytes) byte = int8_t(random.bits());
    return bytes;
}

TEST(PlainCalls, Int8Matmul) {
    const Context context = Context::cpu();
    for (const auto& [m, n, k] : sizes) {
        const auto a = random_bytes(m * k, 1), b = random_bytes(k * n, 2);
        std::vector<int32_t> raw(size_t(m * n), -9);
        std::vector<float> scaled(size_t(m * n), -9);
        ASSERT_EQ(lowbit_int8_matmul(context.c(), a.data(), b.data(), raw.data(), LOWBIT_INT32, m, n, k, 1, 1, 1), LOWBIT_OK)
            << lowbit_last_error();
        ASSERT_EQ(lowbit_int8_matmul(context.c(), a.data(), b.data(), scaled.data(), LOWBIT_FP32, m, n, k, 0.5f, 0.25f, 2.0f), LOWBIT_OK)
            << lowbit_last_error();
        for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) {
                int32_t sum = 0;
                for (int64_t l = 0; l < k; ++l) sum += int32_t(a[size_t(i * k + l)]) * b[size_t(l * n + j)];
                ASSERT_EQ(raw[size_t(i * n + j)], sum) << m << "x" << n << "x" << k;
                ASSERT_EQ(scaled[size_t(i * n + j)], float(sum) * 0.25f);
            }
    }
}

TEST(PlainCalls, Int4Matmul) {
    const Context context = Context::cpu();
    const auto nibble = [](int8_t byte, int64_t index) { return index % 2 ? byte >> 4 : int8_t(uint8_t(byte) << 4) >> 4; };
    for (const auto& [m, n, k] : sizes) {
        const int64_t half = (k + 1) / 2;
        const auto a = random_bytes(m * half, 3), b = random_bytes(half * n, 4);
        std::vector<int32_t> raw(size_t(m * n), -9);
        std::vector<float> scaled(size_t(m * n), -9);
        const auto* a_bytes = reinterpret_cast<const uint8_t*>(a.data());
        const auto* b_bytes = reinterpret_cast<const uint8_t*>(b.data());
        ASSERT_EQ(lowbit_int4_matmul(context.c(), a_bytes, b_bytes, raw.data(), LOWBIT_INT32, m, n, k, 1, 1, 1), LOWBIT_OK)
            << lowbit_last_error();
        ASSERT_EQ(lowbit_int4_matmul(context.c(), a_bytes, b_bytes, scaled.data(), LOWBIT_FP32, m, n, k, 2, 4, 0.5f), LOWBIT_OK)
            << lowbit_last_error();
        for (int64_t i = 0; i < m; ++i)
            for (int64_t j = 0; j < n; ++j) {
                int32_t sum = 0;
                for (int64_t l = 0; l < k; ++l) sum += nibble(a[size_t(i * half + l / 2)], l) * nibble(b[size_t(l / 2 * n + j)], l);
                ASSERT_EQ(raw[size_t(i * n + j)], sum) << m << "x" << n << "x" << k;
                ASSERT_EQ(scaled[size_t(i * n + j)], float(sum) * 4);
            }
    }
}

TEST(PlainCalls, GgmlBlocks) {
    const Context context = Context::cpu();
    const int64_t m = 7, n = 5, k = 96, blocks = k / 32;
    const std::vector<float> w = verify::normal_values(m * k, 5), x = verify::normal_values(n * k, 6);
    std::vector<uint8_t> weight(size_t(m * blocks * 18)), activation(size_t(n * blocks * 36));
    std::vector<float> w_back(size_t(m * k)), x_back(size_t(n * k)), y(size_t(m * n), -9);
    ASSERT_EQ(lowbit_quantize_q4_0(context.c(), w.data(), weight.data(), m, k), LOWBIT_OK) << lowbit_last_error();
    ASSERT_EQ(lowbit_quantize_q8_1(context.c(), x.data(), activation.data(), n, k), LOWBIT_OK) << lowbit_last_error();
    ASSERT_EQ(lowbit_dequantize_q4_0(context.c(), weight.data(), w_back.data(), m, k), LOWBIT_OK) << lowbit_last_error();
    ASSERT_EQ(lowbit_gemm_q4_0_q8_1(context.c(), weight.data(), activation.data(), y.data(), m, n, k), LOWBIT_OK) << lowbit_last_error();
    const Quantized q = quantize(context, view(x.data(), {n, k}), "q8_1");
    dequantize(context, q, view(x_back.data(), {n, k}));
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
            double sum = 0, magnitude = 0;
            for (int64_t l = 0; l < k; ++l) {
                const double product = double(w_back[size_t(i * k + l)]) * x_back[size_t(j * k + l)];
                sum += product, magnitude += std::fabs(product);
            }
            EXPECT_NEAR(y[size_t(i * n + j)], sum, magnitude * double(k + 8) * 0x1p-24);
        }
}

TEST(PlainCalls, BadInput) {
    const Context context = Context::cpu();
    std::vector<int8_t> a(64, 1);
    std::vector<int32_t> c(16, 5);
    std::vector<float> x(64, 1.0f);
    std::vector<uint8_t> q(64, 7);
    EXPECT_EQ(lowbit_int8_matmul(nullptr, a.data(), a.data(), c.data(), LOWBIT_INT32, 2, 2, 2, 1, 1, 1), LOWBIT_INVALID_ARGUMENT);
    EXPECT_EQ(lowbit_int8_matmul(context.c(), nullptr, a.data(), c.data(), LOWBIT_INT32, 2, 2, 2, 1, 1, 1), LOWBIT_INVALID_ARGUMENT);
    EXPECT_EQ(lowbit_int8_matmul(context.c(), a.data(), nullptr, c.data(), LOWBIT_INT32, 2, 2, 2, 1, 1, 1), LOWBIT_INVALID_ARGUMENT);
    EXPECT_EQ(lowbit_int8_matmul(context.c(), a.data(), a.data(), nullptr, LOWBIT_INT32, 2, 2, 2, 1, 1, 1), LOWBIT_INVALID_ARGUMENT);
    EXPECT_EQ(lowbit_int8_matmul(context.c(), a.data(), a.data(), c.data(), LOWBIT_INT8, 2, 2, 2, 1, 1, 1), LOWBIT_INVALID_ARGUMENT);
    EXPECT_EQ(lowbit_int8_matmul(context.c(), a.data(), a.data(), c.data(), LOWBIT_INT32, -2, 2, 2, 1, 1, 1), LOWBIT_INVALID_ARGUMENT);
    EXPECT_EQ(lowbit_int8_matmul(context.c(), a.data(), a.data(), c.data(), LOWBIT_INT32, INT64_MAX, 2, INT64_MAX, 1, 1, 1),
              LOWBIT_INVALID_ARGUMENT);
    EXPECT_EQ(lowbit_int8_matmul(context.c(), a.data(), reinterpret_cast<int8_t*>(c.data()), c.data(), LOWBIT_INT32, 2, 2, 2, 1, 1, 1),
              LOWBIT_INVALID_ARGUMENT);
    EXPECT_EQ(lowbit_int4_matmul(context.c(), q.data(), q.data(), c.data(), LOWBIT_INT32, 2, 2, INT64_MAX, 1, 1, 1),
              LOWBIT_INVALID_ARGUMENT);
    EXPECT_EQ(lowbit_quantize_q4_0(context.c(), x.data(), q.data(), 1, 33), LOWBIT_INVALID_ARGUMENT);
    EXPECT_EQ(lowbit_quantize_q4_0(context.c(), x.data(), q.data(), -1, 32), LOWBIT_INVALID_ARGUMENT);
    EXPECT_EQ(lowbit_quantize_q8_1(context.c(), x.data(), nullptr, 1, 32), LOWBIT_INVALID_ARGUMENT);
    EXPECT_EQ(lowbit_dequantize_q4_0(context.c(), q.data(), nullptr, 1, 32), LOWBIT_INVALID_ARGUMENT);
    EXPECT_EQ(lowbit_gemm_q4_0_q8_1(context.c(), q.data(), q.data(), x.data(), 1, 1, 40), LOWBIT_INVALID_ARGUMENT);
    EXPECT_EQ(c, std::vector<int32_t>(16, 5));
    EXPECT_EQ(q, std::vector<uint8_t>(64, 7));
    EXPECT_EQ(x, std::vector<float>(64, 1.0f));
}

}  // namespace
}  // namespace lowbit
