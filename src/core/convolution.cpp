#include "core/convolution.hpp"

#include <array>
#include <limits>

#include "core/checks.hpp"

namespace lowbit::core {
namespace {

constexpr int64_t largest_int32 = std::numeric_limits<int32_t>::max();

// What only a refusal puts into words.
struct Shape {
    const Images& of;
    friend std::ostream& operator<<(std::ostream& out, const Shape& shape) {
        const Images& i = shape.of;
        return out << i.images << " x " << i.channels << " x " << i.height << " x " << i.width;
    }
};
struct Strides {
    const Images& of;
    friend std::ostream& operator<<(std::ostream& out, const Strides& strides) {
        const int64_t* s = strides.of.strides;
        return out << s[0] << ", " << s[1] << ", " << s[2] << ", " << s[3];
    }
};

// Sizes are such that nothing that is computed of them overflows.
void check_numbers(const char* verb, const char* argument, const Images& given, bool written) {
    const std::array<int64_t, 4> sizes{given.images, given.channels, given.height, given.width};
    for (const int64_t size : sizes) require(size >= 0, verb, ": ", argument, " has shape ", Shape{given}, "; sizes cannot be negative");
    if (given.is_empty()) return;
    const int bytes = element_bytes(given.element);
    require(given.data != nullptr, verb, ": ", argument, " is a null pointer, but has shape ", Shape{given});
    require(reinterpret_cast<uintptr_t>(given.data) % uintptr_t(bytes) == 0, verb, ": ", argument, " stands at address ", given.data,
            ", which is not aligned to its ", bytes, "-byte elements");
    const int64_t* strides = given.strides;
    int64_t last = 0, count = 1;
    for (size_t i = 0; i < sizes.size(); ++i) {
        require(strides[i] >= 0, verb, ": ", argument, " has strides ", Strides{given}, "; use strides >= 0, counted in elements");
        last = checked_add(last, checked_multiply(sizes[i] - 1, strides[i], argument), argument);
        count = checked_multiply(count, sizes[i], argument);
    }
    checked_multiply(checked_add(last, 1, argument), bytes, argument);
    checked_multiply(count, bytes, argument);
    if (!written) return;
    // From the smallest stride on, each must step over all that the axes before it reach.
    std::array<size_t, 4> order{0, 1, 2, 3};
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return strides[a] < strides[b]; });
    int64_t reached = 0;
    for (const size_t axis : order) {
        if (sizes[axis] == 1) continue;
        require(strides[axis] > reached, verb, ": ", argument, " has strides ", Strides{given}, " with shape ", Shape{given},
                ", so its elements overlap; an output needs distinct elements");
        reached += (sizes[axis] - 1) * strides[axis];
    }
}

void check_groups(const char* verb, int64_t groups, int64_t count, const char* what) {
    require(groups >= 1 && count % groups == 0, verb, ": groups = ", groups, " does not divide the ", count, " ", what);
}

void check_axes(const BinaryConvProblem& problem) {
    constexpr const char* verb = BinaryConvProblem::verb;
    const ConvolutionAxis &down = problem.down, &across = problem.across;
    const auto range = [&](const char* what, int64_t a, int64_t b, int64_t least) {
        require(a >= least && b >= least && a <= largest_int32 && b <= largest_int32, verb, ": ", what, " = ", a, ", ", b,
                "; use integers of at least ", least, " and at most ", largest_int32);
    };
    range("height and width of x", down.size, across.size, 0);
    range("kernel", down.kernel, across.kernel, 1);
    range("stride", down.stride, across.stride, 1);
    range("dilation", down.dilation, across.dilation, 1);
    range("padding (top, bottom)", down.before, down.after, 0);
    range("padding (left, right)", across.before, across.after, 0);
    require(down.positions() > 0 && across.positions() > 0, verb, ": a kernel of ", down.kernel, " x ", across.kernel, " (dilation ",
            down.dilation, ", ", across.dilation, ") is larger than x, ", down.size, " x ", across.size, " with padding ", down.before,
            ", ", down.after, ", ", across.before, ", ", across.after, " (top, bottom, left, right)");
}

// Bytes of all bits of x and of the weight.
struct BitsSizes {
    int64_t x = 0, weight = 0;
};

BitsSizes check_bits(const BinaryConvProblem& problem) {
    constexpr const char* verb = BinaryConvProblem::verb;
    require(problem.images >= 0 && problem.channels >= 0 && problem.outputs >= 0, verb, ": images = ", problem.images,
            ", channels = ", problem.channels, ", outputs = ", problem.outputs, "; sizes cannot be negative");
    check_groups(verb, problem.groups, problem.outputs, "outputs of the weight");
    const int64_t taps = checked_multiply(problem.down.kernel, problem.across.kernel, "kernel");
    const int64_t most = largest_int32 / 8;
    require(problem.channels == 0 || (problem.channels <= largest_int32 && taps <= most / bytes_of_bits(problem.channels)), verb,
            ": a result is a sum of ", problem.channels, " channels in ", taps, " places, which may overflow an int32; use at most ", most,
            " bytes of bits for each output");
    const int64_t pixels = checked_multiply(checked_multiply(problem.images, problem.down.size, "x"), problem.across.size, "x");
    const int64_t channel_bytes = bytes_of_bits(problem.channels);
    BitsSizes sizes;
    sizes.x = checked_multiply(pixels, checked_multiply(problem.groups, channel_bytes, "x"), "x");
    sizes.weight = checked_multiply(problem.outputs, taps * channel_bytes, "weight");
    require(problem.x != nullptr || sizes.x == 0, verb, ": x is a null pointer, but its bits take ", sizes.x, " bytes");
    require(problem.weight != nullptr || sizes.weight == 0, verb, ": weight is a null pointer, but its bits take ", sizes.weight, " bytes");
    return sizes;
}

void check_result(const BinaryConvProblem& problem) {
    constexpr const char* verb = BinaryConvProblem::verb;
    const Images& y = problem.y;
    require(is_float(y.element) || y.element == Element::int32, verb, ": y is ", element_name(y.element),
            "; use fp32, fp16, bf16 or int32");
    require(y.element != Element::int32 || (!problem.scale && !problem.bias), verb,
            ": y is int32, the sums as they are; it takes no scale and no bias");
    check_numbers(verb, "y", y, true);
    Images wanted;
    wanted.images = problem.images, wanted.channels = problem.outputs;
    wanted.height = problem.down.positions(), wanted.width = problem.across.positions();
    const bool fits = y.images == wanted.images && y.channels == wanted.channels && y.height == wanted.height && y.width == wanted.width;
    require(fits, verb, ": y is ", Shape{y}, " but the convolution gives ", Shape{wanted}, " (images, outputs, height, width)");
    check_device(verb, "y", y.device, y.device_index, *problem.context);
}

void check_vector(const char* argument, const std::optional<Tensor>& vector, const BinaryConvProblem& problem) {
    if (!vector) return;
    constexpr const char* verb = BinaryConvProblem::verb;
    check_tensor(verb, argument, *vector, false);
    require(vector->element == Element::fp32, verb, ": ", argument, " is ", element_name(vector->element), "; use fp32");
    require(vector->rows == 1 && vector->columns == problem.outputs, verb, ": ", argument, " has ", vector->rows * vector->columns,
            " values, but the weight has ", problem.outputs, " outputs");
    check_device(verb, argument, vector->device, vector->device_index, *problem.context);
}

}  // namespace

int64_t bits_bytes(const Images& images, int64_t groups) {
    const int64_t pixels = checked_multiply(checked_multiply(images.images, images.height, "pixels"), images.width, "pixels");
    return checked_multiply(pixels, checked_multiply(groups, bytes_of_bits(images.channels / groups), "pixel"), "bits");
}

void check_numbers(const char* verb, const char* argument, const Images& numbers, const Context& context) {
    require_float(verb, argument, numbers.element);
    check_numbers(verb, argument, numbers, false);
    check_device(verb, argument, numbers.device, numbers.device_index, context);
}

void check(const SignBitsProblem& problem) {
    constexpr const char* verb = SignBitsProblem::verb;
    check_numbers(verb, "x", problem.x, *problem.context);
    check_groups(verb, problem.groups, problem.x.channels, "channels of x");
    const int64_t bytes = bits_bytes(problem.x, problem.groups);
    require(problem.bits != nullptr || bytes == 0, verb, ": bits is a null pointer, but the signs of x take ", bytes, " bytes");
    refuse_overlap(verb, extent("bits", problem.bits, bytes), extent("x", problem.x));
}

void check(const BinaryConvProblem& problem) {
    constexpr const char* verb = BinaryConvProblem::verb;
    check_axes(problem);
    const BitsSizes sizes = check_bits(problem);
    check_vector("scale", problem.scale, problem);
    check_vector("bias", problem.bias, problem);
    check_result(problem);
    const Extent y = extent("y", problem.y);
    refuse_overlap(verb, y, extent("x", problem.x, sizes.x));
    refuse_overlap(verb, y, extent("weight", problem.weight, sizes.weight));
    if (problem.scale) refuse_overlap(verb, y, extent("scale", *problem.scale));
    if (problem.bias) refuse_overlap(verb, y, extent("bias", *problem.bias));
}

}  // namespace lowbit::core
