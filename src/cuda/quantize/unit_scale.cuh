// The scale of a group, read where code is unrolled.
#pragma once
#include "cuda/quantize/plain_unit.cuh"

namespace lowbit::cuda {

__device__ __noinline__ inline float rare_scale_at(Element type, const void* scales, uint32_t index, const float* tensor_scale) {
    core::QuantizedView view;
    view.format.scale = type;
    view.scales = const_cast<void*>(scales);
    view.tensor_scale = const_cast<float*>(tensor_scale);
    return scale_at(view, index);
}

// scale_at, with the types that most formats have in line.
__device__ inline float unit_scale_at(const core::QuantizedView& view, uint32_t index) {
    if (view.scales == nullptr) return 1.0f;
    if (view.format.scale == Element::fp32) return static_cast<const float*>(view.scales)[index];
    if (view.format.scale == Element::fp16) return half_to_float(static_cast<const uint16_t*>(view.scales)[index]);
    return rare_scale_at(view.format.scale, view.scales, index, view.tensor_scale);
}

}  // namespace lowbit::cuda
