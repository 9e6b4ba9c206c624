#include "core/problem.hpp"

#include <limits>
#include <vector>

#include "core/checks.hpp"

namespace lowbit::core {
namespace {

const char* device_name(Device device) { return device == Device::cuda ? "cuda" : "cpu"; }

std::vector<Extent> extents(const QuantizedView& view, const char* codes, const char* scales, const char* zero_points,
                            const char* tensor_scale) {
    const PlaneSizes sizes = view.format.measure(view.rows, view.columns);
    return {extent(codes, view.codes, sizes.code_bytes), extent(scales, view.scales, sizes.scale_bytes),
            extent(zero_points, view.zero_points, sizes.zero_point_bytes),
            extent(tensor_scale, view.tensor_scale, sizes.tensor_scale_bytes)};
}

void check_operand(const char* argument, const Operand& operand, const Context& context) {
    constexpr const char* verb = MatmulProblem::verb;
    if (operand.is_quantized) {
        check_quantized(verb, argument, operand.quantized);
        check_device(verb, argument, operand.quantized.device, operand.quantized.device_index, context);
    } else {
        check_tensor(verb, argument, operand.tensor, false);
        require_float(verb, argument, operand.tensor.element);
        check_device(verb, argument, operand.tensor.device, operand.tensor.device_index, context);
    }
}

void check_vector(const char* argument, const std::optional<Tensor>& vector, int64_t length, const char* axis, const Context& context) {
    if (!vector) return;
    constexpr const char* verb = MatmulProblem::verb;
    check_tensor(verb, argument, *vector, false);
    require(vector->rows == 1 && vector->columns == length, verb, ": ", argument, " has ", vector->rows * vector->columns,
            " values, but y has ", axis, " = ", length);
    check_device(verb, argument, vector->device, vector->device_index, context);
}

int64_t largest_magnitude(Element element) {
    switch (element) {
    case Element::int8: return 128;
    case Element::uint8: return 255;
    case Element::int4: return 8;
    case Element::uint4: return 15;
    default: return 1;
    }
}

void check_output_type(const MatmulProblem& problem) {
    constexpr const char* verb = MatmulProblem::verb;
    const Element element = problem.y.element;
    require(is_float(element) || element == Element::int8 || element == Element::int32, verb, ": y is ", element_name(element),
            "; use fp32, fp16, bf16, int8 or int32");
    const float output_scale = problem.epilogue.output_scale;
    if (element == Element::int8)
        require(output_scale > 0 && is_finite(output_scale), verb, ": output_scale = ", output_scale,
                "; int8 output needs a positive number");
    require(is_float(element) || problem.epilogue.beta == 0.0f, verb, ": beta = ", problem.epilogue.beta, " but y is ",
            element_name(element), "; what is added to must be fp32, fp16 or bf16");
    if (element != Element::int32) return;
    const Format x = problem.x.format(), weight = problem.weight.format();
    require(x.is_integer() && weight.is_integer(), verb, ": y is int32, but x is ", x.print(), " and weight is ", weight.print(),
            "; raw products need integer codes on both sides");
    require(problem.epilogue.is_identity(), verb, ": y is int32, the raw product; it takes no scale, bias, activation, gate or beta");
    const int64_t most = largest_exact_k(x, weight);
    require(problem.k() <= most, verb, ": K = ", problem.k(), " may overflow an int32 product of ", x.print(), " and ", weight.print(),
            "; use K <= ", most, " or a floating output");
}

}  // namespace

Format Operand::format() const {
    if (is_quantized) return quantized.format;
    Format plain;
    plain.element = tensor.element;
    return plain;
}

ConvertProblem ConvertProblem::in_order() const {
    ConvertProblem made = *this;
    if (y.rows > 1 && y.row_stride < y.column_stride) made.x = x.transposed(), made.y = y.transposed();
    const auto is_contiguous = [](const Tensor& t) { return t.rows_are_contiguous() && (t.row_stride == t.columns || t.rows <= 1); };
    if (is_contiguous(made.x) && is_contiguous(made.y))
        for (Tensor* side : {&made.x, &made.y}) side->columns *= side->rows, side->rows = 1, side->column_stride = 1;
    return made;
}

int64_t largest_exact_k(const Format& x, const Format& weight) {
    return std::numeric_limits<int32_t>::max() / (largest_magnitude(x.element) * largest_magnitude(weight.element));
}

void check_device(const char* verb, const char* argument, Device device, int index, const Context& context) {
    require(device == context.device && (device == Device::cpu || index == context.device_index), verb, ": ", argument, " is on ",
            device_name(device), ":", index, ", but the context is on ", device_name(context.device), ":", context.device_index,
            "; use memory of the context's device");
}

void check_tensor(const char* verb, const char* argument, const Tensor& t, bool written) {
    require(t.rows >= 0 && t.columns >= 0, verb, ": ", argument, " has shape ", t.rows, " x ", t.columns, "; sizes cannot be negative");
    const int bytes = element_bytes(t.element);
    require(bytes > 0 && t.element != Element::e8m0, verb, ": ", argument, " has element type ", int(t.element),
            "; use fp32, fp16, bf16, int8 or int32");
    if (t.rows == 0 || t.columns == 0) return;
    require(t.data != nullptr, verb, ": ", argument, " is a null pointer, but has shape ", t.rows, " x ", t.columns);
    require(reinterpret_cast<uintptr_t>(t.data) % uintptr_t(bytes) == 0, verb, ": ", argument, " stands at address ", t.data,
            ", which is not aligned to its ", bytes, "-byte elements");
    require(t.row_stride >= 0 && t.column_stride >= 0, verb, ": ", argument, " has strides ", t.row_stride, ", ", t.column_stride,
            "; use strides >= 0, counted in elements");
    const int64_t last = checked_add(checked_multiply(t.rows - 1, t.row_stride, argument),
                                     checked_multiply(t.columns - 1, t.column_stride, argument), argument);
    checked_multiply(checked_add(last, 1, argument), bytes, argument);
    if (!written) return;
    const int64_t inner = t.column_stride, outer = t.row_stride;
    const bool rows_apart = t.rows == 1 || outer >= (t.columns - 1) * inner + 1;
    const bool columns_apart = t.columns == 1 || inner >= 1;
    const bool transposed = (t.columns == 1 || inner >= (t.rows - 1) * outer + 1) && (t.rows == 1 || outer >= 1);
    require((rows_apart && columns_apart) || transposed, verb, ": ", argument, " has strides ", outer, ", ", inner, " with shape ", t.rows,
            " x ", t.columns, ", so its elements overlap; an output needs distinct elements");
}

void check_quantized(const char* verb, const char* argument, const QuantizedView& view) {
    view.format.check();
    const PlaneSizes sizes = view.format.measure(view.rows, view.columns);
    const std::string name = view.format.print();
    const auto plane = [&](const char* part, const void* data, int64_t bytes, int alignment) {
        require(bytes == 0 || data != nullptr, verb, ": ", argument, ".", part, " is a null pointer, but ", name, " of ", view.rows, " x ",
                view.columns, " needs ", bytes, " bytes there");
        require(reinterpret_cast<uintptr_t>(data) % uintptr_t(alignment) == 0, verb, ": ", argument, ".", part, " stands at address ", data,
                ", which is not aligned to ", alignment, " bytes");
    };
    // fp32, fp16 and bf16 codes are numbers of their own width; blocks and narrow codes are bytes.
    plane("codes", view.codes, sizes.code_bytes, view.format.is_plain() ? element_bytes(view.format.element) : 1);
    const bool unscaled = view.device == Device::cuda && view.format.granularity == Granularity::tensor && !view.scales;
    if (!unscaled) plane("scales", view.scales, sizes.scale_bytes, sizes.scale_bytes ? element_bytes(view.format.scale) : 1);
    plane("zero_points", view.zero_points, sizes.zero_point_bytes, 1);
    plane("tensor_scale", view.tensor_scale, sizes.tensor_scale_bytes, sizes.tensor_scale_bytes ? 4 : 1);
}

void check(const QuantizeProblem& problem) {
    constexpr const char* verb = QuantizeProblem::verb;
    check_tensor(verb, "x", problem.x, false);
    require_float(verb, "x", problem.x.element);
    check_device(verb, "x", problem.x.device, problem.x.device_index, *problem.context);
    check_quantized(verb, "destination", problem.result);
    check_device(verb, "destination", problem.result.device, problem.result.device_index, *problem.context);
    require(problem.result.rows == problem.x.rows && problem.result.columns == problem.x.columns, verb, ": destination is ",
            problem.result.rows, " x ", problem.result.columns, " but x is ", problem.x.rows, " x ", problem.x.columns);
    const std::vector<Extent> written =
        extents(problem.result, "destination.codes", "destination.scales", "destination.zero_points", "destination.tensor_scale");
    for (size_t i = 0; i < written.size(); ++i) {
        refuse_overlap(verb, written[i], extent("x", problem.x));
        for (size_t j = 0; j < i; ++j) refuse_overlap(verb, written[i], written[j]);
    }
}

void check(const DequantizeProblem& problem) {
    constexpr const char* verb = DequantizeProblem::verb;
    check_quantized(verb, "x", problem.x);
    check_device(verb, "x", problem.x.device, problem.x.device_index, *problem.context);
    check_tensor(verb, "y", problem.y, true);
    require_float(verb, "y", problem.y.element);
    check_device(verb, "y", problem.y.device, problem.y.device_index, *problem.context);
    require(problem.y.rows == problem.x.rows && problem.y.columns == problem.x.columns, verb, ": y is ", problem.y.rows, " x ",
            problem.y.columns, " but x is ", problem.x.rows, " x ", problem.x.columns);
    for (const Extent& read : extents(problem.x, "x.codes", "x.scales", "x.zero_points", "x.tensor_scale"))
        refuse_overlap(verb, extent("y", problem.y), read);
}

void check(const ConvertProblem& problem) {
    constexpr const char* verb = ConvertProblem::verb;
    for (const auto& [name, tensor] : {std::pair{"x", &problem.x}, std::pair{"y", &problem.y}}) {
        check_tensor(verb, name, *tensor, tensor == &problem.y);
        const Element element = tensor->element;
        require(is_float(element) || element == Element::fp8_e4m3 || element == Element::fp8_e5m2, verb, ": ", name, " is ",
                element_name(element), "; use fp32, fp16, bf16, fp8_e4m3 or fp8_e5m2");
        check_device(verb, name, tensor->device, tensor->device_index, *problem.context);
    }
    require(problem.y.rows == problem.x.rows && problem.y.columns == problem.x.columns, verb, ": y is ", problem.y.rows, " x ",
            problem.y.columns, " but x is ", problem.x.rows, " x ", problem.x.columns);
    refuse_overlap(verb, extent("y", problem.y), extent("x", problem.x));
}

void check(const MatmulProblem& problem) {
    constexpr const char* verb = MatmulProblem::verb;
    const Context& context = *problem.context;
    check_operand("x", problem.x, context);
    check_operand("weight", problem.weight, context);
    check_tensor(verb, "y", problem.y, true);
    check_device(verb, "y", problem.y.device, problem.y.device_index, context);
    require(context.device == Device::cuda || problem.weight.quantized.layout == PackedLayout::rows, verb,
            ": weight is packed for CUDA kernels; unpack it, or pack it for the CPU");
    require(problem.weight.columns() == problem.x.columns(), verb, ": weight has k = ", problem.weight.columns(),
            " but x has k = ", problem.x.columns());
    const bool gate = problem.epilogue.gate;
    const int64_t rows = problem.weight.rows();
    require(!gate || rows % 2 == 0, verb, ": weight has ", rows, " rows, but a gate takes two halves; use an even number");
    require(problem.y.rows == problem.x.rows() && problem.y.columns == (gate ? rows / 2 : rows), verb, ": y is ", problem.y.rows, " x ",
            problem.y.columns, " but x . weight^T is ", problem.x.rows(), " x ", rows,
            gate ? join(", which a gate makes ", problem.x.rows(), " x ", rows / 2) : "");
    check_vector("bias", problem.epilogue.bias, rows, gate ? "2N" : "N", context);
    check_vector("row_scale", problem.epilogue.row_scale, problem.m(), "M", context);
    check_vector("column_scale", problem.epilogue.column_scale, rows, gate ? "2N" : "N", context);
    if (problem.epilogue.bias) require_float(verb, "bias", problem.epilogue.bias->element);
    for (const auto& [name, scale] :
         {std::pair{"row_scale", &problem.epilogue.row_scale}, std::pair{"column_scale", &problem.epilogue.column_scale}})
        if (*scale) require((*scale)->element == Element::fp32, verb, ": ", name, " is ", element_name((*scale)->element), "; use fp32");
    require(int(problem.epilogue.activation) >= 0 && int(problem.epilogue.activation) <= int(Activation::silu), verb, ": activation ",
            int(problem.epilogue.activation), " is unknown; use none, relu, gelu, gelu_tanh or silu");
    check_output_type(problem);
    const Extent y = extent("y", problem.y);
    const auto refuse_operand = [&](const char* name, const Operand& operand) {
        if (!operand.is_quantized) return refuse_overlap(verb, y, extent(name, operand.tensor));
        for (const Extent& read : extents(operand.quantized, name, name, name, name)) refuse_overlap(verb, y, read);
    };
    refuse_operand("x", problem.x);
    refuse_operand("weight", problem.weight);
    if (problem.epilogue.bias) refuse_overlap(verb, y, extent("bias", *problem.epilogue.bias));
    if (problem.epilogue.row_scale) refuse_overlap(verb, y, extent("row_scale", *problem.epilogue.row_scale));
    if (problem.epilogue.column_scale) refuse_overlap(verb, y, extent("column_scale", *problem.epilogue.column_scale));
}

}  // namespace lowbit::core
