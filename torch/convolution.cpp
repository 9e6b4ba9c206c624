// Binary convolutions, and the signs of images as bits.
#include <torch/csrc/stable/ops.h>

#include "call.hpp"
#include "ops.hpp"

namespace lowbit_torch {
namespace {

constexpr const char* verb = "binary_conv2d";

bool is_bits(const Tensor& tensor) { return dtype_of(tensor) == aoti_torch_dtype_uint8(); }

int64_t bytes_of_bits(int64_t channels) { return channels / 8 + (channels % 8 != 0); }

std::string shape(const Tensor& tensor) {
    std::string text = "[";
    for (int64_t i = 0; i < tensor.dim(); ++i) text += (i ? ", " : "") + std::to_string(tensor.size(i));
    return text + "]";
}

void require_rank(const char* call, const char* argument, const Tensor& tensor, int64_t rank, const char* accepted) {
    if (tensor.dim() != rank) refuse(std::string(call) + ": " + argument + " has shape " + shape(tensor) + "; use " + accepted);
}

// Whether the elements lie without gaps, the first axis of `order` innermost; as torch sees it.
bool lies_in_order(const Tensor& tensor, const int64_t (&order)[4]) {
    int64_t expected = 1;
    for (const int64_t axis : order) {
        if (tensor.size(axis) == 1) continue;
        if (tensor.stride(axis) != expected) return false;
        expected *= tensor.size(axis);
    }
    return true;
}

bool is_channels_last(const Tensor& tensor) {
    for (int64_t axis = 0; axis < 4; ++axis)
        if (tensor.size(axis) == 0) return false;
    return lies_in_order(tensor, {1, 3, 2, 0}) && !lies_in_order(tensor, {3, 2, 1, 0});
}

lowbit_images on_place(const Place& place) {
    lowbit_images images = LOWBIT_IMAGES_INIT;
    images.device = place.device;
    images.device_index = place.index;
    return images;
}

// Numbers [images, channels, height, width] with any strides.
lowbit_images as_images(const char* call, const char* argument, const Tensor& tensor) {
    lowbit_images images = on_place(place_of(tensor));
    images.data = tensor.data_ptr();
    images.element = element_of_dtype(call, argument, dtype_of(tensor));
    images.images = tensor.size(0), images.channels = tensor.size(1), images.height = tensor.size(2), images.width = tensor.size(3);
    for (int64_t axis = 0; axis < 4; ++axis) images.strides[axis] = tensor.stride(axis);
    return images;
}

// One side of a convolution and the memory it lies in.
struct Side {
    Tensor held{nullptr};
    lowbit_images view = LOWBIT_IMAGES_INIT;
};

Side bits_side(const Tensor& bits, int64_t images, int64_t channels, int64_t height, int64_t width) {
    Side side{torch::stable::contiguous(bits), on_place(place_of(bits))};
    side.view.data = side.held.data_ptr();
    side.view.element = LOWBIT_INT1;
    side.view.images = images, side.view.channels = channels, side.view.height = height, side.view.width = width;
    return side;
}

Side read_x(const Tensor& x, int64_t groups, int64_t channels) {
    if (!is_bits(x)) {
        require_rank(verb, "x", x, 4, "[images, channels, height, width]");
        return {x, as_images(verb, "x", x)};
    }
    require_rank(verb, "x", x, 4, "bits [images, height, width, bytes]");
    if (groups < 1 || channels < 0 || x.size(3) % groups != 0 || x.size(3) / groups != bytes_of_bits(channels))
        refuse("binary_conv2d: x has " + std::to_string(x.size(3)) + " bytes for each pixel, but " + std::to_string(groups) +
               " groups of " + std::to_string(channels) + " channels take " + std::to_string(bytes_of_bits(channels)) + " each");
    return bits_side(x, x.size(0), groups * channels, x.size(1), x.size(2));
}

Side read_weight(const Tensor& weight, const std::vector<int64_t>& kernel, int64_t channels) {
    const int64_t height = kernel[0], width = kernel[1];
    if (!is_bits(weight)) {
        require_rank(verb, "weight", weight, 4, "[outputs, channels / groups, height, width]");
        if (weight.size(1) != channels || weight.size(2) != height || weight.size(3) != width)
            refuse("binary_conv2d: weight has shape " + shape(weight) + ", but channels = " + std::to_string(channels) +
                   " and kernel = " + std::to_string(height) + ", " + std::to_string(width));
        return {weight, as_images(verb, "weight", weight)};
    }
    require_rank(verb, "weight", weight, 2, "bits [outputs, bytes]");
    const int64_t bytes = bytes_of_bits(channels);
    const bool known = height > 0 && width > 0 && channels >= 0;
    if (!known ||
        (bytes == 0 ? weight.size(1) != 0
                    : weight.size(1) % bytes != 0 || weight.size(1) / bytes / height != width || weight.size(1) / bytes % height != 0))
        refuse("binary_conv2d: weight has " + std::to_string(weight.size(1)) + " bytes for each output, but a kernel of " +
               std::to_string(height) + " x " + std::to_string(width) + " with " + std::to_string(channels) + " channels takes " +
               std::to_string(bytes) + " for each place");
    return bits_side(weight, weight.size(0), channels, height, width);
}

int64_t positions(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
    const int64_t room = size + padding - dilation * (kernel - 1) - 1;
    return room < 0 || stride < 1 ? 0 : room / stride + 1;  // the call itself says what is wrong
}

void require_count(const char* argument, const std::vector<int64_t>& values, size_t count) {
    if (values.size() != count)
        refuse(std::string(verb) + ": " + argument + " has " + std::to_string(values.size()) + " numbers; use " + std::to_string(count));
}

class Convolution {
public:
    explicit Convolution(Stack& stack) {
        const Tensor x = stack.tensor();
        const Tensor weight = stack.tensor();
        scale_ = stack.optional_tensor();
        bias_ = stack.optional_tensor();
        const std::vector<int64_t> kernel = stack.integers(), stride = stack.integers(), padding = stack.integers(),
                                   dilation = stack.integers();
        args_.groups = stack.integer();
        const int64_t channels = stack.integer();
        const int32_t dtype = stack.dtype();

        require_count("kernel", kernel, 2), require_count("stride", stride, 2);
        require_count("padding", padding, 4), require_count("dilation", dilation, 2);
        std::copy(stride.begin(), stride.end(), args_.stride);
        std::copy(padding.begin(), padding.end(), args_.padding);
        std::copy(dilation.begin(), dilation.end(), args_.dilation);
        place_ = place_of(x);
        require_place(verb, "weight", weight, place_, "x");
        x_ = read_x(x, args_.groups, channels);
        weight_ = read_weight(weight, kernel, channels);
        args_.x = x_.view;
        args_.weight = weight_.view;
        args_.scale = read_vector("scale", scale_, scale_view_);
        args_.bias = read_vector("bias", bias_, bias_view_);
        const int64_t height = positions(x_.view.height, kernel[0], stride[0], padding[0] + padding[1], dilation[0]);
        const int64_t width = positions(x_.view.width, kernel[1], stride[1], padding[2] + padding[3], dilation[1]);
        y_ = allocate_result({x_.view.images, weight_.view.images, height, width}, is_bits(x) || is_channels_last(x), dtype);
        args_.y = as_images(verb, "dtype", y_);
    }
    Convolution(const Convolution&) = delete;
    Convolution& operator=(const Convolution&) = delete;

    const Place& place() const { return place_; }
    const lowbit_binary_conv2d_args& args() const { return args_; }
    const Tensor& result() const { return y_; }

private:
    const lowbit_tensor* read_vector(const char* argument, const std::optional<Tensor>& tensor, lowbit_tensor& view) const {
        if (!tensor) return nullptr;
        require_place(verb, argument, *tensor, place_, "x");
        view = as_vector(verb, argument, *tensor);
        return &view;
    }

    Tensor allocate_result(const std::vector<int64_t>& sizes, bool channels_last, int32_t dtype) const {
        if (!channels_last) return allocate(sizes, dtype, place_);
        const int64_t row = sizes[1] * sizes[3];
        return allocate(sizes, {row * sizes[2], 1, row, sizes[1]}, dtype, place_);
    }

    Side x_, weight_;
    std::optional<Tensor> scale_, bias_;
    lowbit_tensor scale_view_ = LOWBIT_TENSOR_INIT, bias_view_ = LOWBIT_TENSOR_INIT;
    Place place_;
    Tensor y_{nullptr};
    lowbit_binary_conv2d_args args_ = LOWBIT_BINARY_CONV2D_ARGS_INIT;
};

}  // namespace

void binary_conv2d(StableIValue* values, uint64_t, uint64_t) {
    Stack stack(values);
    const Convolution convolution(stack);
    Call call(convolution.place());
    size_t workspace = 0;
    check(lowbit_binary_conv2d_workspace(call.context(), &convolution.args(), &workspace));
    call.give_workspace(workspace);
    check(lowbit_binary_conv2d(call.context(), &convolution.args()));
    stack.give(convolution.result());
}

void sign_bits(StableIValue* values, uint64_t, uint64_t) {
    Stack stack(values);
    const Tensor x = stack.tensor();
    const int64_t groups = stack.integer();

    require_rank("sign_bits", "x", x, 4, "[images, channels, height, width]");
    const lowbit_images images = as_images("sign_bits", "x", x);
    const Place place = place_of(x);
    const int64_t bytes = groups < 1 ? 0 : groups * bytes_of_bits(images.channels / groups);
    const Tensor bits = allocate({images.images, images.height, images.width, bytes}, aoti_torch_dtype_uint8(), place);
    const Call call(place);
    check(lowbit_sign_bits(call.context(), &images, groups, bits.data_ptr(), size_t(bits.numel())));
    stack.give(bits);
}

}  // namespace lowbit_torch
