#include <memory>

#include "api/handles.hpp"
#include "core/registry.hpp"
#include "cuda/devices.hpp"
#include "cuda/memory.hpp"

using namespace lowbit;
using namespace lowbit::api;

lowbit_status lowbit_context_create_cpu(lowbit_context** context) {
    return guard([&] {
        require_pointer("context_create_cpu", "context", context);
        *context = std::make_unique<lowbit_context>().release();
    });
}

lowbit_status lowbit_context_create_cuda(int32_t device_index, void* stream, lowbit_context** context) {
    return guard([&] {
        constexpr const char* verb = "context_create_cuda";
        require_pointer(verb, "context", context);
        const cuda::DeviceList& list = cuda::devices();
        if (list.devices.empty()) core::fail(Status::unsupported, verb, ": ", list.problem);
        core::require(device_index >= 0 && size_t(device_index) < list.devices.size(), verb, ": device_index = ", device_index,
                      "; this machine has devices 0 to ", list.devices.size() - 1);
        auto made = std::make_unique<lowbit_context>();
        made->context.device = Device::cuda;
        made->context.device_index = device_index;
        made->context.stream = stream;
        made->context.allocator = cuda::device_allocator(device_index);
        *context = made.release();
    });
}

void lowbit_context_destroy(lowbit_context* context) { delete context; }

lowbit_status lowbit_context_set_threads(lowbit_context* context, int32_t threads) {
    return guard([&] { require_pointer("context_set_threads", "context", context)->context.set_threads(threads); });
}

lowbit_status lowbit_context_get_threads(const lowbit_context* context, int32_t* threads) {
    return guard([&] {
        require_pointer("context_get_threads", "context", context);
        *require_pointer("context_get_threads", "threads", threads) = context->context.threads();
    });
}

lowbit_status lowbit_context_set_kernel(lowbit_context* context, const char* name) {
    return guard([&] {
        require_pointer("context_set_kernel", "context", context);
        const std::string kernel = name ? name : "";
        core::require(kernel.empty() || core::registry().knows(kernel), "context_set_kernel: kernel \"", kernel,
                      "\" is unknown; `lowbit info` lists the kernels of this build");
        context->context.force_kernel(kernel);
    });
}

lowbit_status lowbit_context_set_allocator(lowbit_context* context, const lowbit_allocator* allocator) {
    return guard([&] {
        constexpr const char* verb = "context_set_allocator";
        require_pointer(verb, "context", context);
        const lowbit_allocator given = read_sized(verb, "allocator", allocator, lowbit_allocator{});
        core::require(given.allocate != nullptr && given.release != nullptr, verb,
                      ": allocator.allocate and allocator.release must both be set");
        context->context.allocator = {given.allocate, given.release, given.user};
    });
}

lowbit_status lowbit_context_set_stream(lowbit_context* context, void* stream) {
    return guard([&] {
        constexpr const char* verb = "context_set_stream";
        core::Context& found = require_pointer(verb, "context", context)->context;
        core::require(found.device == Device::cuda, verb, ": the context is on cpu, which has no streams");
        found.stream = stream;
    });
}

lowbit_status lowbit_context_set_dependent_launch(lowbit_context* context, int32_t enabled) {
    return guard([&] {
        constexpr const char* verb = "context_set_dependent_launch";
        core::Context& found = require_pointer(verb, "context", context)->context;
        core::require(enabled == 0 || enabled == 1, verb, ": enabled = ", enabled, "; use 0 or 1");
        found.dependent_launch = enabled == 1;
    });
}

lowbit_status lowbit_context_get_dependent_launch(const lowbit_context* context, int32_t* enabled) {
    return guard([&] {
        constexpr const char* verb = "context_get_dependent_launch";
        require_pointer(verb, "context", context);
        *require_pointer(verb, "enabled", enabled) = context->context.dependent_launch ? 1 : 0;
    });
}

lowbit_status lowbit_context_set_workspace(lowbit_context* context, void* memory, size_t bytes) {
    return guard([&] {
        constexpr const char* verb = "context_set_workspace";
        core::Context& found = require_pointer(verb, "context", context)->context;
        core::require(memory != nullptr || bytes == 0, verb, ": memory is a null pointer, but bytes is ", bytes);
        core::require(reinterpret_cast<uintptr_t>(memory) % uintptr_t(core::workspace_alignment) == 0, verb, ": memory stands at ", memory,
                      ", which is not aligned to ", core::workspace_alignment, " bytes");
        core::require(bytes <= size_t(INT64_MAX), verb, ": bytes = ", bytes, " is more than any memory");
        found.workspace = static_cast<std::byte*>(memory);
        found.workspace_bytes = int64_t(bytes);
    });
}
