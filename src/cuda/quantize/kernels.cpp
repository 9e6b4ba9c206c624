#include "cuda/quantize/fast.hpp"
#include "cuda/quantize/general.hpp"
#include "cuda/quantize/quantize.hpp"

namespace lowbit::cuda {
namespace {

template <class Problem>
core::Kernel<Problem> kernel(const char* name, std::string (*supports)(const Problem&), void (*run)(const Problem&),
                             int64_t (*workspace)(const Problem&) = nullptr) {
    core::Kernel<Problem> made;
    made.name = name;
    made.device = Device::cuda;
    made.needs = "an NVIDIA GPU from sm_75 on";
    made.supports = supports;
    made.run = run;
    if (workspace) made.workspace = workspace;
    return made;
}

template <class Problem>
std::string everything(const Problem&) {
    return "";
}

}  // namespace

void register_quantize_kernels(core::Registry& registry) {
    registry.quantize.add(kernel("cuda_quantize_row", supports_quantize_row, run_quantize_row));
    registry.quantize.add(kernel("cuda_quantize_group", supports_quantize_group, run_quantize_group, tensor_statistics_bytes));
    registry.quantize.add(kernel("cuda_quantize_blocks", supports_quantize_blocks, run_quantize_blocks));
    registry.quantize.add(kernel<core::QuantizeProblem>("cuda_quantize", everything, run_quantize, tensor_statistics_bytes));
    registry.dequantize.add(kernel("cuda_dequantize_units", supports_dequantize_units, run_dequantize_units));
    registry.dequantize.add(kernel("cuda_dequantize_blocks", supports_dequantize_blocks, run_dequantize_blocks));
    registry.dequantize.add(kernel<core::DequantizeProblem>("cuda_dequantize", everything, run_dequantize));
    registry.convert.add(kernel<core::ConvertProblem>("cuda_convert", everything, run_convert));
}

}  // namespace lowbit::cuda
