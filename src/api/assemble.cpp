// The one place that knows every backend.
#include "core/registry.hpp"
#include "cpu/kernels.hpp"
#include "cuda/kernels.hpp"
#include "reference/kernels.hpp"

namespace lowbit::core {

const Registry& registry() {
    static const Registry all = [] {
        Registry made;
        cuda::register_kernels(made);
        cpu::register_kernels(made);
        reference::register_kernels(made);
        return made;
    }();
    return all;
}

}  // namespace lowbit::core
