#include "reference/kernels.hpp"

#include "reference/convolution.hpp"
#include "reference/quantize.hpp"

namespace lowbit::reference {

void register_kernels(core::Registry& registry) {
    const auto anything = [](const auto&) { return std::string(); };
    registry.quantize.add({"reference", Device::cpu, "nothing", "", anything, quantize});
    registry.dequantize.add({"reference", Device::cpu, "nothing", "", anything, dequantize});
    registry.convert.add({"reference", Device::cpu, "nothing", "", anything, convert});
    core::Kernel<core::MatmulProblem> product{"reference", Device::cpu, "nothing", "", anything, matmul};
    product.fuses_gate = [](const core::MatmulProblem&) { return true; };
    registry.matmul.add(std::move(product));
    registry.sign_bits.add({"reference", Device::cpu, "nothing", "", anything, sign_bits});
    registry.binary_conv.add({"reference", Device::cpu, "nothing", "", anything, binary_conv2d});
}

}  // namespace lowbit::reference
