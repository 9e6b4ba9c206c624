#include "core/packed.hpp"

#include <memory>

#include "api/handles.hpp"
#include "core/problem.hpp"

using namespace lowbit;
using namespace lowbit::api;

namespace {

constexpr const char* verb = "pack";

const core::QuantizedView& checked_view(const lowbit_context* context, const lowbit_quantized* quantized) {
    require_pointer(verb, "context", context);
    const core::QuantizedView& view = require_pointer(verb, "quantized", quantized)->view;
    core::check_quantized(verb, "quantized", view);
    if (context->context.device != Device::cpu || view.device != Device::cpu)
        core::fail(Status::unsupported, verb, ": only CPU weights and contexts can be packed by this version");
    return view;
}

std::unique_ptr<lowbit_packed> pack_at(const core::QuantizedView& view, std::byte* memory, int64_t bytes) {
    auto made = std::make_unique<lowbit_packed>();
    core::pack_rows(view, memory);
    made->data = memory;
    made->bytes = bytes;
    made->view = core::open_packed({memory, size_t(bytes)});
    return made;
}

}  // namespace

lowbit_status lowbit_pack_bytes(lowbit_context* context, const lowbit_quantized* quantized, int64_t* bytes) {
    return guard([&] {
        require_pointer(verb, "bytes", bytes);
        *bytes = core::packed_bytes(checked_view(context, quantized));
    });
}

lowbit_status lowbit_pack(lowbit_context* context, const lowbit_quantized* quantized, lowbit_packed** result) {
    return guard([&] {
        const core::QuantizedView& view = checked_view(context, quantized);
        require_pointer(verb, "result", result);
        core::Buffer memory(context->context.allocator, core::packed_bytes(view));
        auto made = pack_at(view, memory.data(), memory.bytes());
        made->memory = std::move(memory);
        *result = made.release();
    });
}

lowbit_status lowbit_pack_into(lowbit_context* context, const lowbit_quantized* quantized, void* memory, int64_t bytes,
                               lowbit_packed** result) {
    return guard([&] {
        const core::QuantizedView& view = checked_view(context, quantized);
        require_pointer(verb, "result", result);
        require_pointer(verb, "memory", memory);
        const int64_t needed = core::packed_bytes(view);
        core::require(bytes == needed, verb, ": bytes = ", bytes, "; this weight takes ", needed, " (lowbit_pack_bytes)");
        core::require(reinterpret_cast<uintptr_t>(memory) % 64 == 0, verb, ": memory stands at ", memory,
                      ", which is not aligned to 64 bytes");
        *result = pack_at(view, static_cast<std::byte*>(memory), bytes).release();
    });
}

lowbit_status lowbit_packed_data(const lowbit_packed* packed, const void** data, int64_t* bytes) {
    return guard([&] {
        require_pointer("packed_data", "packed", packed);
        *require_pointer("packed_data", "data", data) = packed->data;
        *require_pointer("packed_data", "bytes", bytes) = packed->bytes;
    });
}

lowbit_status lowbit_packed_borrow(const void* data, int64_t bytes, lowbit_packed** result) {
    return guard([&] {
        constexpr const char* name = "packed_borrow";
        require_pointer(name, "result", result);
        core::require(bytes >= 0, name, ": bytes = ", bytes, "; sizes cannot be negative");
        auto made = std::make_unique<lowbit_packed>();
        made->data = static_cast<const std::byte*>(require_pointer(name, "data", data));
        made->bytes = bytes;
        made->view = core::open_packed({made->data, size_t(bytes)});
        *result = made.release();
    });
}

lowbit_status lowbit_packed_describe(const lowbit_packed* packed, lowbit_format* format, int64_t* rows, int64_t* columns) {
    return guard([&] {
        constexpr const char* name = "packed_describe";
        const core::QuantizedView& view = require_pointer(name, "packed", packed)->view;
        require_pointer(name, "format", format);
        require_pointer(name, "rows", rows);
        require_pointer(name, "columns", columns);
        *format = from_format(view.format);
        *rows = view.rows;
        *columns = view.columns;
    });
}

void lowbit_packed_destroy(lowbit_packed* packed) { delete packed; }
