#pragma once
#include "core/registry.hpp"

namespace lowbit::reference {

// The last kernel of every list: takes everything, on one thread.
void register_kernels(core::Registry& registry);

}  // namespace lowbit::reference
