// Every registered kernel against the reference: a new kernel is tested by being registered.
#include <gtest/gtest.h>

#include <cctype>

#include "verify/verify.hpp"

namespace lowbit {
namespace {

template <class Problem>
std::vector<std::string> kernel_names() {
    std::vector<std::string> names;
    for (const auto& kernel : core::kernels_for<Problem>().kernels()) names.push_back(kernel.name);
    return names;
}

// Runs all cases the kernel takes; a kernel that takes none is a mistake in the table.
template <class Problem, class Cases>
void run_all(const std::string& name, const Cases& cases) {
    const core::Kernel<Problem>& kernel = *core::kernels_for<Problem>().find(name);
    if (!kernel.unavailable.empty()) GTEST_SKIP() << name << ": " << kernel.unavailable;
    core::Context context;
    context.set_threads(2);
    int ran = 0, failed = 0;
    for (const auto& tested : cases) {
        const verify::Outcome outcome = verify::verify(kernel, context, tested);
        if (!outcome.not_run.empty()) continue;
        ++ran;
        if (!outcome.passed() && ++failed <= 10)
            ADD_FAILURE() << name << ": " << tested.text() << ": error / bound = " << outcome.error << ": " << outcome.difference;
    }
    EXPECT_GT(ran, 0);
    EXPECT_EQ(failed, 0);
    testing::Test::RecordProperty("cases", ran);
}

class Matmul : public testing::TestWithParam<std::string> {};
TEST_P(Matmul, AgreesWithReference) { run_all<core::MatmulProblem>(GetParam(), verify::matmul_cases()); }
INSTANTIATE_TEST_SUITE_P(Kernels, Matmul, testing::ValuesIn(kernel_names<core::MatmulProblem>()),
                         [](const auto& kernel) { return kernel.param; });

class Quantize : public testing::TestWithParam<std::string> {};
TEST_P(Quantize, AgreesWithReferenceToTheBit) { run_all<core::QuantizeProblem>(GetParam(), verify::quantize_cases()); }
INSTANTIATE_TEST_SUITE_P(Kernels, Quantize, testing::ValuesIn(kernel_names<core::QuantizeProblem>()),
                         [](const auto& kernel) { return kernel.param; });

class Dequantize : public testing::TestWithParam<std::string> {};
TEST_P(Dequantize, AgreesWithReferenceToTheBit) { run_all<core::DequantizeProblem>(GetParam(), verify::quantize_cases()); }
INSTANTIATE_TEST_SUITE_P(Kernels, Dequantize, testing::ValuesIn(kernel_names<core::DequantizeProblem>()),
                         [](const auto& kernel) { return kernel.param; });

// Results do not depend on how many threads share the work.
TEST(Threads, AnyNumberGivesTheSameBits) {
    const auto run = [](int threads, const char* x_format, const char* weight_format) {
        core::Context context;
        context.set_threads(threads);
        const auto choose_and_run = [&](auto& problem) {
            core::check(problem);
            core::run(problem);
        };
        std::vector<float> w(131 * 256), x(3 * 256), y(3 * 131);
        for (size_t i = 0; i < w.size(); ++i) w[i] = float(int(i * 7919 % 1009) - 500) / 250;
        for (size_t i = 0; i < x.size(); ++i) x[i] = float(int(i * 104729 % 1013) - 500) / 250;
        const auto quantized = [&](std::vector<float>& values, int64_t rows, const char* name, std::vector<uint8_t>& memory) {
            core::QuantizedView view;
            view.format = core::Format::parse(name);
            view.rows = rows;
            view.columns = 256;
            const core::PlaneSizes sizes = view.format.measure(rows, 256);
            const int64_t scales_at = core::ceil_div(sizes.code_bytes, 64) * 64;
            memory.resize(size_t(scales_at + sizes.scale_bytes + 64));
            view.codes = memory.data();
            if (sizes.scale_bytes) view.scales = memory.data() + scales_at;
            core::QuantizeProblem problem{&context, {values.data(), Element::fp32, rows, 256, 256, 1, Device::cpu, 0}, view, false};
            choose_and_run(problem);
            return view;
        };
        std::vector<uint8_t> w_memory, x_memory;
        core::MatmulProblem problem;
        problem.context = &context;
        problem.weight.is_quantized = problem.x.is_quantized = true;
        problem.weight.quantized = quantized(w, 131, weight_format, w_memory);
        problem.x.quantized = quantized(x, 3, x_format, x_memory);
        problem.y = {y.data(), Element::fp32, 3, 131, 131, 1, Device::cpu, 0};
        choose_and_run(problem);
        return y;
    };
    for (const auto& [x, weight] :
         {std::pair{"int8:row", "int8:row"}, {"q8_1", "q4_0"}, {"fp16", "int4:g64"}, {"bf16", "q6_k"}, {"fp16", "int1:tensor"}})
        for (const int threads : {2, 3, 8})
            EXPECT_EQ(run(1, x, weight), run(threads, x, weight)) << x << " x " << weight << ", " << threads << " threads";
}

}  // namespace
}  // namespace lowbit
