#include "api/handles.hpp"

#include <algorithm>

namespace lowbit::api {

namespace {
thread_local std::string last_error;
}

lowbit_status report(Status status, const char* text) noexcept {
    try {
        last_error = text;
    } catch (...) {
        last_error.clear();
    }
    return lowbit_status(status);
}

core::Format to_format(const lowbit_format& f) {
    core::Format format{Element(f.element), Granularity(f.granularity), Element(f.scale), f.asymmetric != 0, f.group_columns, f.group_rows};
    format.check();
    return format;
}

lowbit_format from_format(const core::Format& f) {
    return {
        lowbit_element(f.element), lowbit_granularity(f.granularity), lowbit_element(f.scale), f.asymmetric, f.group_columns, f.group_rows};
}

core::Tensor to_tensor(const char* verb, const char* argument, const lowbit_tensor& t) {
    core::require(t.size == sizeof(lowbit_tensor), verb, ": ", argument, ".size = ", t.size, "; start from LOWBIT_TENSOR_INIT");
    core::require(t.rank == 1 || t.rank == 2, verb, ": ", argument, " has rank ", t.rank, "; use 1 or 2");
    core::require(t.device == LOWBIT_CPU || t.device == LOWBIT_CUDA, verb, ": ", argument, ".device = ", int(t.device),
                  "; use LOWBIT_CPU or LOWBIT_CUDA");
    core::Tensor tensor;
    tensor.data = t.data;
    tensor.element = Element(t.element);
    tensor.rows = t.rank == 2 ? t.shape[0] : 1;
    tensor.columns = t.shape[t.rank - 1];
    tensor.row_stride = t.rank == 2 ? t.strides[0] : 0;
    tensor.column_stride = t.strides[t.rank - 1];
    tensor.device = Device(t.device);
    tensor.device_index = t.device_index;
    return tensor;
}

core::QuantizedView to_view(const char* verb, const char* argument, const lowbit_quantized_view* given) {
    const lowbit_quantized_view v = read_sized(verb, argument, given, lowbit_quantized_view LOWBIT_QUANTIZED_VIEW_INIT);
    core::QuantizedView view;
    view.format = to_format(v.format);
    view.rows = v.rows;
    view.columns = v.columns;
    view.codes = static_cast<uint8_t*>(v.codes);
    view.scales = v.scales;
    view.zero_points = v.zero_points;
    view.tensor_scale = v.tensor_scale;
    view.device = Device(v.device);
    view.device_index = v.device_index;
    return view;
}

lowbit_quantized_view from_view(const core::QuantizedView& view) {
    return {sizeof(lowbit_quantized_view),
            from_format(view.format),
            view.rows,
            view.columns,
            view.codes,
            view.scales,
            view.zero_points,
            view.tensor_scale,
            lowbit_device(view.device),
            view.device_index};
}

namespace {

constexpr int64_t plane_alignment = 64;

int64_t padded(int64_t bytes) { return core::ceil_div(bytes, plane_alignment) * plane_alignment; }

int64_t planes_bytes(const core::PlaneSizes& sizes) {
    core::checked_add(sizes.total(), 4 * plane_alignment, "quantized bytes");
    return padded(sizes.code_bytes) + padded(sizes.scale_bytes) + padded(sizes.zero_point_bytes) + sizes.tensor_scale_bytes;
}

core::QuantizedView planes_at(const core::Context& context, const core::Format& format, int64_t rows, int64_t columns, std::byte* memory) {
    const core::PlaneSizes sizes = format.measure(rows, columns);
    auto* next = reinterpret_cast<uint8_t*>(memory);
    const auto take = [&](int64_t bytes) -> uint8_t* {
        if (bytes == 0) return nullptr;
        uint8_t* plane = next;
        next += padded(bytes);
        return plane;
    };
    core::QuantizedView view;
    view.format = format;
    view.rows = rows;
    view.columns = columns;
    view.codes = take(sizes.code_bytes);
    view.scales = take(sizes.scale_bytes);
    view.zero_points = take(sizes.zero_point_bytes);
    view.tensor_scale = reinterpret_cast<float*>(take(sizes.tensor_scale_bytes));
    view.device = context.device;
    view.device_index = context.device_index;
    return view;
}

}  // namespace

lowbit_quantized allocate_quantized(const core::Context& context, const core::Format& format, int64_t rows, int64_t columns) {
    lowbit_quantized result;
    result.memory = core::Buffer(context.allocator, planes_bytes(format.measure(rows, columns)));
    result.view = planes_at(context, format, rows, columns, result.memory.data());
    return result;
}

core::QuantizedView quantized_planes(const core::Context& context, const core::Format& format, int64_t rows, int64_t columns,
                                     core::Scratch& scratch) {
    return planes_at(context, format, rows, columns, scratch.take(planes_bytes(format.measure(rows, columns))));
}

void copy_text(const char* verb, const std::string& text, char* destination, size_t capacity, size_t* length) {
    core::require(destination != nullptr || capacity == 0, verb, ": text is a null pointer, but capacity is ", capacity);
    if (length) *length = text.size();
    if (capacity == 0) return;
    const size_t count = std::min(text.size(), capacity - 1);
    std::memcpy(destination, text.data(), count);
    destination[count] = 0;
}

}  // namespace lowbit::api

using namespace lowbit;
using namespace lowbit::api;

const char* lowbit_version(void) { return LOWBIT_VERSION_STRING; }

const char* lowbit_last_error(void) { return last_error.c_str(); }

const char* lowbit_status_string(lowbit_status status) {
    switch (Status(status)) {
    case Status::ok: return "ok";
    case Status::invalid_argument: return "invalid argument";
    case Status::unsupported: return "unsupported";
    case Status::out_of_memory: return "out of memory";
    case Status::device_error: return "device error";
    case Status::io_error: return "input/output error";
    case Status::internal_error: return "internal error";
    }
    return "unknown status";
}
