// Convolutions of signs on a GPU.
#pragma once
#include "core/registry.hpp"

namespace lowbit::cuda {

void register_convolution_kernels(core::Registry& registry);

void add_sign_bits(core::Registry& registry);
void add_hopper_conv(core::Registry& registry);  // tensor cores through wgmma
void add_tensor_conv(core::Registry& registry);  // through mma.sync
void add_any_conv(core::Registry& registry);

}  // namespace lowbit::cuda
