// Convolutions of signs, the obvious way: one product after the other, and none for a tap that lies in the padding.
#include "reference/convolution.hpp"

#include <algorithm>

namespace lowbit::reference {
namespace {

using core::BinaryConvProblem;

// The sign of a channel in bits that start at `bytes`.
int sign(const uint8_t* bytes, int64_t channel) { return bytes[channel / 8] >> (channel % 8) & 1 ? -1 : 1; }

int32_t sum(const BinaryConvProblem& problem, int64_t image, int64_t output, int64_t row, int64_t column) {
    const core::ConvolutionAxis &down = problem.down, &across = problem.across;
    const int64_t channel_bytes = core::bytes_of_bits(problem.channels), group = output / problem.group_outputs();
    int32_t result = 0;
    for (int64_t tap_row = 0; tap_row < down.kernel; ++tap_row)
        for (int64_t tap_column = 0; tap_column < across.kernel; ++tap_column) {
            const int64_t y = row * down.stride - down.before + tap_row * down.dilation;
            const int64_t x = column * across.stride - across.before + tap_column * across.dilation;
            if (y < 0 || y >= down.size || x < 0 || x >= across.size) continue;
            const uint8_t* pixel = problem.x + ((image * down.size + y) * across.size + x) * problem.pixel_bytes() + group * channel_bytes;
            const uint8_t* tap = problem.weight + ((output * down.kernel + tap_row) * across.kernel + tap_column) * channel_bytes;
            for (int64_t channel = 0; channel < problem.channels; ++channel) result += sign(pixel, channel) * sign(tap, channel);
        }
    return result;
}

void store(const BinaryConvProblem& problem, int64_t output, int64_t offset, int32_t sum) {
    const core::Images& y = problem.y;
    if (y.element == Element::int32) {
        static_cast<int32_t*>(y.data)[offset] = sum;
        return;
    }
    auto value = float(sum);
    if (problem.scale) value *= core::load(*problem.scale, 0, output);
    if (problem.bias) value += core::load(*problem.bias, 0, output);
    core::store(y.element, y.data, offset, value);
}

}  // namespace

void sign_bits(const core::SignBitsProblem& problem) {
    const core::Images& x = problem.x;
    std::fill_n(problem.bits, core::bits_bytes(x, problem.groups), uint8_t(0));
    const int64_t channels = x.channels / problem.groups, channel_bytes = core::bytes_of_bits(channels);
    uint8_t* bits = problem.bits;
    for (int64_t image = 0; image < x.images; ++image)
        for (int64_t row = 0; row < x.height; ++row)
            for (int64_t column = 0; column < x.width; ++column)
                for (int64_t group = 0; group < problem.groups; ++group) {
                    for (int64_t channel = 0; channel < channels; ++channel)
                        if (core::load(x.element, x.data, x.offset(image, group * channels + channel, row, column)) < 0.0f)
                            bits[channel / 8] = uint8_t(bits[channel / 8] | 1 << channel % 8);
                    bits += channel_bytes;
                }
}

void binary_conv2d(const BinaryConvProblem& problem) {
    for (int64_t image = 0; image < problem.images; ++image)
        for (int64_t output = 0; output < problem.outputs; ++output)
            for (int64_t row = 0; row < problem.y.height; ++row)
                for (int64_t column = 0; column < problem.y.width; ++column)
                    store(problem, output, problem.y.offset(image, output, row, column), sum(problem, image, output, row, column));
}

}  // namespace lowbit::reference
