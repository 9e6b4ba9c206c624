// quantize and dequantize, pack and unpack.
#include "call.hpp"
#include "ops.hpp"
#include "planes.hpp"

namespace lowbit_torch {
namespace {

// Static scales: planes without codes, checked against the format by view_planes.
lowbit_quantized_view view_static_scales(Planes& given, const lowbit_format& format, int64_t rows, int64_t columns, const Place& place) {
    given.codes = allocate({rows, measure(format, rows, columns).row_bytes}, dtype_of_codes(format.element), place);
    return view_planes("quantize", "", given, format, columns);
}

}  // namespace

void quantize(StableIValue* values, uint64_t, uint64_t) {
    Stack stack(values);
    const Tensor x = stack.tensor();
    const std::string name = stack.text();
    Planes given;
    given.scales = stack.optional_tensor();
    given.zeros = stack.optional_tensor();
    given.tensor_scale = stack.optional_tensor();

    const lowbit_format format = parse_format(name);
    const Matrix matrix = as_matrix("quantize", "x", x);
    const int64_t rows = matrix.view.shape[0], columns = matrix.view.shape[1];
    const Place place = place_of(x);
    Call call(place);
    lowbit_quantize_args args = LOWBIT_QUANTIZE_ARGS_INIT;
    args.x = matrix.view;
    args.format = name.c_str();
    if (given.scales) {
        require_place("quantize", "scales", *given.scales, place, "x");
        const lowbit_quantized_view known = view_static_scales(given, format, rows, columns, place);
        args.scales = known.scales;
        args.zero_points = known.zero_points;
        args.tensor_scale = known.tensor_scale;
    }

    Planes made = allocate_planes(format, rows, columns, place);
    const lowbit_quantized_view destination = view_planes("quantize", "", made, format, columns);
    size_t workspace = 0;
    check(lowbit_quantize_workspace(call.context(), &args, &workspace));
    call.give_workspace(workspace);
    check(lowbit_quantize_into(call.context(), &args, &destination));
    made.give(stack);
}

void dequantize(StableIValue* values, uint64_t, uint64_t) {
    Stack stack(values);
    Planes planes = Planes::take(stack);
    const lowbit_format format = parse_format(stack.text());
    const int64_t columns = stack.integer();
    const int32_t dtype = stack.dtype();

    const lowbit_quantized_view view = view_planes("dequantize", "", planes, format, columns);
    const Place place = place_of(planes.codes);
    const Call call(place);
    const Tensor result = allocate(with_last_size(planes.codes, columns), dtype, place);
    const Matrix y = as_matrix("dequantize", "dtype", result);
    check(lowbit_dequantize(call.context(), borrow(view).get(), &y.view));
    stack.give(result);
}

void pack(StableIValue* values, uint64_t, uint64_t) {
    Stack stack(values);
    Planes planes = Planes::take(stack);
    const lowbit_format format = parse_format(stack.text());
    const int64_t columns = stack.integer();

    const QuantizedPointer quantized = borrow(view_planes("pack", "", planes, format, columns));
    const Place place = place_of(planes.codes);
    const Call call(place);
    int64_t bytes = 0;
    check(lowbit_pack_bytes(call.context(), quantized.get(), &bytes));
    const Tensor memory = allocate({bytes}, aoti_torch_dtype_uint8(), place);
    lowbit_packed* made = nullptr;
    check(lowbit_pack_into(call.context(), quantized.get(), memory.data_ptr(), bytes, &made));
    lowbit_packed_destroy(made);  // the handle, not the bytes
    stack.give(memory);
}

void unpack(StableIValue* values, uint64_t, uint64_t) {
    Stack stack(values);
    const Tensor packed = stack.tensor();
    const lowbit_format format = parse_format(stack.text());
    const int64_t rows = stack.integer();
    const int64_t columns = stack.integer();
    const int64_t layout = stack.integer();

    const Place place = place_of(packed);
    const Call call(place);
    const PackedPointer handle = borrow_packed("unpack", packed, format, rows, columns, layout);
    Planes planes = allocate_planes(format, rows, columns, place);
    const lowbit_quantized_view destination = view_planes("unpack", "", planes, format, columns);
    check(lowbit_unpack(call.context(), handle.get(), &destination));
    planes.give(stack);
}

}  // namespace lowbit_torch
