#pragma once
#include "core/registry.hpp"

namespace lowbit::cpu {

// The CPU kernels, best first; those this processor cannot run are listed with the reason.
void register_kernels(core::Registry& registry);

}  // namespace lowbit::cpu
