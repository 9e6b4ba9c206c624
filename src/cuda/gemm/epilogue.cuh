// What happens to a product before it is stored: core/epilogue.hpp for device code. Every choice here is made at run time, so that the
// number of kernels does not grow with it.
#pragma once
#include "core/problem.hpp"
#include "cuda/formats/planes.cuh"
#include "cuda/numbers.cuh"

namespace lowbit::cuda {

// fp32 scales along one axis of the result: one each, one for all (stride 0), or none.
struct ScaleVector {
    const float* data = nullptr;
    int64_t stride = 0;

    __device__ float at(int64_t index) const { return data[index * stride]; }
};

// Zero points along one axis, less 128 where the codes are stored so; with the sums of the other operand's codes.
struct ZeroPoints {
    const uint8_t* data = nullptr;
    int64_t stride = 0;
    int offset = 0;

    __device__ int at(int64_t index) const { return data ? int(data[index * stride]) - offset : 0; }
};

// What an integer accumulator holds: a sum of products, or of K pairs of bits how many differ, or how many are 1 both (with the sums of
// bits in token_sums and row_sums).
enum class Counts { products, differences, common };

struct EpilogueArgs {
    core::Tensor y;
    float scale = 1.0f, output_scale = 1.0f, beta = 0.0f;
    Activation activation = Activation::none;
    ScaleVector token_scale[2], row_scale[2];  // of the operands, and the caller's
    core::Tensor bias;                         // data null: none
    // Integer products: zero points and the sums of codes they are multiplied with.
    ZeroPoints token_zero, row_zero;
    const int32_t* token_sums = nullptr;
    const int32_t* row_sums = nullptr;
    int32_t depth = 0;  // K
    Counts counts = Counts::products;
};

// A call of its own: five functions inlined for every value of a thread would make up most of a kernel.
static __device__ __noinline__ float activate(Activation activation, float x) {
    switch (activation) {
    case Activation::relu: return x < 0 ? 0.0f : x;  // NaN stays
    case Activation::gelu: return 0.5f * x * (1.0f + erff(x * 0.70710678118654752440f));
    case Activation::gelu_tanh: return 0.5f * x * (1.0f + tanhf(0.79788456080286535588f * (x + 0.044715f * x * x * x)));
    case Activation::silu: return x / (1.0f + expf(-x));
    default: return x;
    }
}

__device__ inline bool is_corrected(const EpilogueArgs& e) { return e.counts != Counts::products || e.token_zero.data || e.row_zero.data; }

// The integer product of the codes less their zero points.
__device__ inline int32_t without_zero_points(const EpilogueArgs& e, int64_t token, int64_t row, int32_t product) {
    if (e.counts == Counts::differences) return e.depth - 2 * product;
    if (e.counts == Counts::common) return e.depth + 4 * product - 2 * (e.row_sums[row] + e.token_sums[token]);
    const int token_zero = e.token_zero.at(token), row_zero = e.row_zero.at(row);
    if (e.row_sums) product -= token_zero * e.row_sums[row];
    if (e.token_sums) product -= row_zero * e.token_sums[token];
    return product + token_zero * row_zero * e.depth;
}

__device__ inline float finish(const EpilogueArgs& e, int64_t token, int64_t row, float product) {
    float value = product * e.scale;
    for (int i = 0; i < 2; ++i) {
        if (e.token_scale[i].data) value *= e.token_scale[i].at(token);
        if (e.row_scale[i].data) value *= e.row_scale[i].at(row);
    }
    if (e.bias.data) value += load_number(e.bias.element, e.bias.data, row * e.bias.column_stride);
    return e.activation == Activation::none ? value : activate(e.activation, value);
}

// In double, as the reference: the quotient is rounded once.
static __device__ __noinline__ uint32_t to_int8(float value, float scale) {
    const double quotient = rint(double(value) / double(scale));
    return isnan(quotient) ? 0u : uint32_t(int(fmin(fmax(quotient, -128.0), 127.0))) & 0xffu;
}

// The bits of a result in the output's type.
__device__ inline uint32_t to_output(const EpilogueArgs& e, float value) {
    switch (e.y.element) {
    case Element::fp16: return float_to_half(value);
    case Element::bf16: return float_to_bfloat(value);
    case Element::int8: return to_int8(value, e.output_scale);
    default: return __float_as_uint(value);
    }
}

__device__ inline void store_bits(const core::Tensor& y, int64_t place, uint32_t bits) {
    switch (y.element) {
    case Element::fp16:
    case Element::bf16: static_cast<uint16_t*>(y.data)[place] = uint16_t(bits); break;
    case Element::int8: static_cast<uint8_t*>(y.data)[place] = uint8_t(bits); break;
    default: static_cast<uint32_t*>(y.data)[place] = bits; break;
    }
}

__device__ inline int64_t place_of(const EpilogueArgs& e, int64_t token, int64_t row) {
    return token * e.y.row_stride + row * e.y.column_stride;
}

// A call of its own, as activate: it is rarely made.
static __device__ __noinline__ float load_before(Element element, const void* data, int64_t place) {
    return load_number(element, data, place);
}

// The last step of every kernel but those that store eight at a time: what the output held is added, once, and nothing else reads it.
__device__ inline void store_value(const EpilogueArgs& e, int64_t token, int64_t row, float value) {
    const int64_t place = place_of(e, token, row);
    if (e.beta != 0.0f) value += e.beta * load_before(e.y.element, e.y.data, place);
    store_bits(e.y, place, to_output(e, value));
}

template <class Accumulator>
__device__ inline void store_result(const EpilogueArgs& e, int64_t token, int64_t row, Accumulator product) {
    if constexpr (std::is_same_v<Accumulator, int32_t>) {
        product = without_zero_points(e, token, row, product);
        if (e.y.element == Element::int32) return store_bits(e.y, place_of(e, token, row), uint32_t(product));
    }
    store_value(e, token, row, finish(e, token, row, float(product)));
}

// What the epilogue has for eight neighbouring rows of the weight, whatever the token: loaded once, used for many tokens.
struct RowTerms {
    float factor[8], bias[8];
};

__device__ inline RowTerms load_row_terms(const EpilogueArgs& e, int64_t row, int64_t rows) {
    RowTerms terms;
#pragma unroll
    for (int i = 0; i < 8; ++i) terms.factor[i] = 1.0f, terms.bias[i] = 0.0f;
    for (int k = 0; k < 2; ++k)
        if (e.row_scale[k].data)
#pragma unroll
            for (int i = 0; i < 8; ++i) terms.factor[i] *= e.row_scale[k].at(smaller(row + i, rows - 1));
    if (e.bias.data)
#pragma unroll
        for (int i = 0; i < 8; ++i)
            terms.bias[i] = load_number(e.bias.element, e.bias.data, smaller(row + i, rows - 1) * e.bias.column_stride);
    return terms;
}

__device__ inline float token_factor(const EpilogueArgs& e, int64_t token) {
    float factor = e.scale;
    for (int k = 0; k < 2; ++k)
        if (e.token_scale[k].data) factor *= e.token_scale[k].at(token);
    return factor;
}

// The same for one row.
struct RowTerm {
    float factor = 1.0f, bias = 0.0f;
};
__device__ inline RowTerm load_row_term(const EpilogueArgs& e, int64_t row) {
    RowTerm term;
    for (int k = 0; k < 2; ++k)
        if (e.row_scale[k].data) term.factor *= e.row_scale[k].at(row);
    if (e.bias.data) term.bias = load_number(e.bias.element, e.bias.data, row * e.bias.column_stride);
    return term;
}
// All but the activation.
template <class Accumulator>
__device__ inline float scale_and_bias(const EpilogueArgs& e, const RowTerm& term, int64_t token, Accumulator product) {
    return float(product) * (token_factor(e, token) * term.factor) + term.bias;
}
template <class Accumulator>
__device__ inline void store_one(const EpilogueArgs& e, const RowTerm& term, int64_t token, int64_t row, Accumulator product) {
    if constexpr (std::is_same_v<Accumulator, int32_t>) {
        if (is_corrected(e)) product = without_zero_points(e, token, row, product);
        if (e.y.element == Element::int32) return store_bits(e.y, place_of(e, token, row), uint32_t(product));
    }
    float value = scale_and_bias(e, term, token, product);
    if (e.activation != Activation::none) value = activate(e.activation, value);
    store_value(e, token, row, value);
}

// Where the results of one token and eight neighbouring rows of the weight lie: as neighbours, aligned to 16 bytes, or one by one.
struct EightPlaces {
    int64_t place;
    uint4* address;
    bool narrow, whole;

    __device__ EightPlaces(const EpilogueArgs& e, int64_t token, int64_t row, int64_t rows) : place(place_of(e, token, row)) {
        narrow = e.y.element == Element::fp16 || e.y.element == Element::bf16;
        const auto first = reinterpret_cast<uintptr_t>(e.y.data) + uintptr_t(place) * (narrow ? 2 : 4);
        address = reinterpret_cast<uint4*>(first);
        whole = e.y.column_stride == 1 && row + 8 <= rows && e.y.element != Element::int8 && first % 16 == 0;
    }
};

// beta times what the output held; a call for a beta that is not 0 alone.
__device__ inline void add_before(const EpilogueArgs& e, int64_t token, int64_t row, int64_t rows, float (&values)[8]) {
    const EightPlaces at(e, token, row, rows);
    if (!at.whole) {
#pragma unroll
        for (int i = 0; i < 8; ++i)
            if (row + i < rows) values[i] += e.beta * load_before(e.y.element, e.y.data, at.place + i * e.y.column_stride);
    } else if (at.narrow) {
        const uint4 four = at.address[0];
        const uint32_t pairs[4] = {four.x, four.y, four.z, four.w};
        const bool half = e.y.element == Element::fp16;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const auto bits = uint16_t(pairs[i / 2] >> (16 * (i % 2)));
            values[i] += e.beta * (half ? half_to_float(bits) : bfloat_to_float(bits));
        }
    } else {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float4 four = reinterpret_cast<const float4*>(at.address)[half];
            values[4 * half] += e.beta * four.x, values[4 * half + 1] += e.beta * four.y;
            values[4 * half + 2] += e.beta * four.z, values[4 * half + 3] += e.beta * four.w;
        }
    }
}

// The results of one token and eight rows as the bits that are stored.
template <class Accumulator>
__device__ inline void finish_eight(const EpilogueArgs& e, const RowTerms& terms, int64_t token, int64_t row, int64_t rows,
                                    const Accumulator (&products)[8], uint32_t (&bits)[8]) {
    float values[8];
    if constexpr (std::is_same_v<Accumulator, int32_t>) {
        const bool corrected = is_corrected(e);
        int32_t whole[8];
#pragma unroll
        for (int i = 0; i < 8; ++i)
            whole[i] = corrected ? without_zero_points(e, token, smaller(row + i, rows - 1), products[i]) : products[i];
#pragma unroll
        for (int i = 0; i < 8; ++i) bits[i] = uint32_t(whole[i]), values[i] = float(whole[i]);
        if (e.y.element == Element::int32) return;
    } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) values[i] = products[i];
    }
    const float factor = token_factor(e, token);
#pragma unroll
    for (int i = 0; i < 8; ++i) values[i] = values[i] * (factor * terms.factor[i]) + terms.bias[i];
    if (e.activation != Activation::none)
#pragma unroll
        for (int i = 0; i < 8; ++i) values[i] = activate(e.activation, values[i]);
    if (e.beta != 0.0f) add_before(e, token, row, rows, values);
    if (e.y.element == Element::bf16) {
#pragma unroll
        for (int i = 0; i < 8; ++i) bits[i] = float_to_bfloat(values[i]);
    } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) bits[i] = to_output(e, values[i]);
    }
}

// Eight neighbouring rows of the weight are neighbours in a contiguous output: stored 16 bytes at a time where it is aligned.
template <class Accumulator>
__device__ inline void store_eight(const EpilogueArgs& e, const RowTerms& terms, int64_t token, int64_t row, int64_t rows,
                                   const Accumulator (&products)[8]) {
    uint32_t bits[8];
    finish_eight(e, terms, token, row, rows, products, bits);
    const EightPlaces at(e, token, row, rows);
    if (!at.whole) {
#pragma unroll
        for (int i = 0; i < 8; ++i)
            if (row + i < rows) store_bits(e.y, at.place + i * e.y.column_stride, bits[i]);
    } else if (at.narrow) {
        at.address[0] = make_uint4(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16, bits[4] | bits[5] << 16, bits[6] | bits[7] << 16);
    } else {
        at.address[0] = make_uint4(bits[0], bits[1], bits[2], bits[3]);
        at.address[1] = make_uint4(bits[4], bits[5], bits[6], bits[7]);
    }
}

// The problem's own epilogue; kernels add the scales of their operands in token_scale[0] and row_scale[0].
inline EpilogueArgs epilogue_of(const core::MatmulProblem& problem) {
    const core::Epilogue& given = problem.epilogue;
    EpilogueArgs e;
    e.y = problem.y;
    e.scale = given.scale;
    e.output_scale = given.output_scale;
    e.beta = given.beta;
    e.activation = given.activation;
    e.depth = int32_t(problem.k());
    if (given.row_scale) e.token_scale[1] = {static_cast<const float*>(given.row_scale->data), given.row_scale->column_stride};
    if (given.column_scale) e.row_scale[1] = {static_cast<const float*>(given.column_scale->data), given.column_scale->column_stride};
    if (given.bias) e.bias = *given.bias;
    return e;
}

// One scale for a whole row (or all of them) that the epilogue can multiply in.
inline bool scale_at_end(const core::QuantizedView& view) {
    return view.layout == core::PackedLayout::rows && view.format.scale_is_constant_along_row() && view.format.scale == Element::fp32;
}
inline ScaleVector constant_scale(const core::QuantizedView& view) {
    return {static_cast<const float*>(view.scales), view.format.granularity == Granularity::row ? 1 : 0};
}

}  // namespace lowbit::cuda
