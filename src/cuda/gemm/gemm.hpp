// The kernels of the matmul verb, one function per family, in the order in which they are asked.
#pragma once
#include "core/registry.hpp"

namespace lowbit::cuda {

void add_decode(core::Registry& registry);      // few tokens: the weight streams through once
void add_few_tokens(core::Registry& registry);  // few tokens with what has no kernel of its own
void add_two_parts(core::Registry& registry);   // many tokens on sm_90, those beyond whole tiles apart
void add_hopper(core::Registry& registry);      // tensor cores of sm_90: plain rows and tiles
void add_ampere(core::Registry& registry);      // tensor cores: everything the main loop of ampere.cuh has a source for
void add_universal(core::Registry& registry);   // everything else

inline void register_matmul_kernels(core::Registry& registry) {
    add_decode(registry);
    add_few_tokens(registry);
    add_two_parts(registry);
    add_hopper(registry);
    add_ampere(registry);
    add_universal(registry);
}

}  // namespace lowbit::cuda
