// How the kernels of this folder are started. In a header of its own, because the host tests of this folder put another in its place.
#pragma once
#include "cuda/launch.cuh"

namespace lowbit::cuda {

struct Grid {
    unsigned blocks;
    unsigned threads;  // per block
};

// On the context's stream; no blocks, no launch.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), Grid grid, const core::Context& context, const Arguments&... arguments) {
    if (grid.blocks == 0) return;
    kernel<<<grid.blocks, grid.threads, 0, stream_of(context)>>>(arguments...);
    check_launch(name);
}

}  // namespace lowbit::cuda
