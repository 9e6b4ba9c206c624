// The gate through the public header: y = activation(x . first half) * (x . second half).
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/epilogue.hpp"
#include "lowbit/lowbit.hpp"
#include "verify/random.hpp"

namespace lowbit {
namespace {

constexpr int64_t tokens = 5, outputs = 19, inputs = 96;

struct Gate : testing::Test {
    Context context = Context::cpu();
    std::vector<float> x = verify::normal_values(tokens * inputs, 1), w = verify::normal_values(2 * outputs * inputs, 2),
                       bias = verify::normal_values(2 * outputs, 3), row_scale = verify::normal_values(tokens, 4),
                       column_scale = verify::normal_values(2 * outputs, 5);
    Tensor input = view(x.data(), {tokens, inputs});
    Epilogue epilogue{.bias = view(bias.data(), {2 * outputs}),
                      .row_scale = view(row_scale.data(), {tokens}),
                      .column_scale = view(column_scale.data(), {2 * outputs}),
                      .scale = 0.1f,
                      .activation = Activation::silu,
                      .gate = true};

    template <class Number>
    std::vector<Number> product(const Operand& weight) {
        std::vector<Number> y(size_t(tokens * outputs));
        matmul(context, input, weight, view(y.data(), {tokens, outputs}), epilogue);
        return y;
    }
};

TEST_F(Gate, IsAProductOfHalves) {
    for (const char* format : {"fp32", "int4:g32", "int8:row", "q4_0"})
        for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu})
            for (const char* kernel : {"", "reference"}) {
                context.set_kernel(kernel);
                const Quantized weight = quantize(context, view(w.data(), {2 * outputs, inputs}), format);
                Epilogue plain = epilogue;
                plain.gate = false;
                plain.activation = Activation::none;
                std::vector<float> halves(size_t(tokens * 2 * outputs));
                matmul(context, input, weight, view(halves.data(), {tokens, 2 * outputs}), plain);
                epilogue.activation = activation;
                const std::vector<float> y = product<float>(weight);
                for (int64_t m = 0; m < tokens; ++m)
                    for (int64_t n = 0; n < outputs; ++n) {
                        const double first = halves[size_t(m * 2 * outputs + n)], second = halves[size_t(m * 2 * outputs + n + outputs)];
                        const double expected = core::activate(activation, first) * second;
                        ASSERT_NEAR(y[size_t(m * outputs + n)], expected, 1e-5 * (std::fabs(expected) + 1)) << format << " " << kernel;
                    }
            }
}

// Whatever the output's type, both halves are multiplied in fp32.
TEST_F(Gate, RoundsOnce) {
    const Quantized weight = quantize(context, view(w.data(), {2 * outputs, inputs}), "int4:g32");
    const std::vector<float> exact = product<float>(weight);
    const std::vector<bf16> rounded = product<bf16>(weight);
    epilogue.output_scale = 0.05f;
    const std::vector<int8_t> integers = product<int8_t>(weight);
    for (size_t i = 0; i < exact.size(); ++i) {
        EXPECT_EQ(uint16_t(rounded[i]), core::float_to_bf16(exact[i])) << i;
        EXPECT_EQ(integers[i], core::to_int8(double(exact[i]), 0.05f)) << i;
    }
}

TEST_F(Gate, TakesTokensThatAreQuantizedOnTheWay) {
    epilogue.x_format = "int8:row";
    const Quantized weight = quantize(context, view(w.data(), {2 * outputs, inputs}), "int8:row");
    const std::vector<float> fast = product<float>(weight);
    context.set_kernel("reference");
    const std::vector<float> expected = product<float>(weight);
    for (size_t i = 0; i < fast.size(); ++i) EXPECT_NEAR(fast[i], expected[i], 1e-5 * (std::fabs(expected[i]) + 1));
}

TEST_F(Gate, IsExplained) {
    std::vector<float> y(size_t(tokens * outputs));
    const auto says = [&](const char* text) {
        const std::string explained =
            explain(context, input, view(w.data(), {2 * outputs, inputs}), view(y.data(), {tokens, outputs}), epilogue);
        EXPECT_NE(explained.find(text), std::string::npos) << explained;
    };
    says("; gate: a pass after the product");
    context.set_kernel("reference");
    says("chosen: reference; gate: in the kernel");
    context.set_kernel("cpu_portable_int8");
    says("chosen: none; skipped: cpu_portable_int8 (for integer codes on both sides)");
    EXPECT_THROW(product<float>(view(w.data(), {2 * outputs, inputs})), Error);
}

TEST_F(Gate, WithoutMemoryWritesNothing) {
    const lowbit_allocator none{sizeof(lowbit_allocator), [](void*, size_t, size_t) -> void* { return nullptr; },
                                [](void*, void*, size_t) {}, nullptr};
    context.set_allocator(none);
    std::vector<float> y(size_t(tokens * outputs), -77.0f);
    try {
        matmul(context, input, view(w.data(), {2 * outputs, inputs}), view(y.data(), {tokens, outputs}), epilogue);
        ADD_FAILURE();
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::out_of_memory);
    }
    for (const float value : y) EXPECT_EQ(value, -77.0f);
}

}  // namespace
}  // namespace lowbit
