// Every kernel against the reference, over tables of formats, shapes and epilogues. Tests and `lowbit verify` walk the same tables.
//
// Codes, scales and dequantized values must be equal to the bit, as must raw integer products, signs and their convolutions. A floating
// product may differ by
//     (K + 8) 2^-24 sum |x w|     any order of K fp32 additions, and the roundings of decoding and scaling
// carried through the epilogue (whose slopes are at most 1.13, and of which a gate multiplies two), plus a rounding of what a beta adds and
// one unit in the last place of the output type. Where there is no beta, the output holds NaN before. A kernel that adds with less than
// fp32's care, or rounds operands, says so itself (Kernel::addition_unit, operand_rounding, minimum_rounding), and is held to that.
#pragma once
#include <array>
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

// How numbers of images lie in memory: [image][channel][row][column], with the channels innermost, or with strides and room between all.
enum class Layout { channels_first, channels_last, gaps };

struct ConvolutionCase {
    int64_t images, channels, height, width, outputs;  // channels: of all groups
    std::array<int64_t, 2> kernel = {1, 1}, stride = {1, 1};
    std::array<int64_t, 4> padding = {0, 0, 0, 0};  // top, bottom, left, right
    std::array<int64_t, 2> dilation = {1, 1};
    int64_t groups = 1;

    core::ConvolutionAxis down() const { return {height, kernel[0], stride[0], padding[0], padding[1], dilation[0]}; }
    core::ConvolutionAxis across() const { return {width, kernel[1], stride[1], padding[2], padding[3], dilation[1]}; }
    int64_t group_channels() const { return channels / groups; }
    std::string text() const;
};

struct SignBitsCase {
    std::array<int64_t, 4> shape;  // images, channels, rows, columns
    int64_t groups;
    Element element;
    Layout layout;
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
std::vector<ConvolutionCase> convolution_cases();
std::vector<SignBitsCase> sign_bits_cases();

Outcome verify(const core::Kernel<core::MatmulProblem>& kernel, const core::Context& context, const MatmulCase& tested);
Outcome verify(const core::Kernel<core::QuantizeProblem>& kernel, const core::Context& context, const QuantizeCase& tested);
Outcome verify(const core::Kernel<core::DequantizeProblem>& kernel, const core::Context& context, const QuantizeCase& tested);
Outcome verify(const core::Kernel<core::ConvertProblem>& kernel, const core::Context& context, const ConvertCase& tested);
Outcome verify(const core::Kernel<core::BinaryConvProblem>& kernel, const core::Context& context, const ConvolutionCase& tested);
Outcome verify(const core::Kernel<core::SignBitsProblem>& kernel, const core::Context& context, const SignBitsCase& tested);

}  // namespace lowbit::verify
