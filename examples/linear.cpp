// A linear layer in 4 bits: quantize once, pack once, multiply as often as tokens come.
#include <cmath>
#include <cstdio>
#include <lowbit/lowbit.hpp>
#include <random>
#include <vector>

namespace lb = lowbit;

int main() {
    const int64_t outputs = 512, inputs = 1024, tokens = 2;
    std::mt19937 generator(1);
    std::normal_distribution<float> normal;
    std::vector<float> w(outputs * inputs), x(tokens * inputs), b(outputs), y(tokens * outputs), exact(tokens * outputs);
    for (std::vector<float>* values : {&w, &x, &b})
        for (float& value : *values) value = normal(generator);

    try {
        const lb::Context context = lb::Context::cpu();
        const lb::Tensor weight = lb::view(w.data(), {outputs, inputs});
        const lb::Tensor input = lb::view(x.data(), {tokens, inputs});
        const lb::Tensor output = lb::view(y.data(), {tokens, outputs});
        const lb::Tensor bias = lb::view(b.data(), {outputs});

        const lb::Quantized quantized = lb::quantize(context, weight, "int4:g128");
        const lb::Packed packed = lb::pack(context, quantized);
        lb::matmul(context, input, packed, output, {.bias = bias, .activation = lb::Activation::silu});

        lb::matmul(context, input, weight, lb::view(exact.data(), {tokens, outputs}), {.bias = bias, .activation = lb::Activation::silu});
        double error = 0, norm = 0;
        for (size_t i = 0; i < y.size(); ++i) {
            error += double(y[i] - exact[i]) * double(y[i] - exact[i]);
            norm += double(exact[i]) * double(exact[i]);
        }
        std::printf("%s: %.2f bits per weight, relative error %.3f\n", quantized.format().print().c_str(),
                    quantized.format().bits_per_weight(outputs, inputs), std::sqrt(error / norm));
        std::printf("%s\n", lb::explain(context, input, packed, output).c_str());
        return std::sqrt(error / norm) < 0.2 ? 0 : 1;
    } catch (const lb::Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
