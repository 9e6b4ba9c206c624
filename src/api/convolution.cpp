// Binary convolutions: images and weights as they are given become bits, then a problem.
#include "api/handles.hpp"
#include "core/checks.hpp"
#include "core/registry.hpp"

using namespace lowbit;
using namespace lowbit::api;

namespace {

constexpr const char* verb = core::BinaryConvProblem::verb;

core::Images to_images(const char* call, const char* argument, const lowbit_images& given) {
    core::require(given.size == sizeof(lowbit_images), call, ": ", argument, ".size = ", given.size, "; start from LOWBIT_IMAGES_INIT");
    core::require(given.device == LOWBIT_CPU || given.device == LOWBIT_CUDA, call, ": ", argument, ".device = ", int(given.device),
                  "; use LOWBIT_CPU or LOWBIT_CUDA");
    core::require(given.images >= 0 && given.channels >= 0 && given.height >= 0 && given.width >= 0, call, ": ", argument, " has shape ",
                  given.images, " x ", given.channels, " x ", given.height, " x ", given.width, "; sizes cannot be negative");
    core::Images images;
    images.data = given.data;
    images.element = Element(given.element);
    images.images = given.images, images.channels = given.channels, images.height = given.height, images.width = given.width;
    std::copy(std::begin(given.strides), std::end(given.strides), images.strides);
    images.device = Device(given.device);
    images.device_index = given.device_index;
    return images;
}

// The arguments as a problem, and what must be made before it can run: bits of what was given as numbers, and a bias in fp32.
struct ConvolutionCall {
    core::BinaryConvProblem problem;
    struct Signs {
        const char* argument;
        core::SignBitsProblem problem;
    };
    std::vector<Signs> to_bits;
    std::optional<core::ConvertProblem> to_fp32;
};

const uint8_t* to_bits(const core::Context& context, const char* argument, const core::Images& given, int64_t groups, ConvolutionCall& call,
                       core::Scratch& scratch) {
    if (given.is_bits()) {
        core::check_device(verb, argument, given.device, given.device_index, context);
        return static_cast<const uint8_t*>(given.data);
    }
    core::check_numbers(verb, argument, given, context);
    auto* bits = reinterpret_cast<uint8_t*>(scratch.take(core::bits_bytes(given, groups)));
    call.to_bits.push_back({argument, {&context, given, groups, bits}});
    return bits;
}

std::optional<core::Tensor> to_vector(const char* argument, const lowbit_tensor* given) {
    if (!given) return std::nullopt;
    return to_tensor(verb, argument, *given);
}

// Kernels take a bias in fp32, which holds every fp16 and bf16.
void widen_bias(const core::Context& context, ConvolutionCall& call, core::Scratch& scratch) {
    std::optional<core::Tensor>& bias = call.problem.bias;
    if (!bias || (bias->element != Element::fp16 && bias->element != Element::bf16)) return;
    core::check_tensor(verb, "bias", *bias, false);
    core::check_device(verb, "bias", bias->device, bias->device_index, context);
    core::Tensor wide = *bias;
    wide.element = Element::fp32;
    wide.row_stride = wide.columns, wide.column_stride = 1;
    wide.data = scratch.take(core::checked_multiply(core::checked_multiply(wide.rows, wide.columns, "bias"), 4, "bias"));
    call.to_fp32 = core::ConvertProblem{&context, *bias, wide};
    bias = wide;
}

void read(const core::Context& context, const lowbit_binary_conv2d_args* given, ConvolutionCall& call, core::Scratch& scratch) {
    const lowbit_binary_conv2d_args args = read_sized(verb, "args", given, lowbit_binary_conv2d_args LOWBIT_BINARY_CONV2D_ARGS_INIT);
    const core::Images x = to_images(verb, "x", args.x), weight = to_images(verb, "weight", args.weight);
    core::BinaryConvProblem& problem = call.problem;
    problem.context = &context;
    problem.images = x.images, problem.channels = weight.channels, problem.outputs = weight.images, problem.groups = args.groups;
    problem.down = {x.height, weight.height, args.stride[0], args.padding[0], args.padding[1], args.dilation[0]};
    problem.across = {x.width, weight.width, args.stride[1], args.padding[2], args.padding[3], args.dilation[1]};
    problem.y = to_images(verb, "y", args.y);
    problem.scale = to_vector("scale", args.scale);
    problem.bias = to_vector("bias", args.bias);
    // Before groups are divided by.
    core::require(args.groups >= 1 && weight.images % args.groups == 0, verb, ": groups = ", args.groups, " does not divide the ",
                  weight.images, " outputs of the weight");
    const int64_t channels = core::checked_multiply(args.groups, weight.channels, "weight");
    core::require(x.channels == channels, verb, ": x has ", x.channels, " channels but the weight takes ", channels, " (", args.groups,
                  " groups of ", weight.channels, ")");
    problem.x = to_bits(context, "x", x, args.groups, call, scratch);
    problem.weight = to_bits(context, "weight", weight, 1, call, scratch);
    widen_bias(context, call, scratch);
    core::check(problem);
    const core::Extent y = core::extent("y", problem.y);
    for (const ConvolutionCall::Signs& signs : call.to_bits) core::refuse_overlap(verb, y, core::extent(signs.argument, signs.problem.x));
    if (call.to_fp32) core::refuse_overlap(verb, y, core::extent("bias", call.to_fp32->x));
}

void run(const ConvolutionCall& call, core::Scratch& scratch) {
    if (call.problem.y.is_empty()) return;
    for (const ConvolutionCall::Signs& signs : call.to_bits) core::run(signs.problem, scratch);
    if (call.to_fp32) core::run(*call.to_fp32, scratch);
    core::run(call.problem, scratch);
}

}  // namespace

lowbit_status lowbit_binary_conv2d(lowbit_context* context, const lowbit_binary_conv2d_args* args) {
    return guard([&] {
        const core::Context& found = require_pointer(verb, "context", context)->context;
        core::Scratch scratch(found);
        ConvolutionCall call;
        read(found, args, call, scratch);
        run(call, scratch);
    });
}

lowbit_status lowbit_binary_conv2d_workspace(lowbit_context* context, const lowbit_binary_conv2d_args* args, size_t* bytes) {
    return guard([&] {
        const core::Context& found = require_pointer(verb, "context", context)->context;
        require_pointer(verb, "bytes", bytes);
        *bytes = 0;
        if (found.device == Device::cpu) return;
        core::Scratch scratch(found, core::Scratch::Purpose::measure);
        ConvolutionCall call;
        read(found, args, call, scratch);
        run(call, scratch);
        *bytes = size_t(scratch.used());
    });
}

lowbit_status lowbit_binary_conv2d_explain(lowbit_context* context, const lowbit_binary_conv2d_args* args, char* text, size_t capacity,
                                           size_t* length) {
    return guard([&] {
        const core::Context& found = require_pointer(verb, "context", context)->context;
        core::Scratch scratch(found, core::Scratch::Purpose::measure);
        ConvolutionCall call;
        read(found, args, call, scratch);
        copy_text("binary_conv2d_explain", core::choose(call.problem).text(), text, capacity, length);
    });
}

lowbit_status lowbit_sign_bits(lowbit_context* context, const lowbit_images* x, int64_t groups, void* bits, size_t bytes) {
    return guard([&] {
        constexpr const char* call = core::SignBitsProblem::verb;
        const core::Context& found = require_pointer(call, "context", context)->context;
        const core::SignBitsProblem problem{&found, to_images(call, "x", *require_pointer(call, "x", x)), groups,
                                            static_cast<uint8_t*>(bits)};
        core::check(problem);
        const int64_t needed = core::bits_bytes(problem.x, groups);
        core::require(size_t(needed) <= bytes, call, ": bits has ", bytes, " bytes, but the signs of x take ", needed);
        if (needed > 0) core::run(problem);
    });
}
