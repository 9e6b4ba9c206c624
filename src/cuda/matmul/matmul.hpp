#pragma once
#include "core/registry.hpp"

namespace lowbit::cuda {

void register_matmul_kernels(core::Registry& registry);

}  // namespace lowbit::cuda
