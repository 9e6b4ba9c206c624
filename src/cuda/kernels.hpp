#pragma once
#include "core/registry.hpp"

namespace lowbit::cuda {

// Every CUDA kernel of this build; where there is no device, each says so.
void register_kernels(core::Registry& registry);

}  // namespace lowbit::cuda
