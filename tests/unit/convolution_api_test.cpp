// Binary convolutions through lowbit.h and lowbit.hpp: numbers and bits in every mixture, and bad input, which leaves outputs alone.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "cuda/devices.hpp"
#include "cuda/memory.hpp"
#include "lowbit/lowbit.hpp"
#include "verify/random.hpp"
#include "verify/verify.hpp"

namespace lowbit {
namespace {

constexpr float untouched = -77.25f;

float sign(float value) { return value < 0 ? -1.0f : 1.0f; }

// 2 x 6 x 5 x 4 images, 4 outputs of 3 x 3 with one pixel around, in one group or two.
struct Example {
    static constexpr std::array<int64_t, 4> x_shape = {2, 6, 5, 4}, y_shape = {2, 4, 5, 4};
    int64_t groups = 1;
    std::vector<float> x = verify::normal_values(2 * 6 * 5 * 4, 1), weight, scale = {0.5f, -2.0f, 3.0f, 0.25f},
                       bias = {1.0f, 2.0f, -3.0f, 4.0f};

    explicit Example(int64_t groups_of_it) : groups(groups_of_it), weight(verify::normal_values(4 * channels() * 9, 2)) {}
    int64_t channels() const { return 6 / groups; }
    std::array<int64_t, 4> weight_shape() const { return {4, channels(), 3, 3}; }

    std::vector<float> expected(bool with_scale, bool with_bias) const {
        std::vector<float> y;
        for (int64_t image = 0; image < 2; ++image)
            for (int64_t output = 0; output < 4; ++output)
                for (int64_t row = 0; row < 5; ++row)
                    for (int64_t column = 0; column < 4; ++column) {
                        float sum = 0;
                        for (int64_t channel = 0; channel < channels(); ++channel)
                            for (int64_t i = -1; i <= 1; ++i)
                                for (int64_t j = -1; j <= 1; ++j) {
                                    if (row + i < 0 || row + i >= 5 || column + j < 0 || column + j >= 4) continue;
                                    const int64_t from = output / (4 / groups) * channels() + channel;
                                    sum += sign(x[size_t(((image * 6 + from) * 5 + row + i) * 4 + column + j)]) *
                                           sign(weight[size_t(((output * channels() + channel) * 3 + i + 1) * 3 + j + 1)]);
                                }
                        y.push_back(sum * (with_scale ? scale[size_t(output)] : 1.0f) + (with_bias ? bias[size_t(output)] : 0.0f));
                    }
        return y;
    }
};

TEST(ConvolutionApi, NumbersAndBitsInEveryMixture) {
    const Context context = Context::cpu();
    for (const int64_t groups : {1, 2}) {
        Example example(groups);
        std::vector<uint8_t> x_bits(sign_bits_bytes(Example::x_shape, groups)), weight_bits(sign_bits_bytes(example.weight_shape()));
        const Images x = image_view(example.x.data(), Example::x_shape), weight = image_view(example.weight.data(), example.weight_shape());
        sign_bits(context, x, x_bits.data(), x_bits.size(), groups);
        sign_bits(context, weight, weight_bits.data(), weight_bits.size());
        const Images packed_x = bits_view(x_bits.data(), Example::x_shape),
                     packed_weight = bits_view(weight_bits.data(), example.weight_shape());
        for (const Images& image : {x, packed_x})
            for (const Images& filters : {weight, packed_weight})
                for (const bool with_scale : {false, true})
                    for (const bool with_bias : {false, true}) {
                        std::vector<float> y(2 * 4 * 5 * 4, untouched);
                        Convolution how{.padding = {1, 1, 1, 1}, .groups = groups};
                        if (with_scale) how.scale = view(example.scale.data(), {4});
                        if (with_bias) how.bias = view(example.bias.data(), {4});
                        binary_conv2d(context, image, filters, image_view(y.data(), Example::y_shape), how);
                        EXPECT_EQ(y, example.expected(with_scale, with_bias));
                    }
        std::vector<int32_t> counts(2 * 4 * 5 * 4, 7);
        binary_conv2d(context, x, packed_weight, image_view(counts.data(), Example::y_shape), {.padding = {1, 1, 1, 1}, .groups = groups});
        EXPECT_EQ(std::vector<float>(counts.begin(), counts.end()), example.expected(false, false));
    }
}

TEST(ConvolutionApi, ChannelsLastAndNarrowNumbers) {
    const Context context = Context::cpu();
    Example example(1);
    const std::vector<float> wanted = example.expected(true, true);
    // The bias in 16 bits: 1, 2, -3 and 4 in bf16 and fp16.
    std::vector<uint16_t> as_bf16 = {0x3f80, 0x4000, 0xc040, 0x4080}, as_fp16 = {0x3c00, 0x4000, 0xc200, 0x4400};
    for (const Tensor& bias : {view(reinterpret_cast<bf16*>(as_bf16.data()), {4}), view(reinterpret_cast<fp16*>(as_fp16.data()), {4})}) {
        std::vector<float> y(wanted.size(), untouched);
        binary_conv2d(context, image_view(example.x.data(), Example::x_shape), image_view(example.weight.data(), example.weight_shape()),
                      image_view(y.data(), Example::y_shape).channels_last(),
                      {.padding = {1, 1, 1, 1}, .scale = view(example.scale.data(), {4}), .bias = bias});
        for (int64_t i = 0; i < int64_t(wanted.size()); ++i) {
            const int64_t pixel = i % 20, output = i / 20 % 4, image = i / 80;
            EXPECT_EQ(y[size_t((image * 20 + pixel) * 4 + output)], wanted[size_t(i)]);
        }
    }
}

TEST(ConvolutionApi, SaysWhichKernelRuns) {
    Context context = Context::cpu();
    Example example(1);
    std::vector<float> y(2 * 4 * 5 * 4);
    const Images x = image_view(example.x.data(), Example::x_shape), weight = image_view(example.weight.data(), example.weight_shape()),
                 result = image_view(y.data(), Example::y_shape);
    const Convolution how{.padding = {1, 1, 1, 1}};
    EXPECT_EQ(binary_conv2d_workspace(context, x, weight, result, how), 0u);
    EXPECT_NE(explain(context, x, weight, result, how).find("chosen: cpu_"), std::string::npos);
    context.set_kernel("reference");
    EXPECT_EQ(explain(context, x, weight, result, how), "chosen: reference");
    binary_conv2d(context, x, weight, result, how);
    EXPECT_EQ(y, example.expected(false, false));
    const std::string kernels = info();
    for (const char* text :
         {"\"verb\": \"sign_bits\", \"name\": \"cpu_sign_bits\"", "\"verb\": \"binary_conv2d\", \"name\": \"reference\""})
        EXPECT_NE(kernels.find(text), std::string::npos) << text;
}

TEST(ConvolutionApi, EmptyResults) {
    const Context context = Context::cpu();
    std::vector<float> numbers(6 * 6 * 9), y(4 * 16, untouched);
    const Images weight = image_view(numbers.data(), {4, 6, 3, 3});
    binary_conv2d(context, image_view<float>(nullptr, {0, 6, 5, 5}), weight, image_view<float>(nullptr, {0, 4, 3, 3}));
    binary_conv2d(context, image_view(numbers.data(), {1, 6, 5, 5}), image_view<float>(nullptr, {0, 6, 3, 3}),
                  image_view<float>(nullptr, {1, 0, 3, 3}));
    std::vector<float> scale = {2.0f, 2.0f, 2.0f, 2.0f}, bias = {1.0f, 2.0f, 3.0f, 4.0f};
    binary_conv2d(context, image_view<float>(nullptr, {1, 0, 6, 6}), image_view<float>(nullptr, {4, 0, 3, 3}),
                  image_view(y.data(), {1, 4, 4, 4}), {.scale = view(scale.data(), {4}), .bias = view(bias.data(), {4})});
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], bias[i / 16]);
    sign_bits(context, image_view<float>(nullptr, {2, 0, 3, 3}), nullptr, 0);
}

void expect_failure(lowbit_status status, const std::string& mentions) {
    EXPECT_EQ(status, LOWBIT_INVALID_ARGUMENT) << mentions;
    EXPECT_NE(std::string(lowbit_last_error()).find(mentions), std::string::npos)
        << "wanted \"" << mentions << "\", got \"" << lowbit_last_error() << '"';
}

TEST(ConvolutionApi, EverySpoiledArgumentIsNamed) {
    const Context context = Context::cpu();
    Example example(1);
    std::vector<float> y(2 * 4 * 5 * 4, untouched);
    lowbit_tensor scale = lowbit_vector(example.scale.data(), LOWBIT_FP32, 4), bias = lowbit_vector(example.bias.data(), LOWBIT_FP32, 4);
    lowbit_binary_conv2d_args good = LOWBIT_BINARY_CONV2D_ARGS_INIT;
    good.x = image_view(example.x.data(), Example::x_shape).c();
    good.weight = image_view(example.weight.data(), example.weight_shape()).c();
    good.y = image_view(y.data(), Example::y_shape).c();
    for (int64_t& pixels : good.padding) pixels = 1;
    const int64_t huge = std::numeric_limits<int64_t>::max();
    const lowbit_tensor good_scale = scale, good_bias = bias;
    struct Spoiled {
        const char* mentions;
        std::function<void(lowbit_binary_conv2d_args&)> spoil;
    };
    const Spoiled table[] = {
        {"args.size = 3", [](auto& a) { a.size = 3; }},
        {"x.size = 0", [](auto& a) { a.x.size = 0; }},
        {"weight.size = 5", [](auto& a) { a.weight.size = 5; }},
        {"x.device = 7; use LOWBIT_CPU or LOWBIT_CUDA", [](auto& a) { a.x.device = lowbit_device(7); }},
        {"x is a null pointer", [](auto& a) { a.x.data = nullptr; }},
        {"weight is a null pointer", [](auto& a) { a.weight.data = nullptr; }},
        {"weight is a null pointer", [](auto& a) { a.weight.data = nullptr, a.weight.element = LOWBIT_INT1; }},
        {"y is a null pointer", [](auto& a) { a.y.data = nullptr; }},
        {"x has 5 channels but the weight takes 6 (1 groups of 6)", [](auto& a) { a.x.channels = 5; }},
        {"x has 6 channels but the weight takes 12 (2 groups of 6)", [](auto& a) { a.groups = 2; }},
        {"groups = 3 does not divide the 4 outputs of the weight", [](auto& a) { a.groups = 3; }},
        {"groups = 0 does not divide", [](auto& a) { a.groups = 0; }},
        {"groups = -1 does not divide", [](auto& a) { a.groups = -1; }},
        {"stride = 0, 1; use integers of at least 1", [](auto& a) { a.stride[0] = 0; }},
        {"dilation = 1, 0; use", [](auto& a) { a.dilation[1] = 0; }},
        {"padding (left, right) = 1, -1; use", [](auto& a) { a.padding[3] = -1; }},
        {"padding (top, bottom) = 9223372036854775807, 1; use", [huge](auto& a) { a.padding[0] = huge; }},
        {"a kernel of 3 x 3 (dilation 4, 1) is larger than x, 5 x 4 with padding 1, 1, 1, 1", [](auto& a) { a.dilation[0] = 4; }},
        {"kernel = 0, 3; use", [](auto& a) { a.weight.height = 0; }},
        {"x has shape -2 x 6 x 5 x 4", [](auto& a) { a.x.images = -2; }},
        {"does not fit in 64 bits", [huge](auto& a) { a.x.images = huge; }},
        {"does not fit in 64 bits", [huge](auto& a) { a.x.images = huge, a.x.element = LOWBIT_INT1; }},
        {"does not fit in 64 bits", [huge](auto& a) { a.groups = 4, a.weight.channels = huge; }},
        {"y is 2 x 4 x 5 x 4 but the convolution gives 2 x 4 x 3 x 4", [](auto& a) { a.padding[0] = a.padding[1] = 0; }},
        {"x has strides 120, 20, -4, 1", [](auto& a) { a.x.strides[2] = -4; }},
        {"y has strides 80, 0, 4, 1 with shape 2 x 4 x 5 x 4, so its elements overlap", [](auto& a) { a.y.strides[1] = 0; }},
        {"not aligned to its 4-byte elements", [](auto& a) { a.x.data = static_cast<char*>(a.x.data) + 1; }},
        {"x is int8; use fp32, fp16 or bf16", [](auto& a) { a.x.element = LOWBIT_INT8; }},
        {"weight is int32; use fp32, fp16 or bf16", [](auto& a) { a.weight.element = LOWBIT_INT32; }},
        {"use fp32, fp16 or bf16", [](auto& a) { a.x.element = lowbit_element(77); }},
        {"y is int1; use fp32, fp16, bf16 or int32", [](auto& a) { a.y.element = LOWBIT_INT1; }},
        {"use fp32, fp16, bf16 or int32", [](auto& a) { a.y.element = lowbit_element(77); }},
        {"x is on cuda:0, but the context is on cpu:0", [](auto& a) { a.x.device = LOWBIT_CUDA; }},
        {"weight is on cuda:0", [](auto& a) { a.weight.device = LOWBIT_CUDA, a.weight.element = LOWBIT_INT1; }},
        {"scale has 3 values, but the weight has 4 outputs", [&](auto& a) { scale.shape[0] = 3, a.scale = &scale; }},
        {"scale is fp16; use fp32", [&](auto& a) { scale.element = LOWBIT_FP16, a.scale = &scale; }},
        {"bias has 5 values, but the weight has 4 outputs", [&](auto& a) { bias.shape[0] = 5, a.bias = &bias; }},
        {"bias has 5 values", [&](auto& a) { bias.shape[0] = 5, bias.element = LOWBIT_BF16, a.bias = &bias; }},
        {"bias is int32; use fp32", [&](auto& a) { bias.element = LOWBIT_INT32, a.bias = &bias; }},
        {"bias is a null pointer", [&](auto& a) { bias.data = nullptr, a.bias = &bias; }},
        {"bias has rank 7", [&](auto& a) { bias.rank = 7, a.bias = &bias; }},
        {"it takes no scale and no bias", [&](auto& a) { a.y.element = LOWBIT_INT32, a.scale = &scale; }},
        {"y overlaps x", [](auto& a) { a.x.data = a.y.data, a.x.strides[0] = 0; }},
        {"y overlaps weight", [](auto& a) { a.weight.data = a.y.data, a.weight.strides[0] = 0; }},
        {"y overlaps bias", [&](auto& a) { bias.data = a.y.data, bias.element = LOWBIT_BF16, a.bias = &bias; }},
    };
    for (const Spoiled& row : table) {
        lowbit_binary_conv2d_args call = good;
        row.spoil(call);
        expect_failure(lowbit_binary_conv2d(context.c(), &call), row.mentions);
        for (const float value : y) EXPECT_EQ(value, untouched) << row.mentions;
        char text[16];
        EXPECT_EQ(lowbit_binary_conv2d_explain(context.c(), &call, text, sizeof(text), nullptr), LOWBIT_INVALID_ARGUMENT) << row.mentions;
        scale = good_scale, bias = good_bias;
    }
    expect_failure(lowbit_binary_conv2d(nullptr, &good), "context is a null pointer");
    expect_failure(lowbit_binary_conv2d(context.c(), nullptr), "args is a null pointer");
    expect_failure(lowbit_binary_conv2d_workspace(context.c(), &good, nullptr), "bytes is a null pointer");
    EXPECT_EQ(lowbit_binary_conv2d(context.c(), &good), LOWBIT_OK) << lowbit_last_error();
    EXPECT_EQ(y, example.expected(false, false));
}

TEST(ConvolutionApi, NewerAndOlderStructs) {
    const Context context = Context::cpu();
    Example example(1);
    std::vector<float> y(2 * 4 * 3 * 2, untouched);
    struct Newer {
        lowbit_binary_conv2d_args args = LOWBIT_BINARY_CONV2D_ARGS_INIT;
        uint64_t unknown = 0;
    } newer;
    newer.args.size = sizeof(newer);
    newer.args.x = image_view(example.x.data(), Example::x_shape).c();
    newer.args.weight = image_view(example.weight.data(), example.weight_shape()).c();
    newer.args.y = image_view(y.data(), {2, 4, 3, 2}).c();
    EXPECT_EQ(lowbit_binary_conv2d(context.c(), &newer.args), LOWBIT_OK) << lowbit_last_error();
    newer.unknown = 1;
    expect_failure(lowbit_binary_conv2d(context.c(), &newer.args), "does not know");
    newer.args.groups = 77;
    newer.args.size = offsetof(lowbit_binary_conv2d_args, groups);
    EXPECT_EQ(lowbit_binary_conv2d(context.c(), &newer.args), LOWBIT_OK) << lowbit_last_error();
}

TEST(ConvolutionApi, SignBitsRefusesAndLeavesBitsAlone) {
    const Context context = Context::cpu();
    std::vector<float> numbers(2 * 6 * 3 * 3, -1.0f);
    std::vector<uint8_t> bits(18, 0xa5);
    const lowbit_images good = image_view(numbers.data(), {2, 6, 3, 3}).c();
    lowbit_images x = good;
    expect_failure(lowbit_sign_bits(context.c(), &x, 1, bits.data(), 17), "sign_bits: bits has 17 bytes, but the signs of x take 18");
    expect_failure(lowbit_sign_bits(context.c(), &x, 4, bits.data(), 18), "groups = 4 does not divide the 6 channels of x");
    expect_failure(lowbit_sign_bits(context.c(), &x, 1, nullptr, 18), "bits is a null pointer");
    expect_failure(lowbit_sign_bits(context.c(), nullptr, 1, bits.data(), 18), "x is a null pointer");
    expect_failure(lowbit_sign_bits(nullptr, &x, 1, bits.data(), 18), "context is a null pointer");
    x.element = LOWBIT_INT1;
    expect_failure(lowbit_sign_bits(context.c(), &x, 1, bits.data(), 18), "x is int1; use fp32, fp16 or bf16");
    for (const uint8_t byte : bits) EXPECT_EQ(byte, 0xa5);
    EXPECT_EQ(lowbit_sign_bits(context.c(), &good, 1, bits.data(), 18), LOWBIT_OK) << lowbit_last_error();
    for (const uint8_t byte : bits) EXPECT_EQ(byte, 0x3f);
    try {
        sign_bits(context, image_view(numbers.data(), {2, 6, 3, 3}), bits.data(), 18, 5);
        FAIL() << "groups that do not divide";
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::invalid_argument);
    }
}

// Numbers on a GPU, whose signs are taken on the way, in the workspace that the call asks for.
TEST(ConvolutionApi, OnAGpu) {
    if (const std::string& problem = cuda::devices().problem; !problem.empty()) GTEST_SKIP() << problem;
    core::Context memory;
    verify::use_device(memory, Device::cuda);
    Context context = Context::cuda(0);
    for (const int64_t groups : {1, 2}) {
        const Example example(groups);
        const std::vector<float> blank(2 * 4 * 5 * 4, untouched);
        const auto on_device = [&](const std::vector<float>& values) {
            core::Buffer made(memory.allocator, int64_t(values.size() * 4));
            cuda::copy_to_device(memory, made.data(), values.data(), made.bytes());
            return made;
        };
        const core::Buffer x = on_device(example.x), weight = on_device(example.weight), scale = on_device(example.scale),
                           bias = on_device(example.bias), y = on_device(blank);
        const Images x_view(x.data(), Element::fp32, Example::x_shape, Device::cuda),
            weight_view(weight.data(), Element::fp32, example.weight_shape(), Device::cuda),
            y_view(y.data(), Element::fp32, Example::y_shape, Device::cuda);
        const Convolution how{.padding = {1, 1, 1, 1},
                              .groups = groups,
                              .scale = Tensor(scale.data(), Element::fp32, {4}, Device::cuda),
                              .bias = Tensor(bias.data(), Element::fp32, {4}, Device::cuda)};
        const size_t bytes = binary_conv2d_workspace(context, x_view, weight_view, y_view, how);
        EXPECT_GT(bytes, 0u);
        EXPECT_THROW(binary_conv2d(context, x_view, weight_view, y_view, how), Error);
        const core::Buffer workspace(memory.allocator, int64_t(bytes));
        context.set_workspace(workspace.data(), bytes);
        binary_conv2d(context, x_view, weight_view, y_view, how);
        std::vector<float> found(blank.size());
        cuda::copy_to_host(memory, found.data(), y.data(), y.bytes());
        EXPECT_EQ(found, example.expected(true, true));
        context.set_workspace(nullptr, 0);
    }
}

}  // namespace
}  // namespace lowbit
