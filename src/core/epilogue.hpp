// What happens to a product before it is stored:
//     y[m,n] = activation(scale * row_scale[m] * column_scale[n] * product + bias[n]) + beta * y[m,n]
// then fp32, fp16, bf16, or int8 as round(y / output_scale), which takes no beta. With a gate, the weight's first N rows give what is
// activated, its last N rows what that is multiplied with:
//     y[m,n] = activation(... [n]) * (... [n + N]) + beta * y[m,n]
// and bias and column_scale have 2N values. One definition for the reference (double) and the CPU kernels (float).
#pragma once
#include <algorithm>
#include <cmath>
#include <optional>

#include "core/tensor.hpp"

namespace lowbit::core {

struct Epilogue {
    float scale = 1.0f;
    float output_scale = 1.0f;
    Activation activation = Activation::none;
    std::optional<Tensor> bias;          // one per row of the weight
    std::optional<Tensor> row_scale;     // [M], fp32
    std::optional<Tensor> column_scale;  // as bias, fp32
    bool gate = false;
    float beta = 0.0f;  // 0: what y holds is never read

    bool is_identity() const {
        return scale == 1.0f && activation == Activation::none && !bias && !row_scale && !column_scale && !gate && beta == 0.0f;
    }
};

template <class Real>
Real activate(Activation activation, Real x) {
    switch (activation) {
    case Activation::none: return x;
    case Activation::relu: return x < 0 ? Real(0) : x;  // NaN stays
    case Activation::gelu: return Real(0.5) * x * (Real(1) + std::erf(x * Real(0.70710678118654752440)));
    case Activation::gelu_tanh:
        return Real(0.5) * x * (Real(1) + std::tanh(Real(0.79788456080286535588) * (x + Real(0.044715) * x * x * x)));
    case Activation::silu: return x / (Real(1) + std::exp(-x));
    }
    return x;
}

// All but the activation.
template <class Real>
Real scale_and_bias(const Epilogue& epilogue, int64_t m, int64_t n, Real product) {
    Real value = product * Real(epilogue.scale);
    if (epilogue.row_scale) value *= Real(load(*epilogue.row_scale, 0, m));
    if (epilogue.column_scale) value *= Real(load(*epilogue.column_scale, 0, n));
    if (epilogue.bias) value += Real(load(*epilogue.bias, 0, n));
    return value;
}

template <class Real>
Real finish(const Epilogue& epilogue, int64_t m, int64_t n, Real product) {
    return activate(epilogue.activation, scale_and_bias(epilogue, m, n, product));
}

// round(value / scale) to even, clamped; NaN becomes 0.
inline int8_t to_int8(double value, float scale) {
    const double quotient = std::nearbyint(value / double(scale));
    return std::isnan(quotient) ? int8_t(0) : int8_t(std::clamp(quotient, -128.0, 127.0));
}

template <class Real>
void store_result(const Tensor& y, const Epilogue& epilogue, int64_t m, int64_t n, Real value) {
    const int64_t offset = y.offset(m, n);
    if (epilogue.beta != 0.0f) value += Real(epilogue.beta) * Real(load(y.element, y.data, offset));
    if (y.element == Element::int8)
        static_cast<int8_t*>(y.data)[offset] = to_int8(double(value), epilogue.output_scale);
    else
        store(y.element, y.data, offset, float(value));
}

}  // namespace lowbit::core
