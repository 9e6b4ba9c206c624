// What becomes of the integers of a convolution.
#pragma once
#include <cfloat>

#include "core/convolution.hpp"
#include "cuda/numbers.cuh"

namespace lowbit::cuda {

// y = scale * integer + bias, each step in fp32, rounded once; or the integer itself.
struct ConvResult {
    void* y = nullptr;
    Element element = Element::fp32;
    int64_t strides[4] = {};  // of image, output, row, column
    const float *scale = nullptr, *bias = nullptr;
    int64_t scale_stride = 0, bias_stride = 0;

    ConvResult() = default;
    explicit ConvResult(const core::BinaryConvProblem& problem)
        : y(problem.y.data),
          element(problem.y.element),
          scale(problem.scale ? static_cast<const float*>(problem.scale->data) : nullptr),
          bias(problem.bias ? static_cast<const float*>(problem.bias->data) : nullptr),
          scale_stride(problem.scale ? problem.scale->column_stride : 0),
          bias_stride(problem.bias ? problem.bias->column_stride : 0) {
        for (int i = 0; i < 4; ++i) strides[i] = problem.y.strides[i];
    }

    __host__ __device__ int bytes() const { return element == Element::fp16 || element == Element::bf16 ? 2 : 4; }
    // Of an output: 1 and -0, which change nothing, where there are none.
    __device__ float2 finish_of(int64_t output) const {
        return make_float2(scale ? scale[output * scale_stride] : 1.0f, bias ? bias[output * bias_stride] : -0.0f);
    }
    __device__ void store(int64_t index, uint32_t value) const {
        if (bytes() == 2)
            static_cast<uint16_t*>(y)[index] = uint16_t(value);
        else
            static_cast<uint32_t*>(y)[index] = value;
    }
};

__device__ inline float finished(float number, float2 finish) { return __fadd_rn(__fmul_rn(number, finish.x), finish.y); }

// Two numbers of 16 bits.
template <Element Type>
__device__ uint32_t stored_pair(float low, float high) {
    if constexpr (Type == Element::fp16) {
        const __half2 pair = __floats2half2_rn(low, high);
        return reinterpret_cast<const uint32_t&>(pair);
    } else {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
        return reinterpret_cast<const uint32_t&>(pair);
    }
}

// What comes of a count, with numbers of fp32 that are prepared: 2 * count - bits, times the scale, plus the bias, each rounded once.
template <Element Type>
struct Conversion {
    // The bits of 2^23 + 2^22 plus an integer of less than 22 bits are those of their sum: cheaper than a conversion.
    __device__ static float term(int bits) { return 12582912.0f + float(bits); }
    template <bool Biased>
    __device__ static float finish(int count, uint32_t term, float scale, float bias) {
        const float product = __fmul_rn(__int_as_float(2 * count + 0x4b400000) - __uint_as_float(term), scale);
        return Biased ? __fadd_rn(product, bias) : product;
    }
};

// The bits of a small integer are those of it times 2^-149: one instruction less. Now the scale takes back a factor of 2^-23; scales that
// it takes beyond the largest number give results that fp16 does not have, or 0.
template <>
struct Conversion<Element::fp16> {
    __device__ static float term(int bits) { return -0x1p-23f * float(bits); }
    __device__ static float scale(float scale) {
        const float larger = scale * 0x1p23f;
        return isinf(larger) && !isinf(scale) ? copysignf(FLT_MAX, scale) : larger;
    }
    template <bool Biased>
    __device__ static float finish(int count, uint32_t term, float scale, float bias) {
        const float product = __fmul_rn(__fmaf_rn(__int_as_float(count), 0x1p127f, __uint_as_float(term)), scale);
        return Biased ? __fadd_rn(product, bias) : product;
    }
};

}  // namespace lowbit::cuda
