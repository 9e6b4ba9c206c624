// Convolutions of signs: an image's and a weight's numbers are -1 (below 0) or +1, so every result is an exact integer, and a pixel of the
// padding adds nothing to it.
//
// Bits of images are [image][row][column][group][byte]: the channels of a group lie innermost, 8 to a byte, the first in the lowest bit, 1
// for -1, and fill up a byte with zeros. Those of a weight are the same with outputs as images and one group.
#pragma once
#include <algorithm>
#include <optional>

#include "core/context.hpp"
#include "core/tensor.hpp"

namespace lowbit::core {

// Numbers [images][channels][height][width] with any strides, which count elements; or bits (element int1), which have none.
struct Images {
    void* data = nullptr;
    Element element = Element::fp32;
    int64_t images = 0, channels = 0, height = 0, width = 0;
    int64_t strides[4] = {};  // of image, channel, row, column
    Device device = Device::cpu;
    int device_index = 0;

    bool is_bits() const { return element == Element::int1; }
    bool is_empty() const { return images == 0 || channels == 0 || height == 0 || width == 0; }
    int64_t pixels() const { return images * height * width; }
    int64_t offset(int64_t image, int64_t channel, int64_t row, int64_t column) const {
        return image * strides[0] + channel * strides[1] + row * strides[2] + column * strides[3];
    }
};

inline int64_t bytes_of_bits(int64_t channels) { return (channels + 7) / 8; }
// Of all bits of images with channels in groups.
int64_t bits_bytes(const Images& images, int64_t groups);

// One of the two axes of a convolution.
struct ConvolutionAxis {
    int64_t size = 0, kernel = 1, stride = 1, before = 0, after = 0, dilation = 1;

    int64_t reach() const { return dilation * (kernel - 1) + 1; }
    int64_t positions() const { return size + before + after < reach() ? 0 : (size + before + after - reach()) / stride + 1; }
    // The taps of an output position that lie inside of the image, not in the padding: [first, end), which may be empty.
    struct Taps {
        int64_t first, end;
        bool operator==(const Taps&) const = default;
    };
    Taps inside(int64_t position) const {
        const int64_t start = position * stride - before;  // of tap 0
        const int64_t first = start >= 0 ? 0 : (-start + dilation - 1) / dilation;
        const int64_t end = size > start ? (size - start + dilation - 1) / dilation : 0;
        return {std::min(first, kernel), std::max(std::min(end, kernel), std::min(first, kernel))};
    }
};

// bits = signs of x.
struct SignBitsProblem {
    static constexpr const char* verb = "sign_bits";
    const Context* context = nullptr;
    Images x;  // numbers: fp32, fp16 or bf16
    int64_t groups = 1;
    uint8_t* bits = nullptr;
    void* scratch = nullptr;
};

// y = scale[output] * conv2d(sign(x), sign(weight)) + bias[output], each step in fp32, rounded once; int32: the integers themselves.
struct BinaryConvProblem {
    static constexpr const char* verb = "binary_conv2d";
    const Context* context = nullptr;
    const uint8_t* x = nullptr;       // bits of `images` images of groups * channels channels, down.size x across.size pixels
    const uint8_t* weight = nullptr;  // bits [outputs][down.kernel][across.kernel][bytes of a group's channels]
    int64_t images = 0, channels = 0, outputs = 0, groups = 1;  // channels: of a group; outputs: of all groups
    ConvolutionAxis down, across;
    std::optional<Tensor> scale, bias;  // fp32 vectors, one number for each output
    Images y;                           // fp32, fp16, bf16 or int32
    void* scratch = nullptr;

    int64_t group_outputs() const { return outputs / groups; }
    int64_t pixel_bytes() const { return groups * bytes_of_bits(channels); }
    int64_t taps() const { return down.kernel * across.kernel; }
    int64_t weight_row_bytes() const { return taps() * bytes_of_bits(channels); }
};

// Numbers that a call takes the signs of on its way.
void check_numbers(const char* verb, const char* argument, const Images& numbers, const Context& context);

void check(const SignBitsProblem& problem);
void check(const BinaryConvProblem& problem);

}  // namespace lowbit::core
