// Signs and their convolutions.
#include <algorithm>
#include <limits>
#include <map>

#include "reference/convolution.hpp"
#include "verify/images.hpp"
#include "verify/mirror.hpp"
#include "verify/random.hpp"

namespace lowbit::verify {
namespace {

constexpr std::array<int64_t, 2> one = {1, 1};
constexpr uint8_t untouched = 0xA5;

// Memory that is seen as numbers of other kinds elsewhere.
core::Tensor bytes_of(std::vector<uint8_t>& bytes) {
    const auto count = int64_t(bytes.size());
    return {bytes.data(), Element::int8, 1, count, count, 1, Device::cpu, 0};
}
core::Tensor vector_of(std::vector<float>& values) {
    const auto count = int64_t(values.size());
    return {values.data(), Element::fp32, 1, count, count, 1, Device::cpu, 0};
}

std::vector<uint8_t> random_bits(int64_t pixels, int64_t groups, int64_t channels, uint64_t seed) {
    const int64_t bytes = core::bytes_of_bits(channels);
    Random random(seed);
    std::vector<uint8_t> bits(size_t(pixels * groups * bytes));
    for (int64_t i = 0; i < int64_t(bits.size()); ++i) {
        const int64_t left = channels - i % bytes * 8;  // what fills up a byte is 0
        bits[size_t(i)] = uint8_t(random.bits() & (left < 8 ? (1u << left) - 1 : 0xffu));
    }
    return bits;
}

void compare(const std::vector<uint8_t>& got, const std::vector<uint8_t>& expected, const std::string& what, Outcome& outcome) {
    if (got == expected) return;
    outcome.error = std::numeric_limits<double>::infinity();
    const auto at = std::mismatch(got.begin(), got.end(), expected.begin()).first - got.begin();
    outcome.difference = core::join(what, ": the first difference is in byte ", at, " of ", got.size());
}

}  // namespace

core::Images images_of(Element element, const std::array<int64_t, 4>& shape, Layout layout) {
    core::Images made;
    made.element = element;
    made.images = shape[0], made.channels = shape[1], made.height = shape[2], made.width = shape[3];
    std::array<size_t, 4> order = {3, 2, 1, 0};  // innermost first
    if (layout == Layout::channels_last) order = {1, 3, 2, 0};
    if (layout == Layout::gaps) order = {2, 0, 1, 3};
    int64_t stride = layout == Layout::gaps ? 2 : 1;
    for (const size_t axis : order) {
        made.strides[axis] = stride;
        stride = stride * std::max<int64_t>(shape[axis], 1) + (layout == Layout::gaps ? int64_t(axis) + 1 : 0);
    }
    return made;
}

int64_t memory_bytes(const core::Images& images) {
    if (images.is_empty()) return 0;
    const int64_t last = images.offset(images.images - 1, images.channels - 1, images.height - 1, images.width - 1);
    return (last + 1) * core::element_bytes(images.element);
}

std::vector<uint8_t> memory_of(const core::Images& images, const std::vector<float>& values) {
    std::vector<uint8_t> memory(size_t(memory_bytes(images)), 0xff);
    size_t next = 0;
    for (int64_t image = 0; image < images.images; ++image)
        for (int64_t channel = 0; channel < images.channels; ++channel)
            for (int64_t row = 0; row < images.height; ++row)
                for (int64_t column = 0; column < images.width; ++column)
                    core::store(images.element, memory.data(), images.offset(image, channel, row, column), values[next++]);
    return memory;
}

std::vector<float> signed_numbers(int64_t count, uint64_t seed) {
    constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    constexpr float special[] = {0.0f, -0.0f, nan, -nan, infinity, -infinity, 1e-45f, -1e-45f, 6e-8f, -6e-8f};
    Random random(seed);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = random.below(5) == 0 ? special[random.below(std::size(special))] : random.normal();
    return values;
}

std::string ConvolutionCase::text() const {
    return core::join(images, "x", channels, "x", height, "x", width, " outputs ", outputs, " kernel ", kernel[0], "x", kernel[1],
                      " stride ", stride[0], ",", stride[1], " padding ", padding[0], ",", padding[1], ",", padding[2], ",", padding[3],
                      " dilation ", dilation[0], ",", dilation[1], " groups ", groups);
}

std::string SignBitsCase::text() const {
    return core::join(shape[0], "x", shape[1], "x", shape[2], "x", shape[3], " groups ", groups, " ", core::element_name(element),
                      " layout ", int(layout));
}

std::vector<ConvolutionCase> convolution_cases() {
    std::vector<ConvolutionCase> cases = {
        {1, 1, 1, 1, 1},
        {3, 8, 5, 4, 9},
        {2, 7, 9, 11, 5, {3, 3}, one, {1, 1, 1, 1}},
        {1, 8, 6, 5, 7, {3, 3}},
        {3, 65, 7, 8, 4, {3, 2}, {2, 1}, {0, 0, 2, 2}},
        {2, 64, 8, 8, 16},
        {2, 128, 5, 5, 9},
        {2, 200, 5, 7, 3, {1, 1}, {2, 2}},
        {1, 5, 4, 4, 3, {1, 1}, one, {2, 2, 2, 2}},  // patches that are padding alone
        {2, 5, 1, 1, 3, {1, 1}, {5, 5}, {2, 2, 2, 2}},
        {2, 16, 12, 10, 8, {3, 3}, {2, 2}, {2, 2, 2, 2}, {2, 3}},
        {2, 16, 3, 3, 4, {5, 5}, one, {3, 3, 3, 3}},
        {1, 9, 2, 1, 3, {3, 4}, one, {5, 4, 6, 3}, {3, 2}},  // padding wider than the image, dilation wider than it too
        {1, 33, 13, 6, 31, {5, 1}, {3, 2}, {4, 4, 0, 0}, {1, 2}},
        {2, 24, 10, 7, 6, {3, 2}, {2, 1}, {2, 2, 0, 0}, {2, 3}, 3},
        {2, 6, 5, 5, 12, {3, 3}, one, {1, 1, 1, 1}, one, 6},  // depthwise
        {3, 40, 6, 7, 40, {3, 3}, {2, 2}, {1, 1, 1, 1}, one, 40},
        {2, 128, 6, 5, 18, {3, 3}, one, {1, 1, 1, 1}, one, 2},
        {1, 30, 6, 5, 9, {1, 1}, one, {0, 0, 0, 0}, one, 3},
        {2, 4, 5, 5, 6, {2, 2}, one, {0, 1, 0, 1}},
        {1, 9, 6, 7, 2, {4, 3}, one, {4, 5, 2, 2}, {3, 2}},
        {2, 64, 1, 19, 8, {1, 5}, one, {0, 0, 2, 2}},
        {2, 64, 19, 1, 8, {5, 1}, {2, 1}, {2, 2, 0, 0}},
        {5, 72, 1, 1, 33},
        {0, 8, 5, 5, 4, {3, 3}, one, {1, 1, 1, 1}},
        {2, 8, 5, 5, 0, {3, 3}, one, {1, 1, 1, 1}},
        {2, 0, 5, 5, 4, {3, 3}, one, {1, 1, 1, 1}},
        // Enough for whole tiles of every kernel, and for more than one of them.
        {1, 3, 32, 32, 64, {7, 7}, {2, 2}, {3, 3, 3, 3}},
        {2, 64, 28, 28, 64, {3, 3}, one, {1, 1, 1, 1}},
        {3, 128, 13, 11, 130, {3, 3}, {2, 2}, {1, 1, 1, 1}},
        {1, 256, 14, 14, 257, {1, 1}},
        {2, 512, 7, 7, 96, {3, 3}, one, {1, 1, 1, 1}},
        {2, 256, 9, 9, 128, {3, 3}, one, {1, 1, 1, 1}, one, 4},
        {24, 3, 100, 100, 8},  // several for each block of a GPU
        {1, 192, 7, 7, 33, {3, 3}, one, {1, 1, 1, 1}},
        {1, 1024, 5, 6, 70},
        {1, 2048, 3, 3, 36, {3, 3}, one, {1, 1, 1, 1}},
    };
    for (const int64_t channels : {1, 7, 8, 64, 65, 128, 200})
        for (const int64_t size : {1, 3, 5}) cases.push_back({1, channels, 7, 6, 11, {size, size}, one, {size / 2, size / 2, size / 2, 1}});
    for (const int64_t stride : {1, 2, 3})
        for (const int64_t padding : {0, 1, 2, 3})
            cases.push_back({3, 64, 9, 10, 17, {3, 3}, {stride, stride}, {padding, padding, padding, padding}});
    cases.push_back({3, 64, 9, 10, 17, {3, 3}, {1, 3}, {0, 3, 2, 1}});
    return cases;
}

std::vector<SignBitsCase> sign_bits_cases() {
    struct Shape {
        std::array<int64_t, 4> shape;
        int64_t groups = 1;
    };
    std::vector<Shape> shapes = {{{3, 24, 5, 7}, 3}, {{2, 24, 5, 7}, 24},  {{1, 130, 9, 31}, 2}, {{2, 64, 28, 28}},
                                 {{1, 300, 20, 20}}, {{0, 8, 4, 4}},       {{2, 0, 4, 4}},       {{2, 8, 0, 4}},
                                 {{300, 8, 1, 1}},   {{5, 1000, 1, 1}, 4}, {{1, 3, 64, 65}}};
    for (const int64_t channels : {1, 7, 8, 9, 63, 64, 65, 128, 200}) shapes.push_back({{3, channels, 5, 3}});
    std::vector<SignBitsCase> cases;
    for (const Shape& shape : shapes)
        for (const Element element : {Element::fp32, Element::fp16, Element::bf16})
            for (const Layout layout : {Layout::channels_first, Layout::channels_last, Layout::gaps})
                cases.push_back({shape.shape, shape.groups, element, layout});
    return cases;
}

Outcome verify(const core::Kernel<core::BinaryConvProblem>& kernel, const core::Context& context, const ConvolutionCase& tested) {
    struct Result {
        Element element;
        Layout layout;
        bool has_scale, has_bias;
    };
    constexpr Result results[] = {{Element::fp16, Layout::channels_last, true, false},
                                  {Element::bf16, Layout::channels_first, true, true},
                                  {Element::fp32, Layout::gaps, false, true},
                                  {Element::int32, Layout::channels_last, false, false}};
    static std::map<std::string, std::vector<uint8_t>> known;  // results, for all kernels
    const int64_t channels = tested.group_channels(), taps = tested.kernel[0] * tested.kernel[1];
    std::vector<uint8_t> x = random_bits(tested.images * tested.height * tested.width, tested.groups, channels, 1);
    std::vector<uint8_t> weight = random_bits(tested.outputs * taps, 1, channels, 2);
    std::vector<float> scale = normal_values(tested.outputs, 3), bias = normal_values(tested.outputs, 4);
    Mirror mirror(context);
    core::BinaryConvProblem problem;
    problem.context = &context;
    problem.images = tested.images, problem.channels = channels, problem.outputs = tested.outputs, problem.groups = tested.groups;
    problem.down = tested.down(), problem.across = tested.across();
    Outcome outcome;
    for (const Result& result : results) {
        problem.y =
            images_of(result.element, {tested.images, tested.outputs, problem.down.positions(), problem.across.positions()}, result.layout);
        if (problem.y.is_empty()) return {.not_run = "an empty result", .error = 0, .difference = ""};
        std::vector<uint8_t> got(size_t(memory_bytes(problem.y)), untouched);
        const core::Tensor memory = mirror.tensor(bytes_of(got));
        problem.x = static_cast<const uint8_t*>(mirror.tensor(bytes_of(x)).data);
        problem.weight = static_cast<const uint8_t*>(mirror.tensor(bytes_of(weight)).data);
        problem.y.data = memory.data, problem.y.device = context.device, problem.y.device_index = context.device_index;
        problem.scale.reset(), problem.bias.reset();
        if (result.has_scale) problem.scale = mirror.tensor(vector_of(scale));
        if (result.has_bias) problem.bias = mirror.tensor(vector_of(bias));
        core::check(problem);
        outcome.not_run = core::KernelList<core::BinaryConvProblem>::reason_against(kernel, problem);
        if (!outcome.not_run.empty()) return outcome;
        run_on(mirror, kernel, problem);
        mirror.bring_back(bytes_of(got), memory);
        std::vector<uint8_t>& expected = known[core::join(tested.text(), " ", core::element_name(result.element))];
        if (expected.empty()) {
            expected.assign(got.size(), untouched);
            core::BinaryConvProblem on_host = problem;
            on_host.x = x.data(), on_host.weight = weight.data(), on_host.y.data = expected.data();
            if (result.has_scale) on_host.scale = vector_of(scale);
            if (result.has_bias) on_host.bias = vector_of(bias);
            reference::binary_conv2d(on_host);
        }
        compare(got, expected, core::join("y of ", core::element_name(result.element)), outcome);
    }
    return outcome;
}

Outcome verify(const core::Kernel<core::SignBitsProblem>& kernel, const core::Context& context, const SignBitsCase& tested) {
    core::Images x = images_of(tested.element, tested.shape, tested.layout);
    if (x.is_empty()) return {.not_run = "no numbers", .error = 0, .difference = ""};
    std::vector<uint8_t> numbers = memory_of(x, signed_numbers(x.pixels() * x.channels, 5));
    std::vector<uint8_t> got(size_t(core::bits_bytes(x, tested.groups)), untouched), expected = got;
    Mirror mirror(context);
    core::Images mirrored = x;
    x.data = numbers.data();
    mirrored.data = mirror.tensor(bytes_of(numbers)).data;
    mirrored.device = context.device, mirrored.device_index = context.device_index;
    const core::Tensor memory = mirror.tensor(bytes_of(got));
    const core::SignBitsProblem problem{&context, mirrored, tested.groups, static_cast<uint8_t*>(memory.data)};
    core::check(problem);
    Outcome outcome;
    outcome.not_run = core::KernelList<core::SignBitsProblem>::reason_against(kernel, problem);
    if (!outcome.not_run.empty()) return outcome;
    run_on(mirror, kernel, problem);
    mirror.bring_back(bytes_of(got), memory);
    reference::sign_bits({&context, x, tested.groups, expected.data()});
    compare(got, expected, "bits", outcome);
    return outcome;
}

}  // namespace lowbit::verify
