#include "api/matmul.hpp"

#include "api/quantized.hpp"
#include "core/gate.hpp"
#include "cuda/memory.hpp"

using namespace lowbit;
using namespace lowbit::api;

namespace lowbit::api {
namespace {

constexpr const char* verb = core::MatmulProblem::verb;

// The arguments as a problem, and what must be made before it can run: operands that do not lie as kernels read them.
struct MatmulCall {
    core::MatmulProblem problem;
    std::optional<core::Tensor> to_quantize;  // x, when x_format is given
    struct Gather {
        core::Tensor from;
        std::byte* to;
    };
    std::vector<Gather> gathers;                  // int8 tensors that do not lie in whole rows
    std::optional<core::ConvertProblem> to_rows;  // a weight of 16 bits that does not, for a GPU
};

void gather(const core::Context& context, const MatmulCall::Gather& gather) {
    const core::Tensor& from = gather.from;
    if (context.device == Device::cuda) return cuda::gather_bytes(context, from, gather.to);
    for (int64_t row = 0; row < from.rows; ++row)
        for (int64_t column = 0; column < from.columns; ++column)
            gather.to[row * from.columns + column] = static_cast<const std::byte*>(from.data)[from.offset(row, column)];
}

// int8 numbers in the codes' layout: as they are, or to be gathered into whole rows.
core::Operand int8_operand(const core::Context& context, const char* argument, const core::Tensor& tensor, MatmulCall& call,
                           core::Scratch& scratch) {
    core::check_tensor(verb, argument, tensor, false);
    const bool whole_rows = tensor.rows_are_contiguous() && (tensor.row_stride == tensor.columns || tensor.rows <= 1);
    if (whole_rows) return unscaled_codes(Element::int8, tensor.data, tensor.rows, tensor.columns, tensor.device, tensor.device_index);
    core::require(tensor.device == context.device && tensor.device_index == context.device_index, verb, ": ", argument,
                  " is not on the context's device");
    call.gathers.push_back({tensor, scratch.take(core::checked_multiply(tensor.rows, tensor.columns, argument))});
    return unscaled_codes(Element::int8, call.gathers.back().to, tensor.rows, tensor.columns, tensor.device, tensor.device_index);
}

// Kernels for tensor cores read a weight along K in pieces of 16 bytes: one that lies as [K,N] is turned over once, before the product. Not
// with dependent launch, where a product may read its weight before the launch in front of it has ended.
void weight_in_rows(const core::Context& context, core::Operand& weight, MatmulCall& call, core::Scratch& scratch) {
    core::Tensor& tensor = weight.tensor;
    const bool narrow = tensor.element == Element::fp16 || tensor.element == Element::bf16;
    if (weight.is_quantized || !narrow || tensor.rows_are_contiguous()) return;
    if (context.device != Device::cuda || context.dependent_launch) return;
    core::check_tensor(verb, "weight", tensor, false);
    core::check_device(verb, "weight", tensor.device, tensor.device_index, context);
    core::Tensor rows = tensor;
    rows.row_stride = core::checked_add(tensor.columns, 7, "weight") / 8 * 8, rows.column_stride = 1;
    rows.data = scratch.take(core::checked_multiply(core::checked_multiply(rows.rows, rows.row_stride, "weight"), 2, "weight"));
    call.to_rows = core::ConvertProblem{&context, tensor, rows};
    tensor = rows;
}

core::Operand to_operand(const core::Context& context, const char* argument, const lowbit_operand& given, MatmulCall& call,
                         core::Scratch& scratch) {
    const int count = (given.tensor != nullptr) + (given.quantized != nullptr) + (given.packed != nullptr);
    core::require(count == 1, verb, ": ", argument, " sets ", count, " of tensor, quantized and packed; set exactly one");
    core::Operand operand;
    if (given.tensor) {
        operand.tensor = to_tensor(verb, argument, *given.tensor);
        if (operand.tensor.element == Element::int8) return int8_operand(context, argument, operand.tensor, call, scratch);
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

void read(const core::Context& context, const lowbit_matmul_args* given, MatmulCall& call, core::Scratch& scratch) {
    const lowbit_matmul_args args = read_sized(verb, "args", given, lowbit_matmul_args LOWBIT_MATMUL_ARGS_INIT);
    core::MatmulProblem& problem = call.problem;
    problem.context = &context;
    core::require(args.x.packed == nullptr, verb, ": x is packed; only the weight can be");
    core::require(args.gate == 0 || args.gate == 1, verb, ": gate = ", args.gate, "; use 0 or 1");
    problem.x = to_operand(context, "x", args.x, call, scratch);
    problem.weight = to_operand(context, "weight", args.weight, call, scratch);
    weight_in_rows(context, problem.weight, call, scratch);
    problem.y = to_tensor(verb, "y", args.y);
    problem.epilogue = {args.scale,
                        args.output_scale,
                        Activation(args.activation),
                        to_vector("bias", args.bias),
                        to_vector("row_scale", args.row_scale),
                        to_vector("column_scale", args.column_scale),
                        args.gate == 1,
                        args.beta};
    if (args.x_format) {
        core::require(!problem.x.is_quantized, verb, ": x_format = \"", args.x_format, "\", but x is quantized already");
        core::check_tensor(verb, "x", problem.x.tensor, false);
        call.to_quantize = problem.x.tensor;
        core::require(problem.x.tensor.device == context.device, verb, ": x is not on the context's device");
        problem.x.quantized = quantized_planes(context, core::Format::parse(args.x_format), problem.x.rows(), problem.x.columns(), scratch);
        problem.x.is_quantized = true;
        problem.behind_quantize = true;
        problem.numbers = call.to_quantize;
    }
    core::check(problem);
}

// The product, behind the quantization of x, unless the kernel rounds the numbers by itself. Only such kernels ask for them: without, the
// choice is the same.
void run(const core::Context& context, MatmulCall& call, core::Scratch& scratch) {
    const core::Kernel<core::MatmulProblem>& kernel = core::chosen_kernel(call.problem);
    if (call.to_quantize && !kernel.quantizes_x) {
        call.problem.numbers.reset();
        quantize_tensor(context, *call.to_quantize, call.problem.x.quantized, scratch, true);
    }
    core::run(kernel, call.problem, scratch);
}

}  // namespace

core::Operand unscaled_codes(Element element, const void* codes, int64_t rows, int64_t columns, Device device, int device_index) {
    static float one = 1.0f;
    core::Operand operand;
    operand.is_quantized = true;
    operand.quantized.format.element = element;
    operand.quantized.format.granularity = Granularity::tensor;
    operand.quantized.rows = rows;
    operand.quantized.columns = columns;
    operand.quantized.codes = static_cast<uint8_t*>(const_cast<void*>(codes));  // operands are only read
    operand.quantized.scales = device == Device::cpu ? &one : nullptr;
    operand.quantized.device = device;
    operand.quantized.device_index = device_index;
    return operand;
}

}  // namespace lowbit::api

lowbit_status lowbit_matmul(lowbit_context* context, const lowbit_matmul_args* args) {
    return guard([&] {
        const core::Context& found = require_pointer(verb, "context", context)->context;
        core::Scratch scratch(found);
        MatmulCall call;
        read(found, args, call, scratch);
        for (const MatmulCall::Gather& one : call.gathers) gather(found, one);
        if (call.to_rows) core::run(*call.to_rows, scratch);
        run(found, call, scratch);
    });
}

lowbit_status lowbit_matmul_workspace(lowbit_context* context, const lowbit_matmul_args* args, size_t* bytes) {
    return guard([&] {
        const core::Context& found = require_pointer(verb, "context", context)->context;
        require_pointer(verb, "bytes", bytes);
        *bytes = 0;
        if (found.device == Device::cpu) return;
        core::Scratch scratch(found, core::Scratch::Purpose::measure);
        MatmulCall call;
        read(found, args, call, scratch);
        run(found, call, scratch);
        *bytes = size_t(scratch.used());
    });
}

lowbit_status lowbit_explain(lowbit_context* context, const lowbit_matmul_args* args, char* text, size_t capacity, size_t* length) {
    return guard([&] {
        const core::Context& found = require_pointer(verb, "context", context)->context;
        core::Scratch scratch(found, core::Scratch::Purpose::measure);
        MatmulCall call;
        read(found, args, call, scratch);
        const core::Choice<core::MatmulProblem> choice = core::choose(call.problem);
        const bool says_gate = choice.kernel && call.problem.epilogue.gate;
        copy_text("explain", choice.text() + (says_gate ? core::gate_text(*choice.kernel, call.problem) : ""), text, capacity, length);
    });
}
