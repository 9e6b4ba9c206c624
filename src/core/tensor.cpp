#include "core/tensor.hpp"

#include "core/ggml_blocks.hpp"
#include "core/status.hpp"

namespace lowbit::core {

int64_t QuantizedView::row_bytes() const {
    if (format.is_ggml()) return columns / ggml_block(format.element).values * ggml_block(format.element).bytes;
    return ceil_div(columns * element_bits(format.element), 8);
}

float QuantizedView::scale_at(int64_t index) const {
    switch (format.scale) {
    case Element::fp16:
    case Element::bf16: return load(format.scale, scales, index);
    case Element::e8m0: return e8m0_to_float(static_cast<const uint8_t*>(scales)[index]);
    case Element::fp8_e4m3: return e4m3_to_float(static_cast<const uint8_t*>(scales)[index]) * *tensor_scale;
    default: return static_cast<const float*>(scales)[index];
    }
}

}  // namespace lowbit::core
