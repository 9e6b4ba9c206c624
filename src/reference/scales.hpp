// From the statistics of a group to the scale that is stored. The reference and the CUDA kernels share these.
#pragma once
#include <cfloat>
#include <cstdint>

#include "core/format.hpp"
#include "reference/values.hpp"

namespace lowbit::reference {

// Of the finite values of a group.
struct Range {
    float lowest = 0, highest = 0;  // zero counts as present: it stays exactly representable

    LOWBIT_HOST_DEVICE float largest() const { return highest >= -lowest ? highest : -lowest; }  // 0, not -0, for nothing but zeros
    LOWBIT_HOST_DEVICE void add(float x) {
        const float value = core::is_finite(x) ? x : 0.0f;
        lowest = value < lowest ? value : lowest;
        highest = value > highest ? value : highest;
    }
    LOWBIT_HOST_DEVICE void merge(const Range& next) {
        lowest = next.lowest < lowest ? next.lowest : lowest;
        highest = next.highest > highest ? next.highest : highest;
    }
};

// What the planes hold for one group, and the scale in fp32 as it will be read.
struct Scale {
    uint32_t bits = 0;  // of the scale's own type
    float value = 0;
    uint8_t zero_point = 0;
};

// Scales below the smallest normal number are stored as zero: dividing by them is not exact on every machine.
LOWBIT_HOST_DEVICE inline float flush(float scale) { return scale < FLT_MIN ? 0.0f : scale; }

// 2^(floor(log2 largest) - e) where 2^e is the largest power of two of the element, as an e8m0 code. Exponents are taken from the bits: a
// subnormal number's counts as -127, which ends at 0 like any below.
LOWBIT_HOST_DEVICE inline uint8_t e8m0_scale(Element element, float largest) {
    const int exponent = int(core::float_to_bits(largest) >> 23) - int(core::float_to_bits(largest_value(element)) >> 23) + 127;
    return uint8_t(largest == 0 || exponent < 0 ? 0 : exponent > 254 ? 254 : exponent);
}

// The scale that fits a range exactly; int1 takes the mean of |x| instead, `mean`.
LOWBIT_HOST_DEVICE inline float fitted_scale(const core::Format& format, const Range& range, float mean) {
    if (format.element == Element::int1) return mean;
    if (!format.asymmetric) return core::divide(range.largest(), largest_value(format.element));
    const float width = core::sum(range.highest, -range.lowest);
    return core::divide(width < FLT_MAX ? width : FLT_MAX, largest_value(format.element));
}

// The fp32 scale of the whole tensor that e4m3 scales count in.
LOWBIT_HOST_DEVICE inline float fitted_tensor_scale(Element element, const Range& range) {
    return flush(core::divide(range.largest(), largest_value(Element::fp8_e4m3) * largest_value(element)));
}

LOWBIT_HOST_DEVICE inline Scale round_scale(Element type, float scale, float tensor_scale) {
    Scale stored;
    switch (type) {
    case Element::fp8_e4m3:
        stored.bits = tensor_scale > 0 ? core::float_to_e4m3(core::divide(scale, tensor_scale)) : uint8_t(0);
        stored.value = core::multiply(core::e4m3_to_float(uint8_t(stored.bits)), tensor_scale);
        break;
    case Element::fp16:
        stored.bits = core::float_to_fp16(scale < 65504.0f ? scale : 65504.0f);
        stored.value = core::fp16_to_float(uint16_t(stored.bits));
        break;
    case Element::bf16:
        stored.bits = core::float_to_bf16(flush(scale < 0x1.fep127f ? scale : 0x1.fep127f));
        stored.value = core::bf16_to_float(uint16_t(stored.bits));
        break;
    default:
        stored.value = flush(scale);
        stored.bits = core::float_to_bits(stored.value);
        break;
    }
    return stored;
}

LOWBIT_HOST_DEVICE inline Scale make_scale(const core::Format& format, const Range& range, float mean, float tensor_scale) {
    if (format.scale == Element::e8m0) {
        const uint8_t code = e8m0_scale(format.element, range.largest());
        return {code, core::e8m0_to_float(code), 0};
    }
    Scale stored = round_scale(format.scale, fitted_scale(format, range, mean), tensor_scale);
    if (format.asymmetric && stored.value >= FLT_MIN)
        stored.zero_point = uint8_t(round_and_clamp(core::divide(-range.lowest, stored.value), 0, int(largest_value(format.element))));
    return stored;
}

// Into the plane of scales; the zero point goes where there is a plane for it.
LOWBIT_HOST_DEVICE inline void store_scale_bits(Element type, void* scales, int64_t index, uint32_t bits) {
    switch (type) {
    case Element::fp16:
    case Element::bf16: static_cast<uint16_t*>(scales)[index] = uint16_t(bits); break;
    case Element::e8m0:
    case Element::fp8_e4m3: static_cast<uint8_t*>(scales)[index] = uint8_t(bits); break;
    default: static_cast<uint32_t*>(scales)[index] = bits; break;
    }
}

}  // namespace lowbit::reference
