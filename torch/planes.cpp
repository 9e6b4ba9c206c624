#include "planes.hpp"

#include <torch/csrc/stable/ops.h>

namespace lowbit_torch {
namespace {

std::string print(const lowbit_format& format) {
    char text[64];
    check(lowbit_format_print(&format, text, sizeof(text)));
    return text;
}

// A plane in one piece on the right device, holding `bytes` in elements of `dtype` (or in plain bytes).
void* plane_data(const char* verb, const std::string& argument, std::optional<Tensor>& plane, int64_t bytes, int32_t dtype,
                 const Place& place, const lowbit_format& format) {
    const int64_t found = plane ? plane->numel() * int64_t(plane->element_size()) : 0;
    if (found != bytes)
        refuse(std::string(verb) + ": " + argument + " has " + std::to_string(found) + " bytes, but " + print(format) +
               " of this shape takes " + std::to_string(bytes));
    if (bytes == 0) return nullptr;
    require_place(verb, argument.c_str(), *plane, place, "the codes");
    const int32_t found_dtype = dtype_of(*plane);
    if (found_dtype != dtype && (aoti_torch_dtype_element_size(dtype) != 1 || found_dtype != aoti_torch_dtype_uint8()))
        refuse(std::string(verb) + ": " + argument + " has another dtype than the one that " + print(format) + " takes");
    if (!plane->is_contiguous()) plane = torch::stable::contiguous(*plane);
    return plane->data_ptr();
}

}  // namespace

Planes Planes::take(Stack& stack) {
    Planes planes;
    planes.codes = stack.tensor();
    planes.scales = stack.optional_tensor();
    planes.zeros = stack.optional_tensor();
    planes.tensor_scale = stack.optional_tensor();
    return planes;
}

void Planes::give(Stack& stack) const {
    stack.give(codes);
    stack.give(*scales);
    stack.give(*zeros);
    stack.give(*tensor_scale);
}

lowbit_format parse_format(const std::string& text) {
    lowbit_format format{};
    check(lowbit_format_parse(text.c_str(), &format));
    return format;
}

lowbit_format_sizes measure(const lowbit_format& format, int64_t rows, int64_t columns) {
    lowbit_format_sizes sizes = LOWBIT_FORMAT_SIZES_INIT;
    check(lowbit_format_measure(&format, rows, columns, &sizes));
    return sizes;
}

Planes allocate_planes(const lowbit_format& format, int64_t rows, int64_t columns, const Place& place) {
    const lowbit_format_sizes sizes = measure(format, rows, columns);
    const auto byte = aoti_torch_dtype_uint8();
    return {allocate({rows, sizes.row_bytes}, dtype_of_codes(format.element), place),
            allocate({sizes.scale_rows, sizes.scale_columns}, dtype_of_scales(format.scale), place),
            format.asymmetric ? allocate({sizes.scale_rows, sizes.scale_columns}, byte, place) : allocate({0, 0}, byte, place),
            allocate({sizes.tensor_scale_bytes / int64_t(sizeof(float))}, aoti_torch_dtype_float32(), place)};
}

lowbit_quantized_view view_planes(const char* verb, const char* argument, Planes& planes, const lowbit_format& format, int64_t columns) {
    const std::string prefix = std::string(argument) + (argument[0] ? "." : "");
    const int64_t rank = planes.codes.dim();
    if (rank == 0) refuse(std::string(verb) + ": " + prefix + "codes is a single number; use [rows, bytes of a row]");
    int64_t rows = 1;
    for (int64_t i = 0; i + 1 < rank; ++i) rows *= planes.codes.size(i);
    const lowbit_format_sizes sizes = measure(format, rows, columns);
    const int64_t row_bytes = planes.codes.size(rank - 1) * int64_t(planes.codes.element_size());
    if (row_bytes != sizes.row_bytes)
        refuse(std::string(verb) + ": " + prefix + "codes has rows of " + std::to_string(row_bytes) + " bytes, but " + print(format) +
               " with K = " + std::to_string(columns) + " takes " + std::to_string(sizes.row_bytes));

    const Place place = place_of(planes.codes);
    lowbit_quantized_view view = LOWBIT_QUANTIZED_VIEW_INIT;
    view.format = format;
    view.rows = rows;
    view.columns = columns;
    view.device = place.device;
    view.device_index = place.index;
    std::optional<Tensor> codes = planes.codes;
    view.codes = plane_data(verb, prefix + "codes", codes, sizes.code_bytes, dtype_of_codes(format.element), place, format);
    planes.codes = *codes;
    view.scales = plane_data(verb, prefix + "scales", planes.scales, sizes.scale_bytes, dtype_of_scales(format.scale), place, format);
    view.zero_points = static_cast<uint8_t*>(
        plane_data(verb, prefix + "zeros", planes.zeros, sizes.zero_point_bytes, aoti_torch_dtype_uint8(), place, format));
    view.tensor_scale = static_cast<float*>(plane_data(verb, prefix + "tensor_scale", planes.tensor_scale, sizes.tensor_scale_bytes,
                                                       aoti_torch_dtype_float32(), place, format));
    return view;
}

QuantizedPointer borrow(const lowbit_quantized_view& view) {
    lowbit_quantized* made = nullptr;
    check(lowbit_quantized_borrow(&view, &made));
    return QuantizedPointer(made);
}

PackedPointer borrow_packed(const char* verb, const Tensor& bytes, const lowbit_format& format, int64_t rows, int64_t columns,
                            int64_t layout) {
    if (!bytes.is_contiguous() || bytes.element_size() != 1) refuse(std::string(verb) + ": a packed weight is one run of uint8");
    const Place place = place_of(bytes);
    lowbit_packed_view view = LOWBIT_PACKED_VIEW_INIT;
    view.format = format;
    view.rows = rows;
    view.columns = columns;
    view.layout = lowbit_packed_layout(layout);
    view.data = bytes.data_ptr();
    view.bytes = bytes.numel();
    view.device = place.device;
    view.device_index = place.index;
    lowbit_packed* made = nullptr;
    check(lowbit_packed_borrow_view(&view, &made));
    return PackedPointer(made);
}

}  // namespace lowbit_torch
