// One call into lowbit on the device of its tensors.
#pragma once
#include <torch/csrc/stable/accelerator.h>

#include <optional>

#include "tensors.hpp"

namespace lowbit_torch {

// On the CPU: a context that all threads share, with as many threads as torch uses. On a GPU: the device made current for the time of the
// call, a context of this thread and device on torch's current stream, and workspace from torch's caching allocator, which makes it safe to
// give it back before the stream has passed the call, and lets CUDA graphs record it.
class Call {
public:
    explicit Call(const Place& place);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    lowbit_context* context() const { return context_; }
    void give_workspace(size_t bytes);

private:
    Place place_;
    lowbit_context* context_ = nullptr;
    std::optional<torch::stable::accelerator::DeviceGuard> guard_;
    std::optional<Tensor> workspace_;
};

}  // namespace lowbit_torch

// lowbit_context_set_dependent_launch for the calls that this thread makes from here on; returns what it was. Not an op, since it has no
// tensors: the package calls it through ctypes.
extern "C" LOWBIT_API int32_t lowbit_torch_swap_dependent_launch(int32_t enabled);
