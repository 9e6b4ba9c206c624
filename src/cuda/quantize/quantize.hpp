// Quantize and dequantize on the GPU. For code that includes no CUDA header.
#pragma once
#include "core/registry.hpp"

namespace lowbit::cuda {

void register_quantize_kernels(core::Registry& registry);

}  // namespace lowbit::cuda
