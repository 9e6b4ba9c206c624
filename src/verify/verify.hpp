// Every kernel against the reference, over tables of formats, shapes and epilogues. Tests and `lowbit verify` walk the same tables.
//
// Codes, scales and dequantized values must be equal to the bit, as must raw integer products. A floating product may differ by
//     (K + 8) 2^-24 sum |x w|     any order of K fp32 additions, and the roundings of decoding and scaling
// carried through the epilogue (whose slopes are at most 1.13, and of which a gate multiplies two), plus a rounding of what a beta adds and
// one unit in the last place of the output type. Where there is no beta, the output holds NaN before. A kernel that adds with less than
// fp32's care, or rounds operands, says so itself (Kernel::addition_unit, operand_rounding, minimum_rounding), and is held to that.
#pragma once
#include <string>
#include <vector>

#include "core/registry.hpp"

namespace lowbit::verify {

enum class EpilogueKind {
    none,
    bias_relu,
    scales_gelu,
    gelu_tanh_bf16,
    silu_fp16,
    int8_output,
    raw,
    transposed_output,
    scales_bf16,
    scales_fp16,
    gate_silu,
    gate_gelu_bf16,
    gate_int8,
    gate_beta,
    beta_relu,
    beta_scales_bf16,
    beta_gelu_fp16
};

struct MatmulCase {
    core::Format x, weight;  // x may be plain (fp32, fp16, bf16)
    int64_t m, n, k;         // of the result; the weight of a gate has 2 n rows
    EpilogueKind epilogue;
    bool for_gpus = false;  // larger than any loop of a CPU kernel asks for
    std::string text() const;
    bool gated() const {
        return epilogue == EpilogueKind::gate_silu || epilogue == EpilogueKind::gate_gelu_bf16 || epilogue == EpilogueKind::gate_int8 ||
               epilogue == EpilogueKind::gate_beta;
    }
    bool has_beta() const { return epilogue >= EpilogueKind::gate_beta; }
    int64_t weight_rows() const { return gated() ? 2 * n : n; }
};

struct QuantizeCase {
    core::Format format;
    Element element;  // of x
    int64_t rows, columns;
    bool static_scales;
    bool special_values;  // NaN, infinities, zeros, tiny and huge numbers among the values
    std::string text() const;
};

struct ConvertCase {
    Element from, to;
    int64_t rows, columns;
    bool x_transposed, y_transposed;
    std::string text() const;
};

struct Outcome {
    std::string not_run;     // why the kernel does not take this case; "" when it ran
    double error = 0;        // in units of the bound: passes up to 1
    std::string difference;  // the worst place, in words
    bool passed() const { return not_run.empty() && error <= 1; }
};

// Readies a fresh context for kernels of a device: the first of its kind.
void use_device(core::Context& context, Device device);

std::vector<MatmulCase> matmul_cases();
std::vector<QuantizeCase> quantize_cases();
std::vector<ConvertCase> convert_cases();

Outcome verify(const core::Kernel<core::MatmulProblem>& kernel, const core::Context& context, const MatmulCase& tested);
Outcome verify(const core::Kernel<core::QuantizeProblem>& kernel, const core::Context& context, const QuantizeCase& tested);
Outcome verify(const core::Kernel<core::DequantizeProblem>& kernel, const core::Context& context, const QuantizeCase& tested);
Outcome verify(const core::Kernel<core::ConvertProblem>& kernel, const core::Context& context, const ConvertCase& tested);

}  // namespace lowbit::verify
