// Binary convolutions: every registered kernel, on whatever device it is for, against loops over the numbers themselves; what is refused.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>

#include "core/registry.hpp"
#include "cpu/convolve.hpp"
#include "cuda/memory.hpp"
#include "verify/images.hpp"
#include "verify/random.hpp"

namespace lowbit {
namespace {

using core::BinaryConvProblem;
using core::Images;
using core::SignBitsProblem;

using ConvCase = verify::ConvolutionCase;
using verify::images_of, verify::Layout, verify::memory_bytes;
constexpr std::array layouts = {Layout::channels_first, Layout::channels_last, Layout::gaps};

int64_t products(const ConvCase& c) {
    return c.images * c.outputs * c.down().positions() * c.across().positions() * c.kernel[0] * c.kernel[1] * c.group_channels();
}

// Memory of a device, of exactly so many bytes behind `skipped` others: a memory checker sees the first byte beyond.
class DeviceBytes {
public:
    DeviceBytes(const core::Context& context, const std::vector<uint8_t>& bytes, int64_t skipped = 0)
        : context_(context), bytes_(int64_t(bytes.size())), skipped_(skipped), memory_(context.allocator, int64_t(bytes.size()) + skipped) {
        if (bytes.empty()) return;
        if (context.device == Device::cuda)
            cuda::copy_to_device(context, data(), bytes.data(), bytes_);
        else
            std::memcpy(data(), bytes.data(), bytes.size());
    }
    uint8_t* data() const { return reinterpret_cast<uint8_t*>(memory_.data()) + skipped_; }
    std::vector<uint8_t> read() const {
        std::vector<uint8_t> bytes(static_cast<size_t>(bytes_));
        if (bytes.empty()) return bytes;
        if (context_.device == Device::cuda)
            cuda::copy_to_host(context_, bytes.data(), data(), bytes_);
        else
            std::memcpy(bytes.data(), data(), bytes.size());
        return bytes;
    }

private:
    const core::Context& context_;
    int64_t bytes_, skipped_;
    core::Buffer memory_;
};

// As the type holds them: 1e-45 is 0 in fp16.
bool is_negative(Element element, float value) {
    std::array<uint8_t, 4> held{};
    core::store(element, held.data(), 0, value);
    return core::load(element, held.data(), 0) < 0.0f;
}

std::vector<uint8_t> expected_bits(const std::vector<float>& values, Element element, const std::array<int64_t, 4>& shape, int64_t groups) {
    const auto [images, channels, height, width] = shape;
    const int64_t in_group = channels / groups, bytes = (in_group + 7) / 8;
    std::vector<uint8_t> bits(size_t(images * height * width * groups * bytes), 0);
    for (int64_t i = 0; i < int64_t(values.size()); ++i) {
        const int64_t column = i % width, row = i / width % height, channel = i / width / height % channels,
                      image = i / width / height / channels;
        const int64_t pixel = (image * height + row) * width + column, at = channel % in_group;
        uint8_t& byte = bits[size_t((pixel * groups + channel / in_group) * bytes + at / 8)];
        if (is_negative(element, values[size_t(i)])) byte = uint8_t(byte | 1 << at % 8);
    }
    return bits;
}

// The sums, [image][output][row][column], by a loop over everything.
std::vector<int32_t> expected_sums(const ConvCase& c, const std::vector<float>& x, const std::vector<float>& weight) {
    const core::ConvolutionAxis down = c.down(), across = c.across();
    const int64_t in_group = c.group_channels(), group_outputs = c.outputs / c.groups;
    std::vector<int8_t> x_signs, weight_signs;
    for (const float value : x) x_signs.push_back(value < 0 ? -1 : 1);
    for (const float value : weight) weight_signs.push_back(value < 0 ? -1 : 1);
    std::vector<int32_t> sums;
    for (int64_t image = 0; image < c.images; ++image)
        for (int64_t output = 0; output < c.outputs; ++output)
            for (int64_t row = 0; row < down.positions(); ++row)
                for (int64_t column = 0; column < across.positions(); ++column) {
                    int32_t sum = 0;
                    for (int64_t channel = 0; channel < in_group; ++channel)
                        for (int64_t i = 0; i < c.kernel[0]; ++i)
                            for (int64_t j = 0; j < c.kernel[1]; ++j) {
                                const int64_t at_row = row * c.stride[0] + i * c.dilation[0] - c.padding[0];
                                const int64_t at_column = column * c.stride[1] + j * c.dilation[1] - c.padding[2];
                                if (at_row < 0 || at_row >= c.height || at_column < 0 || at_column >= c.width) continue;
                                const int64_t from = output / group_outputs * in_group + channel;
                                const int64_t pixel = ((image * c.channels + from) * c.height + at_row) * c.width + at_column;
                                const int64_t tap = ((output * in_group + channel) * c.kernel[0] + i) * c.kernel[1] + j;
                                sum += x_signs[size_t(pixel)] * weight_signs[size_t(tap)];
                            }
                    sums.push_back(sum);
                }
    return sums;
}

template <class Problem>
std::vector<std::string> kernel_names() {
    std::vector<std::string> names;
    for (const auto& kernel : core::kernels_for<Problem>().kernels()) names.push_back(kernel.name);
    return names;
}

template <class Problem>
void force(core::Context& context, const core::Kernel<Problem>& kernel) {
    context.set_threads(2);
    verify::use_device(context, kernel.device);
    context.force_kernel(kernel.name);
}

// Runs a problem with the kernel that its context forces, which has workspace of its own.
template <class Problem>
void run_forced(core::Context& context, const Problem& problem) {
    core::check(problem);
    core::Scratch measure(context, core::Scratch::Purpose::measure);
    if (context.device == Device::cuda) core::run(problem, measure);
    const core::Buffer workspace(context.allocator, measure.used());
    context.workspace = workspace.data(), context.workspace_bytes = measure.used();
    core::run(problem);
    if (context.device == Device::cuda) cuda::wait(context);
    context.workspace = nullptr, context.workspace_bytes = 0;
}

// A case with its numbers and results, made once for all kernels.
struct PreparedConv {
    ConvCase c;
    std::vector<uint8_t> x, weight;
    std::vector<int32_t> sums;
    std::vector<float> scale, bias;

    explicit PreparedConv(const ConvCase& tested) : c(tested) {
        const int64_t in_group = c.group_channels();
        const auto x_numbers = verify::signed_numbers(c.images * c.channels * c.height * c.width, 1);
        const auto weight_numbers = verify::signed_numbers(c.outputs * in_group * c.kernel[0] * c.kernel[1], 2);
        x = expected_bits(x_numbers, Element::fp32, {c.images, c.channels, c.height, c.width}, c.groups);
        weight = expected_bits(weight_numbers, Element::fp32, {c.outputs, in_group, c.kernel[0], c.kernel[1]}, 1);
        sums = expected_sums(c, x_numbers, weight_numbers);
        scale = verify::normal_values(c.outputs, 3), bias = verify::normal_values(c.outputs, 4);
        if (c.outputs > 2) scale[1] = -3e37f, scale[2] = 1e-40f;
    }
};

const std::vector<PreparedConv>& prepared_cases() {
    static const std::vector<PreparedConv> all = [] {
        std::vector<PreparedConv> made;
        for (const ConvCase& c : verify::convolution_cases()) made.emplace_back(c);
        return made;
    }();
    return all;
}

// How one case is run.
struct Variant {
    Element element;
    Layout layout;
    bool has_scale, has_bias;
    int64_t skipped = 0;  // bytes in front of the bits: they may begin anywhere
};

std::vector<Variant> variants(const ConvCase& c) {
    if (products(c) > 500'000)
        return {{Element::fp32, Layout::channels_first, true, true},
                {Element::fp16, Layout::channels_last, true, false},
                {Element::int32, Layout::gaps, false, false}};
    std::vector<Variant> all;
    for (const Element element : {Element::fp32, Element::fp16, Element::bf16})
        for (const Layout layout : layouts)
            for (const bool has_scale : {false, true})
                for (const bool has_bias : {false, true}) all.push_back({element, layout, has_scale, has_bias});
    for (const Layout layout : layouts) all.push_back({Element::int32, layout, false, false});
    all.push_back({Element::fp32, Layout::channels_first, true, true, 1});
    all.push_back({Element::bf16, Layout::channels_last, true, true, 8});
    return all;
}

// y as it must be, where it begins as a pattern that no result has.
constexpr uint8_t untouched = 0xA5;

std::vector<uint8_t> expected_memory(const PreparedConv& tested, const Variant& variant, const Images& y) {
    std::vector<uint8_t> memory(size_t(memory_bytes(y)), untouched);
    size_t next = 0;
    for (int64_t image = 0; image < y.images; ++image)
        for (int64_t output = 0; output < y.channels; ++output)
            for (int64_t row = 0; row < y.height; ++row)
                for (int64_t column = 0; column < y.width; ++column) {
                    const int32_t sum = tested.sums[next++];
                    const int64_t at = y.offset(image, output, row, column);
                    if (y.element == Element::int32) {
                        std::memcpy(memory.data() + at * 4, &sum, 4);
                        continue;
                    }
                    auto value = float(sum);
                    if (variant.has_scale) value *= tested.scale[size_t(output)];
                    if (variant.has_bias) value += tested.bias[size_t(output)];
                    core::store(y.element, memory.data(), at, value);
                }
    return memory;
}

std::vector<uint8_t> bytes_of(const std::vector<float>& values) {
    std::vector<uint8_t> bytes(values.size() * 4);
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

// A case on a device, ready to be run.
class DeviceConv {
public:
    DeviceConv(const core::Context& context, const PreparedConv& tested, const Variant& variant)
        : tested_(tested),
          variant_(variant),
          x_(context, tested.x, variant.skipped),
          weight_(context, tested.weight, variant.skipped),
          scale_(context, bytes_of(tested.scale)),
          bias_(context, bytes_of(tested.bias)) {
        const ConvCase& c = tested.c;
        problem_.context = &context;
        problem_.x = x_.data(), problem_.weight = weight_.data();
        problem_.images = c.images, problem_.channels = c.group_channels(), problem_.outputs = c.outputs, problem_.groups = c.groups;
        problem_.down = c.down(), problem_.across = c.across();
        const auto vector = [&](const DeviceBytes& memory) {
            return core::Tensor{memory.data(), Element::fp32, 1, c.outputs, c.outputs, 1, context.device, context.device_index};
        };
        if (variant.has_scale) problem_.scale = vector(scale_);
        if (variant.has_bias) problem_.bias = vector(bias_);
        problem_.y = images_of(variant.element, {c.images, c.outputs, c.down().positions(), c.across().positions()}, variant.layout);
        problem_.y.device = context.device, problem_.y.device_index = context.device_index;
        y_.emplace(context, std::vector<uint8_t>(size_t(memory_bytes(problem_.y)), untouched));
        problem_.y.data = y_->data();
    }

    const BinaryConvProblem& problem() const { return problem_; }
    void expect_results(const std::string& name) const {
        const std::vector<uint8_t> expected = expected_memory(tested_, variant_, problem_.y), found = y_->read();
        if (found == expected) return;
        const size_t at = size_t(std::mismatch(found.begin(), found.end(), expected.begin()).first - found.begin());
        ADD_FAILURE() << name << ": " << tested_.c.text() << ", y is " << core::element_name(variant_.element) << ", layout "
                      << int(variant_.layout) << ", scale " << variant_.has_scale << ", bias " << variant_.has_bias << ", bits at +"
                      << variant_.skipped << ": the first difference is in byte " << at << " of " << found.size();
    }

private:
    const PreparedConv& tested_;
    Variant variant_;
    DeviceBytes x_, weight_, scale_, bias_;
    std::optional<DeviceBytes> y_;
    BinaryConvProblem problem_;
};

class BinaryConv : public testing::TestWithParam<std::string> {};

TEST_P(BinaryConv, IsExact) {
    const std::string& name = GetParam();
    const core::Kernel<BinaryConvProblem>& kernel = *core::registry().binary_conv.find(name);
    if (!kernel.unavailable.empty()) GTEST_SKIP() << name << ": " << kernel.unavailable;
    core::Context context;
    force(context, kernel);
    int ran = 0;
    for (const PreparedConv& tested : prepared_cases())
        for (const Variant& variant : variants(tested.c)) {
            const DeviceConv conv(context, tested, variant);
            if (!core::KernelList<BinaryConvProblem>::reason_against(kernel, conv.problem()).empty()) continue;
            run_forced(context, conv.problem());
            conv.expect_results(name);
            ++ran;
            if (testing::Test::HasFailure()) return;
        }
    EXPECT_GT(ran, 0);
    testing::Test::RecordProperty("cases", ran);
}
INSTANTIATE_TEST_SUITE_P(Kernels, BinaryConv, testing::ValuesIn(kernel_names<BinaryConvProblem>()),
                         [](const auto& kernel) { return kernel.param; });

// Pixel by pixel of the result, and in bands that end in the middle of a row.
TEST(Convolution, BandsOfTheResult) {
    core::Context context;
    context.set_threads(2);
    for (const PreparedConv& tested : prepared_cases())
        for (const int64_t bytes : {1, 700, 5000}) {
            if (products(tested.c) > 500'000) continue;
            const DeviceConv conv(context, tested,
                                  {Element::fp32, bytes == 1 ? Layout::channels_first : Layout::channels_last, true, true});
            cpu::run_binary_conv(cpu::portable_isa(), conv.problem(), bytes);
            conv.expect_results("bands");
        }
}

TEST(Convolution, ThreadsDoNotChangeABit) {
    for (const int threads : {1, 3, 16}) {
        core::Context context;
        context.set_threads(threads);
        for (const PreparedConv& tested : prepared_cases()) {
            const DeviceConv conv(context, tested, {Element::fp16, Layout::channels_first, true, true});
            if (tested.c.images > 0 && tested.c.outputs > 0) core::run(conv.problem());
            conv.expect_results("threads");
        }
    }
}

class SignBits : public testing::TestWithParam<std::string> {};

TEST_P(SignBits, AreThoseOfTheNumbers) {
    const std::string& name = GetParam();
    const core::Kernel<SignBitsProblem>& kernel = *core::registry().sign_bits.find(name);
    if (!kernel.unavailable.empty()) GTEST_SKIP() << name << ": " << kernel.unavailable;
    core::Context context;
    force(context, kernel);
    int ran = 0;
    for (const verify::SignBitsCase& tested : verify::sign_bits_cases())
        for (const int64_t skipped : {0, 1}) {
            const Element element = tested.element;
            Images x = images_of(element, tested.shape, tested.layout);
            const std::vector<float> values = verify::signed_numbers(x.images * x.channels * x.height * x.width, 5);
            const std::vector<uint8_t> expected = expected_bits(values, element, tested.shape, tested.groups);
            const DeviceBytes from(context, verify::memory_of(x, values)),
                to(context, std::vector<uint8_t>(expected.size(), untouched), skipped);
            x.data = from.data(), x.device = context.device, x.device_index = context.device_index;
            const SignBitsProblem problem{&context, x, tested.groups, to.data()};
            if (!core::KernelList<SignBitsProblem>::reason_against(kernel, problem).empty()) continue;
            run_forced(context, problem);
            ASSERT_EQ(to.read(), expected) << name << ": " << tested.text() << " bits at +" << skipped;
            ++ran;
        }
    EXPECT_GT(ran, 0);
    testing::Test::RecordProperty("cases", ran);
}
INSTANTIATE_TEST_SUITE_P(Kernels, SignBits, testing::ValuesIn(kernel_names<SignBitsProblem>()),
                         [](const auto& kernel) { return kernel.param; });

TEST(Convolution, SignsOfAnExpandedImage) {
    core::Context context;
    const std::vector<float> row = {-1.0f, 2.0f, -3.0f};
    Images x = images_of(Element::fp32, {2, 9, 4, 3}, Layout::channels_first);
    x.data = const_cast<float*>(row.data());
    x.strides[0] = x.strides[1] = x.strides[2] = 0, x.strides[3] = 1;
    for (const std::string& name : kernel_names<SignBitsProblem>()) {
        const auto& kernel = *core::registry().sign_bits.find(name);
        if (kernel.device != Device::cpu) continue;
        context.force_kernel(name);
        std::vector<uint8_t> bits(2 * 4 * 3 * 2, untouched);
        core::run(SignBitsProblem{&context, x, 1, bits.data()});
        for (size_t i = 0; i < bits.size(); ++i) EXPECT_EQ(bits[i], i / 2 % 3 == 1 ? 0 : i % 2 == 0 ? 0xff : 0x01) << name << " byte " << i;
    }
}

// Where each tap of each position lies, by looking.
TEST(Convolution, TapsInside) {
    for (int64_t size = 0; size < 6; ++size)
        for (int64_t kernel = 1; kernel < 5; ++kernel)
            for (int64_t stride = 1; stride < 4; ++stride)
                for (int64_t before = 0; before < 5; ++before)
                    for (int64_t dilation = 1; dilation < 4; ++dilation) {
                        const core::ConvolutionAxis axis{size, kernel, stride, before, 3, dilation};
                        for (int64_t position = 0; position < axis.positions(); ++position) {
                            const auto inside = axis.inside(position);
                            for (int64_t tap = 0; tap < kernel; ++tap) {
                                const int64_t at = position * stride - before + tap * dilation;
                                EXPECT_EQ(at >= 0 && at < size, tap >= inside.first && tap < inside.end);
                            }
                        }
                    }
}

// One mistake each, in a problem that is right otherwise.
class BadConv : public testing::Test {
protected:
    BadConv() {
        good_.context = &context_;
        good_.x = x_.data(), good_.weight = weight_.data();
        good_.images = 2, good_.channels = 9, good_.outputs = 4;
        good_.down = {5, 3, 1, 1, 1, 1}, good_.across = {6, 3, 1, 1, 1, 1};
        good_.y = images_of(Element::fp32, {2, 4, 5, 6}, Layout::channels_first);
        good_.y.data = y_.data();
        good_.scale = core::Tensor{scale_.data(), Element::fp32, 1, 4, 4, 1};
    }

    core::Context context_;
    std::vector<uint8_t> x_ = std::vector<uint8_t>(2 * 5 * 6 * 2), weight_ = std::vector<uint8_t>(4 * 9 * 2);
    std::vector<float> y_ = std::vector<float>(2 * 4 * 5 * 6, -77.0f), scale_ = std::vector<float>(4, 1.0f);
    BinaryConvProblem good_;
};

TEST_F(BadConv, EveryMistakeIsNamed) {
    EXPECT_NO_THROW(core::check(good_));
    struct Mistake {
        std::function<void(BinaryConvProblem&)> make;
        const char* text;
    };
    const int64_t huge = int64_t(1) << 62;
    const Mistake mistakes[] = {
        {[](auto& p) { p.x = nullptr; }, "x is a null pointer, but its bits take 120 bytes"},
        {[](auto& p) { p.weight = nullptr; }, "weight is a null pointer, but its bits take 72 bytes"},
        {[](auto& p) { p.y.data = nullptr; }, "y is a null pointer, but has shape 2 x 4 x 5 x 6"},
        {[](auto& p) { p.images = -1; }, "images = -1, channels = 9, outputs = 4; sizes cannot be negative"},
        {[](auto& p) { p.groups = 3; }, "groups = 3 does not divide the 4 outputs of the weight"},
        {[](auto& p) { p.groups = 0; }, "groups = 0 does not divide"},
        {[](auto& p) { p.down.stride = 0; }, "stride = 0, 1; use integers of at least 1"},
        {[](auto& p) { p.across.dilation = -2; }, "dilation = 1, -2; use"},
        {[](auto& p) { p.across.kernel = 0; }, "kernel = 3, 0; use"},
        {[](auto& p) { p.down.before = -1; }, "padding (top, bottom) = -1, 1; use integers of at least 0"},
        {[&](auto& p) { p.across.after = huge; }, "padding (left, right) = 1, 4611686018427387904; use"},
        {[&](auto& p) { p.down.size = huge; }, "height and width of x = 4611686018427387904, 6; use"},
        {[](auto& p) { p.down.dilation = 4; }, "a kernel of 3 x 3 (dilation 4, 1) is larger than x, 5 x 6 with padding 1, 1, 1, 1"},
        {[](auto& p) { p.images = 3; }, "y is 2 x 4 x 5 x 6 but the convolution gives 3 x 4 x 5 x 6"},
        {[](auto& p) { p.down.before = 0; }, "y is 2 x 4 x 5 x 6 but the convolution gives 2 x 4 x 4 x 6"},
        {[&](auto& p) { p.images = huge, p.y.images = huge; }, "does not fit in 64 bits"},
        {[&](auto& p) { p.channels = huge; }, "which may overflow an int32"},
        {[&](auto& p) { p.channels = 1 << 28; }, "a result is a sum of 268435456 channels in 9 places, which may overflow an int32"},
        {[](auto& p) { p.y.element = Element::int8; }, "y is int8; use fp32, fp16, bf16 or int32"},
        {[](auto& p) { p.y.element = Element::int32; }, "y is int32, the sums as they are; it takes no scale and no bias"},
        {[](auto& p) { p.y.data = static_cast<char*>(p.y.data) + 2; }, "which is not aligned to its 4-byte elements"},
        {[](auto& p) { p.y.strides[3] = 0; }, "y has strides 120, 30, 6, 0 with shape 2 x 4 x 5 x 6, so its elements overlap"},
        {[](auto& p) { p.y.strides[2] = 5; }, "so its elements overlap"},
        {[](auto& p) { p.y.strides[0] = -120; }, "y has strides -120, 30, 6, 1; use strides >= 0"},
        {[&](auto& p) { p.y.strides[0] = huge; }, "does not fit in 64 bits"},
        {[](auto& p) { p.y.device = Device::cuda; }, "y is on cuda:0, but the context is on cpu:0"},
        {[](auto& p) { p.scale->columns = 3; }, "scale has 3 values, but the weight has 4 outputs"},
        {[](auto& p) { p.scale->element = Element::bf16; }, "scale is bf16; use fp32"},
        {[](auto& p) { p.scale->device = Device::cuda; }, "scale is on cuda:0"},
        {[](auto& p) { p.bias = p.scale, p.bias->columns = 5; }, "bias has 5 values, but the weight has 4 outputs"},
        {[](auto& p) { p.x = static_cast<const uint8_t*>(p.y.data) + 900; }, "y overlaps x; the output needs memory of its own"},
        {[](auto& p) { p.weight = static_cast<const uint8_t*>(p.y.data); }, "y overlaps weight"},
        {[](auto& p) { p.scale->data = p.y.data; }, "y overlaps scale"},
    };
    for (const Mistake& mistake : mistakes) {
        BinaryConvProblem problem = good_;
        mistake.make(problem);
        try {
            core::check(problem);
            ADD_FAILURE() << "accepted: " << mistake.text;
        } catch (const core::Failure& failure) {
            EXPECT_EQ(failure.status(), Status::invalid_argument);
            const std::string text = failure.what();
            EXPECT_NE(text.find(mistake.text), std::string::npos) << text << "\nexpected: " << mistake.text;
        }
    }
}

TEST(Convolution, MistakesWithSignsAreNamed) {
    core::Context context;
    std::vector<float> numbers(2 * 6 * 3 * 3);
    std::vector<uint8_t> bits(2 * 3 * 3);
    SignBitsProblem good{&context, images_of(Element::fp32, {2, 6, 3, 3}, Layout::channels_first), 1, bits.data()};
    good.x.data = numbers.data();
    EXPECT_NO_THROW(core::check(good));
    struct Mistake {
        std::function<void(SignBitsProblem&)> make;
        const char* text;
    };
    const Mistake mistakes[] = {
        {[](auto& p) { p.groups = 4; }, "sign_bits: groups = 4 does not divide the 6 channels of x"},
        {[](auto& p) { p.groups = 0; }, "groups = 0 does not divide"},
        {[](auto& p) { p.x.data = nullptr; }, "x is a null pointer, but has shape 2 x 6 x 3 x 3"},
        {[](auto& p) { p.bits = nullptr; }, "bits is a null pointer, but the signs of x take 18 bytes"},
        {[](auto& p) { p.x.element = Element::int8; }, "x is int8; use fp32, fp16 or bf16"},
        {[](auto& p) { p.x.element = Element::int1; }, "x is int1; use fp32, fp16 or bf16"},
        {[](auto& p) { p.x.height = -3; }, "sizes cannot be negative"},
        {[](auto& p) { p.x.width = int64_t(1) << 62; }, "does not fit in 64 bits"},
        {[](auto& p) { p.x.device = Device::cuda; }, "x is on cuda:0, but the context is on cpu:0"},
        {[](auto& p) { p.bits = static_cast<uint8_t*>(p.x.data) + 4; }, "bits overlaps x"},
    };
    for (const Mistake& mistake : mistakes) {
        SignBitsProblem problem = good;
        mistake.make(problem);
        try {
            core::check(problem);
            ADD_FAILURE() << "accepted: " << mistake.text;
        } catch (const core::Failure& failure) {
            const std::string text = failure.what();
            EXPECT_NE(text.find(mistake.text), std::string::npos) << text << "\nexpected: " << mistake.text;
        }
    }
}

}  // namespace
}  // namespace lowbit
