#include "call.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace lowbit_torch {
namespace {

struct DestroyContext {
    void operator()(lowbit_context* context) const { lowbit_context_destroy(context); }
};
using ContextPointer = std::unique_ptr<lowbit_context, DestroyContext>;

lowbit_context* cpu_context() {
    static std::mutex mutex;
    static lowbit_context* context = nullptr;
    static pid_t owner = 0;
    static uint32_t threads = 0;
    const std::scoped_lock lock(mutex);
    if (owner != getpid()) {
        // The threads of a context do not live on in a forked process: it gets a context of its own, and leaves the old one alone.
        check(lowbit_context_create_cpu(&context));
        owner = getpid();
        threads = 0;
    }
    uint32_t wanted = 0;
    TORCH_ERROR_CODE_CHECK(torch_get_num_threads(&wanted));
    if (wanted != threads) {
        check(lowbit_context_set_threads(context, int32_t(wanted)));
        threads = wanted;
    }
    return context;
}

thread_local bool dependent_launch = false;  // what the calls of this thread ask of a GPU

lowbit_context* cuda_context(int32_t device, void* stream) {
    thread_local std::map<int32_t, ContextPointer> contexts;
    ContextPointer& context = contexts[device];
    if (context) {
        check(lowbit_context_set_stream(context.get(), stream));
    } else {
        lowbit_context* made = nullptr;
        check(lowbit_context_create_cuda(device, stream, &made));
        context.reset(made);
    }
    check(lowbit_context_set_dependent_launch(context.get(), dependent_launch ? 1 : 0));
    return context.get();
}

using CurrentStream = AOTITorchError (*)(int32_t device, void** stream);

// The one function that torch's CUDA library has and its CPU build has not: found at run time, so that one op library serves both.
CurrentStream find_current_stream() {
    void* library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
    void* found = dlsym(library ? library : RTLD_DEFAULT, "aoti_torch_get_current_cuda_stream");
    if (!found) throw std::runtime_error("lowbit: this torch has no CUDA support, so it has no CUDA stream to work on");
    return reinterpret_cast<CurrentStream>(found);
}

void* current_stream(int32_t device) {
    static const CurrentStream ask = find_current_stream();
    void* stream = nullptr;
    TORCH_ERROR_CODE_CHECK(ask(device, &stream));
    return stream;
}

}  // namespace

Call::Call(const Place& place) : place_(place) {
    if (place.device == LOWBIT_CPU) {
        context_ = cpu_context();
    } else {
        guard_.emplace(place.index);
        context_ = cuda_context(place.index, current_stream(place.index));
    }
}

Call::~Call() {
    if (workspace_) lowbit_context_set_workspace(context_, nullptr, 0);
}

void Call::give_workspace(size_t bytes) {
    if (bytes == 0) return;
    workspace_ = allocate({int64_t(bytes)}, aoti_torch_dtype_uint8(), place_);
    check(lowbit_context_set_workspace(context_, workspace_->data_ptr(), bytes));
}

}  // namespace lowbit_torch

int32_t lowbit_torch_swap_dependent_launch(int32_t enabled) { return std::exchange(lowbit_torch::dependent_launch, enabled != 0) ? 1 : 0; }
