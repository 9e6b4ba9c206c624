#include "api/matmul.hpp"

#include "api/quantized.hpp"
#include "core/registry.hpp"

using namespace lowbit;
using namespace lowbit::api;

namespace lowbit::api {
namespace {

constexpr const char* verb = core::MatmulProblem::verb;

// The arguments as a problem, with the memory of operands that are made on the way.
struct MatmulCall {
    core::MatmulProblem problem;
    core::Buffer copies[2];                   // int8 operands that do not lie in whole rows
    std::optional<core::Tensor> to_quantize;  // x, when x_format is given
    lowbit_quantized quantized_x;
};

// int8 numbers in the codes' layout: as they are, or copied into whole rows.
core::Operand int8_operand(const core::Context& context, const char* argument, const core::Tensor& tensor, core::Buffer& copy) {
    core::check_tensor(verb, argument, tensor, false);
    if (tensor.rows_are_contiguous() && (tensor.row_stride == tensor.columns || tensor.rows <= 1))
        return unscaled_codes(Element::int8, tensor.data, tensor.rows, tensor.columns);
    if (context.device != Device::cpu || tensor.device != Device::cpu)
        core::fail(Status::unsupported, verb, ": ", argument, " is int8 with strides ", tensor.row_stride, ", ", tensor.column_stride,
                   "; on a GPU use contiguous rows");
    copy = core::Buffer(context.allocator, core::checked_multiply(tensor.rows, tensor.columns, argument));
    auto* bytes = reinterpret_cast<int8_t*>(copy.data());
    for (int64_t row = 0; row < tensor.rows; ++row)
        for (int64_t column = 0; column < tensor.columns; ++column)
            bytes[row * tensor.columns + column] = static_cast<const int8_t*>(tensor.data)[tensor.offset(row, column)];
    return unscaled_codes(Element::int8, bytes, tensor.rows, tensor.columns);
}

core::Operand to_operand(const core::Context& context, const char* argument, const lowbit_operand& given, core::Buffer& copy) {
    const int count = (given.tensor != nullptr) + (given.quantized != nullptr) + (given.packed != nullptr);
    core::require(count == 1, verb, ": ", argument, " sets ", count, " of tensor, quantized and packed; set exactly one");
    core::Operand operand;
    if (given.tensor) {
        operand.tensor = to_tensor(verb, argument, *given.tensor);
        if (operand.tensor.element == Element::int8) return int8_operand(context, argument, operand.tensor, copy);
        return operand;
    }
    operand.is_quantized = true;
    operand.quantized = given.quantized ? given.quantized->view : given.packed->view;
    return operand;
}

std::optional<core::Tensor> to_vector(const char* argument, const lowbit_tensor* given) {
    if (!given) return std::nullopt;
    core::Tensor tensor = to_tensor(verb, argument, *given);
    return tensor;
}

void read(const lowbit_context* handle, const lowbit_matmul_args* given, MatmulCall& call) {
    const core::Context& context = require_pointer(verb, "context", handle)->context;
    const lowbit_matmul_args args = read_sized(verb, "args", given, lowbit_matmul_args LOWBIT_MATMUL_ARGS_INIT);
    core::MatmulProblem& problem = call.problem;
    problem.context = &context;
    core::require(args.x.packed == nullptr, verb, ": x is packed; only the weight can be");
    problem.x = to_operand(context, "x", args.x, call.copies[0]);
    problem.weight = to_operand(context, "weight", args.weight, call.copies[1]);
    problem.y = to_tensor(verb, "y", args.y);
    problem.epilogue = {args.scale,
                        args.output_scale,
                        Activation(args.activation),
                        to_vector("bias", args.bias),
                        to_vector("row_scale", args.row_scale),
                        to_vector("column_scale", args.column_scale)};
    if (args.x_format) {
        core::require(!problem.x.is_quantized, verb, ": x_format = \"", args.x_format, "\", but x is quantized already");
        core::check_tensor(verb, "x", problem.x.tensor, false);
        call.to_quantize = problem.x.tensor;
        call.quantized_x = allocate_quantized(context, core::Format::parse(args.x_format), problem.x.rows(), problem.x.columns());
        problem.x.is_quantized = true;
        problem.x.quantized = call.quantized_x.view;
    }
    core::check(problem);
}

}  // namespace

core::Operand unscaled_codes(Element element, const void* codes, int64_t rows, int64_t columns) {
    static float one = 1.0f;
    core::Operand operand;
    operand.is_quantized = true;
    operand.quantized.format.element = element;
    operand.quantized.format.granularity = Granularity::tensor;
    operand.quantized.rows = rows;
    operand.quantized.columns = columns;
    operand.quantized.codes = static_cast<uint8_t*>(const_cast<void*>(codes));  // operands are only read
    operand.quantized.scales = &one;
    return operand;
}

void run_matmul(const core::MatmulProblem& problem) {
    core::check(problem);
    core::run(problem);
}

}  // namespace lowbit::api

lowbit_status lowbit_matmul(lowbit_context* context, const lowbit_matmul_args* args) {
    return guard([&] {
        MatmulCall call;
        read(context, args, call);
        if (call.to_quantize) quantize_tensor(*call.problem.context, *call.to_quantize, call.quantized_x.view);
        core::run(call.problem);
    });
}

lowbit_status lowbit_explain(lowbit_context* context, const lowbit_matmul_args* args, char* text, size_t capacity, size_t* length) {
    return guard([&] {
        MatmulCall call;
        read(context, args, call);
        copy_text("explain", core::choose(call.problem).text(), text, capacity, length);
    });
}
