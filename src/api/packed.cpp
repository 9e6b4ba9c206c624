#include "core/packed.hpp"

#include <cstring>
#include <memory>

#include "api/handles.hpp"
#include "core/problem.hpp"
#include "cuda/memory.hpp"

using namespace lowbit;
using namespace lowbit::api;

namespace {

constexpr const char* verb = "pack";

const core::QuantizedView& checked_view(const lowbit_context* context, const lowbit_quantized* quantized) {
    require_pointer(verb, "context", context);
    const core::QuantizedView& view = require_pointer(verb, "quantized", quantized)->view;
    core::check_quantized(verb, "quantized", view);
    core::check_device(verb, "quantized", view.device, view.device_index, context->context);
    return view;
}

int64_t needed_bytes(const core::Context& context, const core::QuantizedView& view) {
    return core::packed_bytes(view.format, core::packed_layout(view.format, context.device), view.rows, view.columns);
}

std::unique_ptr<lowbit_packed> describe(const core::Context& context, const core::QuantizedView& view, std::byte* memory, int64_t bytes) {
    auto made = std::make_unique<lowbit_packed>();
    const core::PackedLayout layout = core::packed_layout(view.format, context.device);
    made->data = memory;
    made->bytes = bytes;
    made->view = core::packed_planes(view.format, layout, view.rows, view.columns, memory);
    made->view.device = context.device;
    made->view.device_index = context.device_index;
    return made;
}

std::unique_ptr<lowbit_packed> pack_at(const core::Context& context, const core::QuantizedView& view, std::byte* memory, int64_t bytes) {
    auto made = describe(context, view, memory, bytes);
    if (context.device == Device::cuda) {
        cuda::pack(context, view, made->view.layout, memory);
    } else {
        std::memset(memory, 0, size_t(bytes));  // the gaps between planes too: equal weights give equal bytes
        core::write_packed_header(made->view, memory);
        core::pack_planes(view, made->view);
    }
    return made;
}

uintptr_t alignment_on(Device device) { return device == Device::cuda ? uintptr_t(core::packed_alignment) : 64; }

}  // namespace

lowbit_status lowbit_pack_bytes(lowbit_context* context, const lowbit_quantized* quantized, int64_t* bytes) {
    return guard([&] {
        require_pointer(verb, "bytes", bytes);
        const core::QuantizedView& view = checked_view(context, quantized);
        *bytes = needed_bytes(context->context, view);
    });
}

lowbit_status lowbit_pack(lowbit_context* context, const lowbit_quantized* quantized, lowbit_packed** result) {
    return guard([&] {
        const core::QuantizedView& view = checked_view(context, quantized);
        require_pointer(verb, "result", result);
        core::Buffer memory(context->context.allocator, needed_bytes(context->context, view));
        auto made = pack_at(context->context, view, memory.data(), memory.bytes());
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
        const int64_t needed = needed_bytes(context->context, view);
        const uintptr_t alignment = alignment_on(context->context.device);
        core::require(bytes == needed, verb, ": bytes = ", bytes, "; this weight takes ", needed, " (lowbit_pack_bytes)");
        core::require(reinterpret_cast<uintptr_t>(memory) % alignment == 0, verb, ": memory stands at ", memory,
                      ", which is not aligned to ", alignment, " bytes");
        *result = pack_at(context->context, view, static_cast<std::byte*>(memory), bytes).release();
    });
}

lowbit_status lowbit_pack_layout(lowbit_context* context, const lowbit_format* format, lowbit_packed_layout* layout) {
    return guard([&] {
        require_pointer(verb, "context", context);
        require_pointer(verb, "layout", layout);
        const core::Format known = to_format(*require_pointer(verb, "format", format));
        *layout = lowbit_packed_layout(core::packed_layout(known, context->context.device));
    });
}

lowbit_status lowbit_unpack(lowbit_context* context, const lowbit_packed* packed, const lowbit_quantized_view* destination) {
    return guard([&] {
        constexpr const char* name = "unpack";
        require_pointer(name, "context", context);
        const core::QuantizedView& from = require_pointer(name, "packed", packed)->view;
        const core::QuantizedView to = to_view(name, "destination", destination);
        core::check_quantized(name, "destination", to);
        core::require(to.format == from.format && to.rows == from.rows && to.columns == from.columns, name, ": destination is ",
                      to.format.print(), " of ", to.rows, " x ", to.columns, ", but the weight is ", from.format.print(), " of ", from.rows,
                      " x ", from.columns);
        core::check_device(name, "packed", from.device, from.device_index, context->context);
        core::check_device(name, "destination", to.device, to.device_index, context->context);
        context->context.device == Device::cuda ? cuda::unpack(context->context, from, to) : core::unpack_planes(from, to);
    });
}

lowbit_status lowbit_packed_get_view(const lowbit_packed* packed, lowbit_packed_view* view) {
    return guard([&] {
        constexpr const char* name = "packed_get_view";
        const core::QuantizedView& found = require_pointer(name, "packed", packed)->view;
        require_pointer(name, "view", view);
        core::require(view->size == sizeof(lowbit_packed_view), name, ": view.size = ", view->size, "; start from LOWBIT_PACKED_VIEW_INIT");
        *view = {sizeof(lowbit_packed_view),
                 from_format(found.format),
                 found.rows,
                 found.columns,
                 lowbit_packed_layout(found.layout),
                 packed->data,
                 packed->bytes,
                 lowbit_device(found.device),
                 found.device_index};
    });
}

lowbit_status lowbit_packed_borrow_view(const lowbit_packed_view* given, lowbit_packed** result) {
    return guard([&] {
        constexpr const char* name = "packed_borrow_view";
        const lowbit_packed_view view = read_sized(name, "view", given, lowbit_packed_view LOWBIT_PACKED_VIEW_INIT);
        require_pointer(name, "result", result);
        require_pointer(name, "view.data", view.data);
        const core::Format format = to_format(view.format);
        const auto layout = core::PackedLayout(view.layout);
        core::require(view.device == LOWBIT_CPU || view.device == LOWBIT_CUDA, name, ": view.device = ", int(view.device),
                      "; use LOWBIT_CPU or LOWBIT_CUDA");
        core::require(layout == core::PackedLayout::rows || layout == core::packed_layout(format, Device::cuda), name,
                      ": view.layout = ", int(view.layout), "; ", format.print(), " has no such layout");
        const uintptr_t alignment = alignment_on(Device(view.device));
        core::require(reinterpret_cast<uintptr_t>(view.data) % alignment == 0, name, ": view.data stands at ", view.data,
                      ", which is not aligned to ", alignment, " bytes");
        const int64_t needed = core::packed_bytes(format, layout, view.rows, view.columns);
        core::require(view.bytes == needed, name, ": view.bytes = ", view.bytes, "; ", format.print(), " of ", view.rows, " x ",
                      view.columns, " takes ", needed);
        auto made = std::make_unique<lowbit_packed>();
        made->data = static_cast<std::byte*>(view.data);
        made->bytes = view.bytes;
        made->view = core::packed_planes(format, layout, view.rows, view.columns, made->data);
        made->view.device = Device(view.device);
        made->view.device_index = view.device_index;
        *result = made.release();
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
        made->data = const_cast<std::byte*>(static_cast<const std::byte*>(require_pointer(name, "data", data)));
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
