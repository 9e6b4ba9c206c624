// Copies of a problem's matrices on a GPU, made for one run of a kernel there; views that are on the CPU already when the context is.
#pragma once
#include <vector>

#include "core/problem.hpp"
#include "core/registry.hpp"

namespace lowbit::verify {

class Mirror {
public:
    explicit Mirror(const core::Context& context) : context_(context) {}

    // Views of the same numbers where the kernel runs. Every plane has memory of its own, of exactly its size: a memory checker sees the
    // first byte beyond.
    core::Tensor tensor(const core::Tensor& host);
    core::QuantizedView quantized(const core::QuantizedView& host);
    core::Operand operand(const core::Operand& host);
    core::Epilogue epilogue(const core::Epilogue& host);
    // A weight packed by the kernels' own device.
    core::QuantizedView packed(const core::QuantizedView& mirrored);
    void* memory(int64_t bytes);

    // Fills a mirrored matrix with the host's numbers once more.
    void bring(const core::Tensor& host, const core::Tensor& mirrored);
    // Waits, and brings what was written back into the host's matrices.
    void bring_back(const core::Tensor& host, const core::Tensor& mirrored);
    void bring_back(const core::QuantizedView& host, const core::QuantizedView& mirrored);

private:
    bool on_device() const { return context_.device == Device::cuda; }
    void* plane(const void* host, int64_t bytes);

    const core::Context& context_;
    std::vector<core::Buffer> buffers_;
};

// Runs a kernel with the scratch memory it asks for.
template <class Problem>
void run_on(Mirror& mirror, const core::Kernel<Problem>& kernel, Problem problem) {
    if (kernel.workspace)
        if (const int64_t bytes = kernel.workspace(problem)) problem.scratch = mirror.memory(bytes);
    kernel.run(problem);
}

}  // namespace lowbit::verify
