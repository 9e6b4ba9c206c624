// `lowbit verify`: every kernel of this machine against the reference, over the tables the tests use.
#include "verify/verify.hpp"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "commands.hpp"

namespace lowbit::tools {
namespace {

struct VerifyOptions {
    std::string kernel;
    bool show_all = false;
    int threads = 0;
    std::string device;  // "": all
    size_t stride = 1;   // every so-manieth case
};

struct Tally {
    int passed = 0, failed = 0, skipped = 0;
};

template <class Problem, class Cases>
void verify_list(const VerifyOptions& options, const Cases& cases, Tally& tally) {
    for (const auto& kernel : core::kernels_for<Problem>().kernels()) {
        if (!options.kernel.empty() && kernel.name != options.kernel) continue;
        if (!options.device.empty() && (kernel.device == Device::cuda) != (options.device == "cuda")) continue;
        if (!kernel.unavailable.empty()) {
            ++tally.skipped;
            std::printf("  %-13s %-28s skipped: %s\n", Problem::verb, kernel.name.c_str(), kernel.unavailable.c_str());
            continue;
        }
        core::Context context;
        context.set_threads(options.threads);
        verify::use_device(context, kernel.device);
        int ran = 0, failed = 0;
        double worst = 0;
        // Another first case for each kernel, so that together they meet all.
        for (size_t i = kernel.name.size() % options.stride; i < cases.size(); i += options.stride) {
            const auto& tested = cases[i];
            const verify::Outcome outcome = verify::verify(kernel, context, tested);
            if (!outcome.not_run.empty()) continue;
            ++ran;
            worst = std::max(worst, outcome.error);
            if (!outcome.passed()) ++failed;
            if (!outcome.passed() || options.show_all)
                std::printf("    %s: %s: error %.3g of the bound%s%s\n", outcome.passed() ? "pass" : "FAIL", tested.text().c_str(),
                            outcome.error, outcome.difference.empty() ? "" : ": ", outcome.difference.c_str());
        }
        (failed ? tally.failed : tally.passed) += 1;
        std::printf("  %-13s %-28s %s  %5d cases, largest error %.3f of the bound\n", Problem::verb, kernel.name.c_str(),
                    failed ? "FAIL" : "pass", ran, worst);
        std::fflush(stdout);
    }
}

void run(const VerifyOptions& options) {
    core::require(options.kernel.empty() || core::registry().knows(options.kernel), "verify: kernel \"", options.kernel,
                  "\" is unknown; `lowbit info` lists them");
    Tally tally;
    verify_list<core::QuantizeProblem>(options, verify::quantize_cases(), tally);
    verify_list<core::DequantizeProblem>(options, verify::quantize_cases(), tally);
    verify_list<core::ConvertProblem>(options, verify::convert_cases(), tally);
    verify_list<core::SignBitsProblem>(options, verify::sign_bits_cases(), tally);
    verify_list<core::BinaryConvProblem>(options, verify::convolution_cases(), tally);
    verify_list<core::MatmulProblem>(options, verify::matmul_cases(), tally);
    std::printf("%d kernels passed, %d failed, %d skipped\n", tally.passed, tally.failed, tally.skipped);
    if (tally.failed) throw CLI::RuntimeError(1);
}

}  // namespace

void add_verify(CLI::App& app) {
    auto options = std::make_shared<VerifyOptions>();
    CLI::App* command = app.add_subcommand("verify", "every kernel of this machine against the reference");
    command->add_option("--kernel", options->kernel, "only the kernel of this name");
    command->add_option("--threads", options->threads, "threads (0: all)")->check(CLI::Range(0, 1024));
    command->add_option("--device", options->device, "only kernels of this device")->check(CLI::IsMember({"cpu", "cuda"}));
    command->add_option("--stride", options->stride, "every so-manieth case of the tables")->check(CLI::Range(1, 1000));
    command->add_flag("--all", options->show_all, "print every case, not only failures");
    command->callback([options] { run(*options); });
}

}  // namespace lowbit::tools
