// Which kernel runs a problem: an ordered list per verb, best first, the reference last. A kernel answers for itself why it cannot.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/convolution.hpp"
#include "core/problem.hpp"
#include "core/status.hpp"

namespace lowbit::core {

template <class Problem>
struct Kernel {
    std::string name;
    Device device = Device::cpu;
    std::string needs;                                    // in words: "AVX-512 with VNNI"
    std::string unavailable;                              // why it cannot run on this machine; "" when it can
    std::function<std::string(const Problem&)> supports;  // "" or the reason against it, from formats and shapes alone
    std::function<void(const Problem&)> run;
    // "" or why it leaves a problem that it could run to a kernel after it; asked only where no kernel is forced.
    std::function<std::string(const Problem&)> defers = {};
    std::function<int64_t(const Problem&)> workspace = {};  // bytes of problem.scratch; none when empty
    // Products: the relative rounding of one addition, and of an operand's value beside its format (0: taken as it is).
    double addition_unit = 0x1p-24;
    std::function<double(const Problem&)> operand_rounding = {};
    // Added to that for weights whose values are scale * code + minimum: relative to the minimum, since the value may be far smaller.
    double minimum_rounding = 0;
    // Products: whether it applies this problem's gate by itself; where not, core/gate.hpp does.
    std::function<bool(const Problem&)> fuses_gate = {};
    // Products: reads problem.numbers in place of x, and rounds them to the format of x by itself.
    bool quantizes_x = false;
};

template <class Problem>
struct Choice {
    const Kernel<Problem>* kernel = nullptr;
    std::vector<std::string> skipped;  // "name (reason)"

    std::string text() const {
        std::string line = kernel ? "chosen: " + kernel->name : "chosen: none";
        for (size_t i = 0; i < skipped.size(); ++i) line += (i == 0 ? "; skipped: " : ", ") + skipped[i];
        return line;
    }
};

template <class Problem>
class KernelList {
public:
    void add(Kernel<Problem> kernel) { kernels_.push_back(std::move(kernel)); }
    const std::vector<Kernel<Problem>>& kernels() const { return kernels_; }
    const Kernel<Problem>* find(std::string_view name) const {
        for (const auto& kernel : kernels_)
            if (kernel.name == name) return &kernel;
        return nullptr;
    }

    static std::string reason_against(const Kernel<Problem>& kernel, const Problem& problem) {
        if (kernel.device != problem.context->device) return kernel.device == Device::cuda ? "for cuda tensors" : "for cpu tensors";
        if (!kernel.unavailable.empty()) return kernel.unavailable;
        return kernel.supports(problem);
    }

    // `forced`: the name of the only kernel to consider, or "". The reasons take longer than the choice: a call does without.
    Choice<Problem> choose(const Problem& problem, std::string_view forced, bool with_reasons) const {
        Choice<Problem> choice;
        for (const auto& kernel : kernels_) {
            if (!forced.empty() && kernel.name != forced) continue;
            std::string reason = reason_against(kernel, problem);
            if (reason.empty() && forced.empty() && kernel.defers) reason = kernel.defers(problem);
            if (reason.empty()) {
                choice.kernel = &kernel;
                break;
            }
            if (with_reasons) choice.skipped.push_back(kernel.name + " (" + reason + ")");
        }
        return choice;
    }

private:
    std::vector<Kernel<Problem>> kernels_;
};

struct Registry {
    KernelList<QuantizeProblem> quantize;
    KernelList<DequantizeProblem> dequantize;
    KernelList<ConvertProblem> convert;
    KernelList<MatmulProblem> matmul;
    KernelList<SignBitsProblem> sign_bits;
    KernelList<BinaryConvProblem> binary_conv;

    bool knows(std::string_view name) const {
        return quantize.find(name) || dequantize.find(name) || convert.find(name) || matmul.find(name) || sign_bits.find(name) ||
               binary_conv.find(name);
    }
};

// Every kernel of this build; made once, in api/assemble.cpp, the only place that knows all backends.
const Registry& registry();

template <class Problem>
const KernelList<Problem>& kernels_for() {
    if constexpr (std::is_same_v<Problem, QuantizeProblem>)
        return registry().quantize;
    else if constexpr (std::is_same_v<Problem, DequantizeProblem>)
        return registry().dequantize;
    else if constexpr (std::is_same_v<Problem, ConvertProblem>)
        return registry().convert;
    else if constexpr (std::is_same_v<Problem, MatmulProblem>)
        return registry().matmul;
    else if constexpr (std::is_same_v<Problem, SignBitsProblem>)
        return registry().sign_bits;
    else
        return registry().binary_conv;
}

// A forced name that belongs to another verb leaves this verb free; one that no verb knows is an error.
template <class Problem>
Choice<Problem> choose(const Problem& problem, bool with_reasons = true) {
    std::string forced = problem.context->forced_kernel();
    if (!forced.empty() && !kernels_for<Problem>().find(forced)) {
        require(registry().knows(forced), "kernel \"", forced, "\" is unknown; `lowbit info` lists the kernels of this build");
        forced.clear();
    }
    return kernels_for<Problem>().choose(problem, forced, with_reasons);
}

inline bool verbose() {
    const char* value = std::getenv("LOWBIT_VERBOSE");
    return value && *value && std::string_view(value) != "0";
}

template <class Problem>
const Kernel<Problem>& chosen_kernel(const Problem& problem) {
    Choice<Problem> choice = choose(problem, verbose());
    if (verbose()) std::fprintf(stderr, "lowbit: %s: %s\n", Problem::verb, choice.text().c_str());
    if (!choice.kernel) {
        choice = choose(problem);
        std::string reasons;
        for (const std::string& skipped : choice.skipped) reasons += (reasons.empty() ? "" : ", ") + skipped;
        fail(Status::unsupported, Problem::verb, ": no kernel can run this: ", reasons.empty() ? "none is registered" : reasons);
    }
    return *choice.kernel;
}

// Takes the kernel's scratch memory and runs it, unless the call is only measured.
template <class Problem>
void run(const Kernel<Problem>& kernel, Problem problem, Scratch& scratch) {
    if (kernel.workspace)
        if (const int64_t bytes = kernel.workspace(problem)) problem.scratch = scratch.take(bytes);
    if (!scratch.measuring()) kernel.run(problem);
}

template <class Problem>
void run(const Problem& problem, Scratch& scratch) {
    run(chosen_kernel(problem), problem, scratch);
}

template <class Problem>
void run(const Problem& problem) {
    Scratch scratch(*problem.context);
    run(problem, scratch);
}

}  // namespace lowbit::core
