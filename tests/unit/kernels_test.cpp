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

// Under a sanitizer everything takes ten times as long: there every fourth case is run, a different quarter for each kernel.
#ifdef __SANITIZE_ADDRESS__
constexpr size_t stride = 4;
#else
constexpr size_t stride = 1;
#endif

// Runs all cases the kernel takes; a kernel that takes none is a mistake in the table.
template <class Problem, class Cases>
void run_all(const std::string& name, const Cases& cases) {
    const core::Kernel<Problem>& kernel = *core::kernels_for<Problem>().find(name);
    if (!kernel.unavailable.empty()) GTEST_SKIP() << name << ": " << kernel.unavailable;
    core::Context context;
    context.set_threads(2);
    verify::use_device(context, kernel.device);
    int ran = 0, failed = 0;
    for (size_t i = name.size() % stride; i < cases.size(); i += stride) {
        const auto& tested = cases[i];
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
// Kernels end in stores of their own, and each must add what the output held.
TEST_P(Matmul, AddsToTheOutput) {
    std::vector<verify::MatmulCase> cases = verify::matmul_cases();
    std::erase_if(cases, [](const verify::MatmulCase& tested) { return !tested.has_beta() || tested.m * tested.n == 0; });
    run_all<core::MatmulProblem>(GetParam(), cases);
}
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

class Convert : public testing::TestWithParam<std::string> {};
TEST_P(Convert, AgreesWithReferenceToTheBit) { run_all<core::ConvertProblem>(GetParam(), verify::convert_cases()); }
INSTANTIATE_TEST_SUITE_P(Kernels, Convert, testing::ValuesIn(kernel_names<core::ConvertProblem>()),
                         [](const auto& kernel) { return kernel.param; });

}  // namespace
}  // namespace lowbit
