// The one place that knows every backend.
#include "core/gate.hpp"
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
        KernelList<MatmulProblem> products;
        for (const Kernel<MatmulProblem>& kernel : made.matmul.kernels())
            products.add(with_gate(kernel, kernel.device == Device::cuda ? cuda::gate : gate_on_cpu));
        made.matmul = std::move(products);
        return made;
    }();
    return all;
}

}  // namespace lowbit::core
