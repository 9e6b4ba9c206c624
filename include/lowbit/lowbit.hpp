// lowbit for C++: a thin header over the C interface (lowbit.h has the rules of each call). Failures are thrown as lowbit::Error.
//
//     lowbit::Context context = lowbit::Context::cpu();
//     lowbit::Quantized q = lowbit::quantize(context, lowbit::view(weight, {4096, 14336}), "int4:g128");
//     lowbit::matmul(context, lowbit::view(x, {2, 14336}), q, lowbit::view(y, {2, 4096}), {.activation = lowbit::Activation::silu});
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "lowbit/lowbit.h"
#include "lowbit/types.hpp"

namespace lowbit {

class Error : public std::runtime_error {
public:
    Error(Status status, const std::string& text) : std::runtime_error(text), status_(status) {}
    Status status() const { return status_; }

private:
    Status status_;
};

namespace detail {

inline void check(lowbit_status status) {
    if (status != LOWBIT_OK) throw Error(Status(status), lowbit_last_error());
}

// A text that a C call writes into a buffer: asked for its length first, then for itself.
template <class Call>
std::string text(const Call& call) {
    size_t length = 0;
    check(call(nullptr, size_t{0}, &length));
    std::string result(length, '\0');
    check(call(result.data(), length + 1, &length));
    return result;
}

}  // namespace detail

// How numbers are stored: parses and prints as one short string, "int4:g128".
class Format {
public:
    Format(const char* text) { detail::check(lowbit_format_parse(text, &value_)); }
    Format(const std::string& text) : Format(text.c_str()) {}
    explicit Format(const lowbit_format& value) : value_(value) {}

    std::string print() const {
        char text[64];
        detail::check(lowbit_format_print(&value_, text, sizeof(text)));
        return text;
    }
    lowbit_format_sizes measure(int64_t rows, int64_t columns) const {
        lowbit_format_sizes sizes = LOWBIT_FORMAT_SIZES_INIT;
        detail::check(lowbit_format_measure(&value_, rows, columns, &sizes));
        return sizes;
    }
    double bits_per_weight(int64_t rows, int64_t columns) const { return measure(rows, columns).bits_per_weight; }

    Element element() const { return Element(value_.element); }
    Granularity granularity() const { return Granularity(value_.granularity); }
    bool is_asymmetric() const { return value_.asymmetric != 0; }
    const lowbit_format& c() const { return value_; }
    bool operator==(const Format& other) const {
        return value_.element == other.value_.element && value_.granularity == other.value_.granularity &&
               value_.scale == other.value_.scale && value_.asymmetric == other.value_.asymmetric &&
               value_.group_columns == other.value_.group_columns && value_.group_rows == other.value_.group_rows;
    }

private:
    lowbit_format value_{};
};

// Bit patterns of the narrow types, for view(); fp8 is for convert() alone.
enum class fp16 : uint16_t {};
enum class bf16 : uint16_t {};
enum class fp8_e4m3 : uint8_t {};
enum class fp8_e5m2 : uint8_t {};

template <class Number>
constexpr Element element_of() {
    using Plain = std::remove_const_t<Number>;
    if constexpr (std::is_same_v<Plain, float>)
        return Element::fp32;
    else if constexpr (std::is_same_v<Plain, fp16>)
        return Element::fp16;
    else if constexpr (std::is_same_v<Plain, bf16>)
        return Element::bf16;
    else if constexpr (std::is_same_v<Plain, fp8_e4m3>)
        return Element::fp8_e4m3;
    else if constexpr (std::is_same_v<Plain, fp8_e5m2>)
        return Element::fp8_e5m2;
    else if constexpr (std::is_same_v<Plain, int8_t>)
        return Element::int8;
    else {
        static_assert(std::is_same_v<Plain, int32_t>, "view: use float, lowbit::fp16, bf16, fp8_e4m3, fp8_e5m2, int8_t or int32_t");
        return Element::int32;
    }
}

// A view: pointer, element type, shape, strides, device. It owns nothing.
class Tensor {
public:
    Tensor(void* data, Element element, std::initializer_list<int64_t> shape, Device device = Device::cpu, int device_index = 0) {
        if (shape.size() != 1 && shape.size() != 2)
            throw Error(Status::invalid_argument, "view: shape has " + std::to_string(shape.size()) + " sizes; use 1 or 2");
        const int64_t* sizes = shape.begin();
        value_ = shape.size() == 2 ? lowbit_matrix(data, lowbit_element(element), sizes[0], sizes[1])
                                   : lowbit_vector(data, lowbit_element(element), sizes[0]);
        value_.device = lowbit_device(device);
        value_.device_index = device_index;
    }
    explicit Tensor(const lowbit_tensor& value) : value_(value) {}

    // The same numbers with rows and columns exchanged: how a [K,N] weight is given to matmul.
    Tensor transposed() const {
        Tensor result = *this;
        if (value_.rank == 2) {
            result.value_.shape[0] = value_.shape[1], result.value_.shape[1] = value_.shape[0];
            result.value_.strides[0] = value_.strides[1], result.value_.strides[1] = value_.strides[0];
        }
        return result;
    }
    const lowbit_tensor& c() const { return value_; }

private:
    lowbit_tensor value_ = LOWBIT_TENSOR_INIT;
};

template <class Number>
Tensor view(Number* data, std::initializer_list<int64_t> shape, Device device = Device::cpu, int device_index = 0) {
    return Tensor(const_cast<std::remove_const_t<Number>*>(data), element_of<Number>(), shape, device, device_index);
}

class Context {
public:
    static Context cpu() {
        lowbit_context* made = nullptr;
        detail::check(lowbit_context_create_cpu(&made));
        return Context(made);
    }
    // stream: a cudaStream_t.
    static Context cuda(int device_index, void* stream = nullptr) {
        lowbit_context* made = nullptr;
        detail::check(lowbit_context_create_cuda(device_index, stream, &made));
        return Context(made);
    }

    void set_threads(int threads) { detail::check(lowbit_context_set_threads(c(), threads)); }
    int threads() const {
        int32_t count = 0;
        detail::check(lowbit_context_get_threads(c(), &count));
        return count;
    }
    void set_kernel(const std::string& name) { detail::check(lowbit_context_set_kernel(c(), name.c_str())); }
    void set_stream(void* stream) { detail::check(lowbit_context_set_stream(c(), stream)); }
    // A product of few tokens may begin, and read its weight, before the kernel in front of it has ended: lowbit.h says what that asks for.
    void set_dependent_launch(bool enabled) { detail::check(lowbit_context_set_dependent_launch(c(), enabled ? 1 : 0)); }
    bool dependent_launch() const {
        int32_t enabled = 0;
        detail::check(lowbit_context_get_dependent_launch(c(), &enabled));
        return enabled != 0;
    }
    // Memory of the context's device for calls to work in, aligned to 256; matmul_workspace, quantize_workspace and
    // binary_conv2d_workspace say how much they take.
    void set_workspace(void* memory, size_t bytes) { detail::check(lowbit_context_set_workspace(c(), memory, bytes)); }
    void set_allocator(const lowbit_allocator& allocator) { detail::check(lowbit_context_set_allocator(c(), &allocator)); }
    lowbit_context* c() const { return handle_.get(); }

private:
    explicit Context(lowbit_context* handle) : handle_(handle, lowbit_context_destroy) {}
    std::unique_ptr<lowbit_context, void (*)(lowbit_context*)> handle_;
};

// Codes, scales and zero points in the plain layout of docs/formats.md.
class Quantized {
public:
    explicit Quantized(lowbit_quantized* handle) : handle_(handle, lowbit_quantized_destroy) {}
    // Over memory that stays the caller's.
    static Quantized borrow(const lowbit_quantized_view& view) {
        lowbit_quantized* made = nullptr;
        detail::check(lowbit_quantized_borrow(&view, &made));
        return Quantized(made);
    }

    lowbit_quantized_view view() const {
        lowbit_quantized_view view = LOWBIT_QUANTIZED_VIEW_INIT;
        detail::check(lowbit_quantized_get_view(c(), &view));
        return view;
    }
    Format format() const { return Format(view().format); }
    int64_t rows() const { return view().rows; }
    int64_t columns() const { return view().columns; }
    int64_t bytes() const { return format().measure(rows(), columns()).total_bytes; }
    const lowbit_quantized* c() const { return handle_.get(); }

private:
    std::unique_ptr<lowbit_quantized, void (*)(lowbit_quantized*)> handle_;
};

// A weight rearranged for the kernels of one device: one self-describing run of bytes.
class Packed {
public:
    explicit Packed(lowbit_packed* handle) : handle_(handle, lowbit_packed_destroy) {}
    static Packed borrow(const void* data, int64_t bytes) {
        lowbit_packed* made = nullptr;
        detail::check(lowbit_packed_borrow(data, bytes, &made));
        return Packed(made);
    }

    // A packed weight on any device, taken at its description's word.
    static Packed borrow(const lowbit_packed_view& view) {
        lowbit_packed* made = nullptr;
        detail::check(lowbit_packed_borrow_view(&view, &made));
        return Packed(made);
    }

    lowbit_packed_view view() const {
        lowbit_packed_view view = LOWBIT_PACKED_VIEW_INIT;
        detail::check(lowbit_packed_get_view(c(), &view));
        return view;
    }
    const void* data() const { return view().data; }
    int64_t bytes() const { return view().bytes; }
    const lowbit_packed* c() const { return handle_.get(); }

private:
    std::unique_ptr<lowbit_packed, void (*)(lowbit_packed*)> handle_;
};

// Scales that the caller knows already, in the layout and type of the format's planes.
struct StaticScales {
    const void* scales = nullptr;
    const uint8_t* zero_points = nullptr;
    const float* tensor_scale = nullptr;
};

namespace detail {

inline lowbit_quantize_args quantize_args(const Tensor& x, const std::string& format, const StaticScales& given) {
    lowbit_quantize_args args = LOWBIT_QUANTIZE_ARGS_INIT;
    args.x = x.c();
    args.format = format.c_str();
    args.scales = given.scales;
    args.zero_points = given.zero_points;
    args.tensor_scale = given.tensor_scale;
    return args;
}

}  // namespace detail

inline Quantized quantize(const Context& context, const Tensor& x, const Format& format, const StaticScales& scales = {}) {
    const std::string name = format.print();
    const lowbit_quantize_args args = detail::quantize_args(x, name, scales);
    lowbit_quantized* made = nullptr;
    detail::check(lowbit_quantize(context.c(), &args, &made));
    return Quantized(made);
}

inline void quantize_into(const Context& context, const Tensor& x, const lowbit_quantized_view& destination,
                          const StaticScales& scales = {}) {
    const std::string name = Format(destination.format).print();
    const lowbit_quantize_args args = detail::quantize_args(x, name, scales);
    detail::check(lowbit_quantize_into(context.c(), &args, &destination));
}

inline size_t quantize_workspace(const Context& context, const Tensor& x, const Format& format, const StaticScales& scales = {}) {
    const std::string name = format.print();
    const lowbit_quantize_args args = detail::quantize_args(x, name, scales);
    size_t bytes = 0;
    detail::check(lowbit_quantize_workspace(context.c(), &args, &bytes));
    return bytes;
}

inline void dequantize(const Context& context, const Quantized& quantized, const Tensor& y) {
    detail::check(lowbit_dequantize(context.c(), quantized.c(), &y.c()));
}

// y = x in the type of y: fp32, fp16, bf16, fp8_e4m3 and fp8_e5m2 into each other.
inline void convert(const Context& context, const Tensor& x, const Tensor& y) {
    detail::check(lowbit_convert(context.c(), &x.c(), &y.c()));
}

inline Packed pack(const Context& context, const Quantized& quantized) {
    lowbit_packed* made = nullptr;
    detail::check(lowbit_pack(context.c(), quantized.c(), &made));
    return Packed(made);
}

// The form into memory the caller brings; pack_bytes() says how much, aligned to 64.
inline int64_t pack_bytes(const Context& context, const Quantized& quantized) {
    int64_t bytes = 0;
    detail::check(lowbit_pack_bytes(context.c(), quantized.c(), &bytes));
    return bytes;
}
inline Packed pack_into(const Context& context, const Quantized& quantized, void* memory, int64_t bytes) {
    lowbit_packed* made = nullptr;
    detail::check(lowbit_pack_into(context.c(), quantized.c(), memory, bytes, &made));
    return Packed(made);
}

// The inverse of pack: fills the planes of a view of the weight's format and shape.
inline void unpack(const Context& context, const Packed& packed, const lowbit_quantized_view& destination) {
    detail::check(lowbit_unpack(context.c(), packed.c(), &destination));
}

// One side of a product; made from whatever holds the numbers, which must outlive the call.
class Operand {
public:
    Operand(const Tensor& tensor) : value_{&tensor.c(), nullptr, nullptr} {}
    Operand(const Quantized& quantized) : value_{nullptr, quantized.c(), nullptr} {}
    Operand(const Packed& packed) : value_{nullptr, nullptr, packed.c()} {}
    const lowbit_operand& c() const { return value_; }

private:
    lowbit_operand value_;
};

// y = activation(scale * row_scale[m] * column_scale[n] * product + bias[n]) + beta * y, stored in the type of y. With a gate the weight
// has 2N rows, and what is activated is what the first N give, times what the last N give; bias and column_scale have 2N values.
struct Epilogue {
    std::optional<Tensor> bias = std::nullopt;          // [N]
    std::optional<Tensor> row_scale = std::nullopt;     // [M], fp32
    std::optional<Tensor> column_scale = std::nullopt;  // [N], fp32
    float scale = 1.0f;
    Activation activation = Activation::none;
    float output_scale = 1.0f;  // int8 output
    std::string x_format = "";  // quantize a plain x to this format on the way
    bool gate = false;
    float beta = 0.0f;  // 0: what y holds is not read
};

namespace detail {

inline lowbit_matmul_args matmul_args(const Operand& x, const Operand& weight, const Tensor& y, const Epilogue& epilogue) {
    lowbit_matmul_args args = LOWBIT_MATMUL_ARGS_INIT;
    args.x = x.c();
    args.weight = weight.c();
    args.y = y.c();
    args.bias = epilogue.bias ? &epilogue.bias->c() : nullptr;
    args.row_scale = epilogue.row_scale ? &epilogue.row_scale->c() : nullptr;
    args.column_scale = epilogue.column_scale ? &epilogue.column_scale->c() : nullptr;
    args.scale = epilogue.scale;
    args.output_scale = epilogue.output_scale;
    args.activation = lowbit_activation(epilogue.activation);
    args.gate = epilogue.gate ? 1 : 0;
    args.x_format = epilogue.x_format.empty() ? nullptr : epilogue.x_format.c_str();
    args.beta = epilogue.beta;
    return args;
}

}  // namespace detail

inline void matmul(const Context& context, const Operand& x, const Operand& weight, const Tensor& y, const Epilogue& epilogue = {}) {
    const lowbit_matmul_args args = detail::matmul_args(x, weight, y, epilogue);
    detail::check(lowbit_matmul(context.c(), &args));
}

// c [M,N] = alpha a [M,K] . b [K,N] + beta c: fp32, fp16 or bf16 each, with any strides (a b that lies as [N,K] is its view transposed()).
// With beta = 0, c is not read.
inline void gemm(const Context& context, const Tensor& a, const Tensor& b, const Tensor& c, float alpha = 1.0f, float beta = 0.0f) {
    matmul(context, a, b.transposed(), c, {.scale = alpha, .beta = beta});
}

inline size_t matmul_workspace(const Context& context, const Operand& x, const Operand& weight, const Tensor& y,
                               const Epilogue& epilogue = {}) {
    const lowbit_matmul_args args = detail::matmul_args(x, weight, y, epilogue);
    size_t bytes = 0;
    detail::check(lowbit_matmul_workspace(context.c(), &args, &bytes));
    return bytes;
}

// Which kernel matmul would run for these arguments, and why the others were passed over.
inline std::string explain(const Context& context, const Operand& x, const Operand& weight, const Tensor& y,
                           const Epilogue& epilogue = {}) {
    const lowbit_matmul_args args = detail::matmul_args(x, weight, y, epilogue);
    return detail::text(
        [&](char* text, size_t capacity, size_t* length) { return lowbit_explain(context.c(), &args, text, capacity, length); });
}

// Images [images, channels, height, width] of numbers with any strides, or of signs as bits: a view that owns nothing.
class Images {
public:
    Images(void* data, Element element, const std::array<int64_t, 4>& shape, Device device = Device::cpu, int device_index = 0) {
        value_.data = data;
        value_.element = lowbit_element(element);
        value_.images = shape[0], value_.channels = shape[1], value_.height = shape[2], value_.width = shape[3];
        value_.device = lowbit_device(device);
        value_.device_index = device_index;
        const int64_t strides[4] = {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
        std::copy(std::begin(strides), std::end(strides), value_.strides);
    }
    explicit Images(const lowbit_images& value) : value_(value) {}

    // The same shape in memory that has the channels innermost.
    Images channels_last() const {
        Images result = *this;
        const int64_t row = value_.width * value_.channels;
        const int64_t strides[4] = {value_.height * row, 1, row, value_.channels};
        std::copy(std::begin(strides), std::end(strides), result.value_.strides);
        return result;
    }
    const lowbit_images& c() const { return value_; }

private:
    lowbit_images value_ = LOWBIT_IMAGES_INIT;
};

// Contiguous numbers, the last axis innermost.
template <class Number>
Images image_view(Number* data, const std::array<int64_t, 4>& shape, Device device = Device::cpu, int device_index = 0) {
    return Images(const_cast<std::remove_const_t<Number>*>(data), element_of<Number>(), shape, device, device_index);
}
// Bits as sign_bits makes them.
inline Images bits_view(const uint8_t* bits, const std::array<int64_t, 4>& shape, Device device = Device::cpu, int device_index = 0) {
    return Images(const_cast<uint8_t*>(bits), Element::int1, shape, device, device_index);
}

// How many bytes the signs of numbers of this shape take.
inline size_t sign_bits_bytes(const std::array<int64_t, 4>& shape, int64_t groups = 1) {
    return size_t(shape[0] * shape[2] * shape[3] * groups * ((shape[1] / groups + 7) / 8));
}
inline void sign_bits(const Context& context, const Images& x, uint8_t* bits, size_t bytes, int64_t groups = 1) {
    detail::check(lowbit_sign_bits(context.c(), &x.c(), groups, bits, bytes));
}

// Two numbers are for down and across.
struct Convolution {
    std::array<int64_t, 2> stride = {1, 1};
    std::array<int64_t, 4> padding = {0, 0, 0, 0};  // top, bottom, left, right
    std::array<int64_t, 2> dilation = {1, 1};
    int64_t groups = 1;
    std::optional<Tensor> scale = std::nullopt;  // [outputs], fp32
    std::optional<Tensor> bias = std::nullopt;   // [outputs]
};

namespace detail {

inline lowbit_binary_conv2d_args binary_conv2d_args(const Images& x, const Images& weight, const Images& y, const Convolution& how) {
    lowbit_binary_conv2d_args args = LOWBIT_BINARY_CONV2D_ARGS_INIT;
    args.x = x.c();
    args.weight = weight.c();
    args.y = y.c();
    args.scale = how.scale ? &how.scale->c() : nullptr;
    args.bias = how.bias ? &how.bias->c() : nullptr;
    std::copy(how.stride.begin(), how.stride.end(), args.stride);
    std::copy(how.padding.begin(), how.padding.end(), args.padding);
    std::copy(how.dilation.begin(), how.dilation.end(), args.dilation);
    args.groups = how.groups;
    return args;
}

}  // namespace detail

// y = scale[output] * (sign(x) convolved with sign(weight)) + bias[output]: exact sums, to which the padding adds nothing. x and weight are
// numbers, or bits. weight: [outputs, channels of a group, kernel height, kernel width].
inline void binary_conv2d(const Context& context, const Images& x, const Images& weight, const Images& y, const Convolution& how = {}) {
    const lowbit_binary_conv2d_args args = detail::binary_conv2d_args(x, weight, y, how);
    detail::check(lowbit_binary_conv2d(context.c(), &args));
}

inline size_t binary_conv2d_workspace(const Context& context, const Images& x, const Images& weight, const Images& y,
                                      const Convolution& how = {}) {
    const lowbit_binary_conv2d_args args = detail::binary_conv2d_args(x, weight, y, how);
    size_t bytes = 0;
    detail::check(lowbit_binary_conv2d_workspace(context.c(), &args, &bytes));
    return bytes;
}

// Which kernel binary_conv2d would run for these arguments, and why the others were passed over.
inline std::string explain(const Context& context, const Images& x, const Images& weight, const Images& y, const Convolution& how = {}) {
    const lowbit_binary_conv2d_args args = detail::binary_conv2d_args(x, weight, y, how);
    return detail::text([&](char* text, size_t capacity, size_t* length) {
        return lowbit_binary_conv2d_explain(context.c(), &args, text, capacity, length);
    });
}

// This machine and every kernel, as JSON.
inline std::string info() {
    return detail::text([](char* text, size_t capacity, size_t* length) { return lowbit_info(text, capacity, length); });
}

}  // namespace lowbit
