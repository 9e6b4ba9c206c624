#include "verify/mirror.hpp"

#include "core/packed.hpp"
#include "cuda/memory.hpp"
#include "verify/verify.hpp"

namespace lowbit::verify {
namespace {

int64_t bytes_of(const core::Tensor& tensor) {
    if (tensor.rows == 0 || tensor.columns == 0) return 0;
    return (tensor.offset(tensor.rows - 1, tensor.columns - 1) + 1) * core::element_bytes(tensor.element);
}

}  // namespace

void* Mirror::memory(int64_t bytes) {
    buffers_.emplace_back(context_.allocator, bytes);
    return buffers_.back().data();
}

void* Mirror::plane(const void* host, int64_t bytes) {
    if (bytes == 0 || !host) return nullptr;
    void* made = memory(bytes);
    cuda::copy_to_device(context_, made, host, bytes);
    return made;
}

core::Tensor Mirror::tensor(const core::Tensor& host) {
    if (!on_device()) return host;
    core::Tensor made = host;
    made.data = plane(host.data, bytes_of(host));
    made.device = Device::cuda;
    made.device_index = context_.device_index;
    return made;
}

core::QuantizedView Mirror::quantized(const core::QuantizedView& host) {
    if (!on_device()) return host;
    const core::PlaneSizes sizes = host.format.measure(host.rows, host.columns);
    core::QuantizedView made = host;
    made.codes = static_cast<uint8_t*>(plane(host.codes, sizes.code_bytes));
    made.scales = plane(host.scales, sizes.scale_bytes);
    made.zero_points = static_cast<uint8_t*>(plane(host.zero_points, sizes.zero_point_bytes));
    made.tensor_scale = static_cast<float*>(plane(host.tensor_scale, sizes.tensor_scale_bytes));
    made.device = Device::cuda;
    made.device_index = context_.device_index;
    return made;
}

core::Operand Mirror::operand(const core::Operand& host) {
    core::Operand made = host;
    if (host.is_quantized)
        made.quantized = quantized(host.quantized);
    else
        made.tensor = tensor(host.tensor);
    return made;
}

core::Epilogue Mirror::epilogue(const core::Epilogue& host) {
    core::Epilogue made = host;
    for (std::optional<core::Tensor> core::Epilogue::*vector :
         {&core::Epilogue::bias, &core::Epilogue::row_scale, &core::Epilogue::column_scale})
        if (made.*vector) made.*vector = tensor(*(made.*vector));
    return made;
}

core::QuantizedView Mirror::packed(const core::QuantizedView& mirrored) {
    const core::PackedLayout layout = core::packed_layout(mirrored.format, context_.device);
    const int64_t bytes = core::packed_bytes(mirrored.format, layout, mirrored.rows, mirrored.columns);
    auto* made = static_cast<std::byte*>(memory(bytes));
    cuda::pack(context_, mirrored, layout, made);
    core::QuantizedView view = core::packed_planes(mirrored.format, layout, mirrored.rows, mirrored.columns, made);
    view.device = mirrored.device;
    view.device_index = mirrored.device_index;
    return view;
}

void Mirror::bring(const core::Tensor& host, const core::Tensor& mirrored) {
    if (on_device() && bytes_of(host) > 0) cuda::copy_to_device(context_, mirrored.data, host.data, bytes_of(host));
}

void Mirror::bring_back(const core::Tensor& host, const core::Tensor& mirrored) {
    if (on_device()) cuda::copy_to_host(context_, host.data, mirrored.data, bytes_of(host));
}

void Mirror::bring_back(const core::QuantizedView& host, const core::QuantizedView& mirrored) {
    if (!on_device()) return;
    const core::PlaneSizes sizes = host.format.measure(host.rows, host.columns);
    cuda::copy_to_host(context_, host.codes, mirrored.codes, sizes.code_bytes);
    cuda::copy_to_host(context_, host.scales, mirrored.scales, sizes.scale_bytes);
    cuda::copy_to_host(context_, host.zero_points, mirrored.zero_points, sizes.zero_point_bytes);
    cuda::copy_to_host(context_, host.tensor_scale, mirrored.tensor_scale, sizes.tensor_scale_bytes);
}

void use_device(core::Context& context, Device device) {
    context.device = device;
    if (device == Device::cuda) context.allocator = cuda::device_allocator(context.device_index);
}

}  // namespace lowbit::verify
