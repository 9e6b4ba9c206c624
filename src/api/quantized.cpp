// quantize, dequantize, pack: from the C structs to a checked problem, and on to the registry.
#include <memory>

#include "api/handles.hpp"
#include "api/quantized.hpp"
#include "core/packed.hpp"
#include "core/registry.hpp"
#include "cuda/memory.hpp"

using namespace lowbit;
using namespace lowbit::api;

namespace lowbit::api {
namespace {

constexpr const char* verb = core::QuantizeProblem::verb;

struct QuantizeCall {
    core::Tensor x;
    core::Format format;
    lowbit_quantize_args args;
};

QuantizeCall read(const lowbit_context* context, const lowbit_quantize_args* given) {
    require_pointer(verb, "context", context);
    QuantizeCall call;
    call.args = read_sized(verb, "args", given, lowbit_quantize_args LOWBIT_QUANTIZE_ARGS_INIT);
    call.x = to_tensor(verb, "x", call.args.x);
    call.format = core::Format::parse(require_pointer(verb, "format", call.args.format));
    const bool has_scales = call.args.scales != nullptr;
    const std::string name = call.format.print();
    core::require(!has_scales || call.format.granularity != Granularity::none, verb, ": scales are given, but ", name,
                  " has none; leave scales NULL");
    core::require((call.args.zero_points != nullptr) == (has_scales && call.format.asymmetric), verb, ": zero_points ",
                  call.args.zero_points ? "are given" : "are missing", "; ", name, " takes them together with scales ",
                  call.format.asymmetric ? "" : "only when it is asymmetric");
    core::require((call.args.tensor_scale != nullptr) == (has_scales && call.format.has_tensor_scale()), verb, ": tensor_scale ",
                  call.args.tensor_scale ? "is given" : "is missing", "; ", name, " takes it together with scales ",
                  call.format.has_tensor_scale() ? "" : "only when its scales are fp8_e4m3");
    return call;
}

void copy_static_scales(const core::Context& context, const QuantizeCall& call, const core::QuantizedView& result) {
    if (!call.args.scales) return;
    const core::PlaneSizes sizes = result.format.measure(result.rows, result.columns);
    const auto plane = [&](void* to, const void* from, int64_t bytes) {
        if (bytes == 0 || to == from) return;
        context.device == Device::cpu ? void(std::memmove(to, from, size_t(bytes))) : cuda::copy(context, to, from, bytes);
    };
    plane(result.scales, call.args.scales, sizes.scale_bytes);
    plane(result.zero_points, call.args.zero_points, sizes.zero_point_bytes);
    plane(result.tensor_scale, call.args.tensor_scale, sizes.tensor_scale_bytes);
}

// Zero points of 4-bit codes are checked before anything is written: a larger one would put codes outside their range. Those on a GPU
// cannot be looked at from here; the kernels take the low four bits' largest value, 15, for a larger one.
void check_zero_points(const core::Context& context, const QuantizeCall& call) {
    if (context.device != Device::cpu || !call.args.zero_points || call.format.element != Element::uint4) return;
    const core::PlaneSizes sizes = call.format.measure(call.x.rows, call.x.columns);
    for (int64_t i = 0; i < sizes.zero_point_bytes; ++i)
        core::require(call.args.zero_points[i] <= 15, verb, ": zero_points[", i, "] = ", int(call.args.zero_points[i]),
                      "; uint4 takes 0 to 15");
}

void run(const lowbit_context& context, const QuantizeCall& call, const core::QuantizedView& result) {
    const core::QuantizeProblem problem{&context.context, call.x, result, call.args.scales != nullptr};
    core::check(problem);
    check_zero_points(context.context, call);
    copy_static_scales(context.context, call, result);
    core::run(problem);
}

}  // namespace

void quantize_tensor(const core::Context& context, const core::Tensor& x, const core::QuantizedView& result, core::Scratch& scratch,
                     bool for_product) {
    core::QuantizeProblem problem{&context, x, result, false};
    problem.for_product = for_product;
    core::check(problem);
    core::run(problem, scratch);
}

}  // namespace lowbit::api

lowbit_status lowbit_quantize(lowbit_context* context, const lowbit_quantize_args* args, lowbit_quantized** result) {
    return guard([&] {
        const QuantizeCall call = read(context, args);
        require_pointer(verb, "result", result);
        core::check_tensor(verb, "x", call.x, false);
        auto made = std::make_unique<lowbit_quantized>(allocate_quantized(context->context, call.format, call.x.rows, call.x.columns));
        run(*context, call, made->view);
        *result = made.release();
    });
}

lowbit_status lowbit_quantize_into(lowbit_context* context, const lowbit_quantize_args* args, const lowbit_quantized_view* destination) {
    return guard([&] {
        const QuantizeCall call = read(context, args);
        const core::QuantizedView view = to_view(verb, "destination", destination);
        core::require(view.format == call.format, verb, ": destination has format ", view.format.print(), " but the arguments ask for ",
                      call.format.print());
        run(*context, call, view);
    });
}

lowbit_status lowbit_quantize_workspace(lowbit_context* context, const lowbit_quantize_args* args, size_t* bytes) {
    return guard([&] {
        const QuantizeCall call = read(context, args);
        require_pointer(verb, "bytes", bytes);
        core::check_tensor(verb, "x", call.x, false);
        core::Scratch scratch(context->context, core::Scratch::Purpose::measure);
        // The planes are only described: what they take is not part of the workspace.
        core::Scratch planes(context->context, core::Scratch::Purpose::measure);
        const core::QuantizedView result = quantized_planes(context->context, call.format, call.x.rows, call.x.columns, planes);
        if (context->context.device == Device::cuda)
            core::run(core::QuantizeProblem{&context->context, call.x, result, call.args.scales != nullptr}, scratch);
        *bytes = size_t(scratch.used());
    });
}

lowbit_status lowbit_quantized_borrow(const lowbit_quantized_view* view, lowbit_quantized** result) {
    return guard([&] {
        constexpr const char* name = "quantized_borrow";
        const core::QuantizedView checked = to_view(name, "view", view);
        require_pointer(name, "result", result);
        core::check_quantized(name, "view", checked);
        auto made = std::make_unique<lowbit_quantized>();
        made->view = checked;
        *result = made.release();
    });
}

lowbit_status lowbit_quantized_get_view(const lowbit_quantized* quantized, lowbit_quantized_view* view) {
    return guard([&] {
        constexpr const char* name = "quantized_get_view";
        require_pointer(name, "quantized", quantized);
        require_pointer(name, "view", view);
        core::require(view->size == sizeof(lowbit_quantized_view), name, ": view.size = ", view->size,
                      "; start from LOWBIT_QUANTIZED_VIEW_INIT");
        *view = from_view(quantized->view);
    });
}

void lowbit_quantized_destroy(lowbit_quantized* quantized) { delete quantized; }

lowbit_status lowbit_dequantize(lowbit_context* context, const lowbit_quantized* quantized, const lowbit_tensor* y) {
    return guard([&] {
        constexpr const char* name = core::DequantizeProblem::verb;
        require_pointer(name, "context", context);
        require_pointer(name, "quantized", quantized);
        const core::DequantizeProblem problem{&context->context, quantized->view, to_tensor(name, "y", *require_pointer(name, "y", y))};
        core::check(problem);
        core::run(problem);
    });
}

lowbit_status lowbit_convert(lowbit_context* context, const lowbit_tensor* x, const lowbit_tensor* y) {
    return guard([&] {
        constexpr const char* name = core::ConvertProblem::verb;
        require_pointer(name, "context", context);
        const core::ConvertProblem problem{&context->context, to_tensor(name, "x", *require_pointer(name, "x", x)),
                                           to_tensor(name, "y", *require_pointer(name, "y", y))};
        core::check(problem);
        core::run(problem);
    });
}
