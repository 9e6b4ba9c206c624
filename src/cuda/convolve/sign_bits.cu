// Numbers of images -> bits of their signs, channels innermost.
#include "cuda/convolve/convolve.hpp"
#include "cuda/formats/planes.cuh"
#include "cuda/launch.cuh"
#include "cuda/numbers.cuh"

namespace lowbit::cuda {
namespace {

constexpr int threads = 256;
constexpr int word_bytes = 4;  // what a thread makes: the signs of 32 channels

struct SignArgs {
    const void* x;
    Element element;
    int64_t strides[4];
    int64_t pixels, row_pixels, image_pixels;
    int channels, group_bytes, words, groups;  // of a group
    uint8_t* bits;
    bool whole_words, channels_are_neighbours, runs_of_16_bytes;
};

template <class Number>
__device__ bool is_negative(Number bits, Element element) {
    if constexpr (sizeof(Number) == 4)
        return __uint_as_float(bits) < 0.0f;
    else
        return (element == Element::fp16 ? half_to_float(bits) : bfloat_to_float(bits)) < 0.0f;
}

// A thread takes 32 channels of a pixel. Neighbouring threads have neighbouring channels where those lie side by side, else neighbouring
// pixels.
template <class Number>
__global__ void __launch_bounds__(threads) sign_bits(const SignArgs args) {
    const int64_t count = args.pixels * args.groups * args.words, index = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (index >= count) return;
    const int words = args.groups * args.words;
    const int64_t pixel = args.channels_are_neighbours ? quotient(index, words) : index - quotient(index, args.pixels) * args.pixels;
    const int which = int(args.channels_are_neighbours ? index - pixel * words : quotient(index, args.pixels));
    const int group = which / args.words, first = (which - group * args.words) * 32;
    const int64_t image = quotient(pixel, args.image_pixels), in_image = pixel - image * args.image_pixels;
    const int64_t row = quotient(in_image, args.row_pixels), column = in_image - row * args.row_pixels;
    const auto* from = static_cast<const Number*>(args.x) + image * args.strides[0] + row * args.strides[2] + column * args.strides[3] +
                       (int64_t(group) * args.channels + first) * args.strides[1];
    const int there = args.channels - first < 32 ? args.channels - first : 32;
    uint32_t word = 0;
    if (args.runs_of_16_bytes && there == 32) {
        constexpr int per_run = 16 / int(sizeof(Number));
        uint4 runs[32 / per_run];
#pragma unroll
        for (int i = 0; i < 32 / per_run; ++i) runs[i] = reinterpret_cast<const uint4*>(from)[i];
        const auto* numbers = reinterpret_cast<const Number*>(runs);
#pragma unroll
        for (int i = 0; i < 32; ++i) word |= uint32_t(is_negative(numbers[i], args.element)) << i;
    } else if (there == 32) {
        Number numbers[32];
#pragma unroll
        for (int i = 0; i < 32; ++i) numbers[i] = from[i * args.strides[1]];
#pragma unroll
        for (int i = 0; i < 32; ++i) word |= uint32_t(is_negative(numbers[i], args.element)) << i;
    } else {
        for (int i = 0; i < there; ++i) word |= uint32_t(is_negative(from[i * args.strides[1]], args.element)) << i;
    }
    uint8_t* to = args.bits + (pixel * args.groups + group) * args.group_bytes + first / 8;
    if (args.whole_words)
        *reinterpret_cast<uint32_t*>(to) = word;
    else
        for (int i = 0; i < word_bytes && first / 8 + i < args.group_bytes; ++i) to[i] = uint8_t(word >> 8 * i);
}

// Numbers that lie in the order of their bits: a thread makes bytes of eight numbers each, a block's width apart.
constexpr int flat_bytes_per_thread = 4;
template <class Number>
__global__ void __launch_bounds__(threads) flat_sign_bits(const Number* from, Element element, uint8_t* to, int64_t bytes) {
    constexpr int runs = int(sizeof(Number)) / 2;  // of 16 bytes, for eight numbers
    const int64_t first = int64_t(blockIdx.x) * (threads * flat_bytes_per_thread) + threadIdx.x;
    uint4 loaded[flat_bytes_per_thread][runs];
#pragma unroll
    for (int i = 0; i < flat_bytes_per_thread; ++i)
#pragma unroll
        for (int run = 0; run < runs; ++run)
            if (first + i * threads < bytes)
                loaded[i][run] = __ldcs(reinterpret_cast<const uint4*>(from) + (first + i * threads) * runs + run);
#pragma unroll
    for (int i = 0; i < flat_bytes_per_thread; ++i) {
        const auto* numbers = reinterpret_cast<const Number*>(loaded[i]);
        uint32_t byte = 0;
#pragma unroll
        for (int bit = 0; bit < 8; ++bit) byte |= uint32_t(is_negative(numbers[bit], element)) << bit;
        if (first + i * threads < bytes) to[first + i * threads] = uint8_t(byte);
    }
}

bool lie_as_bits(const core::Images& x, int64_t groups) {
    const int64_t row = x.width * x.channels, strides[4] = {x.height * row, 1, row, x.channels};
    const int64_t sizes[4] = {x.images, x.channels, x.height, x.width};
    for (int i = 0; i < 4; ++i)
        if (sizes[i] > 1 && x.strides[i] != strides[i]) return false;
    return x.channels / groups % 8 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

void run_sign_bits(const core::SignBitsProblem& problem) {
    const core::Images& x = problem.x;
    if (x.pixels() == 0 || x.channels == 0) return;
    const cudaStream_t stream = stream_of(*problem.context);
    if (lie_as_bits(x, problem.groups)) {
        const int64_t bytes = x.pixels() * x.channels / 8;
        const unsigned flat_blocks = blocks_for(bytes, threads * flat_bytes_per_thread);
        if (x.element == Element::fp32)
            flat_sign_bits<<<flat_blocks, threads, 0, stream>>>(static_cast<const uint32_t*>(x.data), x.element, problem.bits, bytes);
        else
            flat_sign_bits<<<flat_blocks, threads, 0, stream>>>(static_cast<const uint16_t*>(x.data), x.element, problem.bits, bytes);
        return check_launch("cuda_sign_bits");
    }
    SignArgs args{};
    args.x = x.data, args.element = x.element, args.bits = problem.bits;
    for (int i = 0; i < 4; ++i) args.strides[i] = x.strides[i];
    args.pixels = x.pixels(), args.row_pixels = x.width, args.image_pixels = x.height * x.width;
    args.groups = int(problem.groups), args.channels = int(x.channels / problem.groups);
    args.group_bytes = int(core::bytes_of_bits(args.channels)), args.words = int(core::ceil_div(args.channels, 32));
    const auto is_aligned = [](const void* pointer, uintptr_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; };
    args.whole_words = args.group_bytes % word_bytes == 0 && is_aligned(problem.bits, word_bytes);
    args.channels_are_neighbours = x.strides[1] == 1;
    const int bytes = core::element_bytes(x.element);
    args.runs_of_16_bytes = args.channels_are_neighbours && is_aligned(x.data, 16) && args.channels * bytes % 16 == 0 &&
                            x.strides[0] * bytes % 16 == 0 && x.strides[2] * bytes % 16 == 0 && x.strides[3] * bytes % 16 == 0;
    const unsigned blocks = blocks_for(args.pixels * args.groups * args.words, threads);
    if (bytes == 4)
        sign_bits<uint32_t><<<blocks, threads, 0, stream>>>(args);
    else
        sign_bits<uint16_t><<<blocks, threads, 0, stream>>>(args);
    check_launch("cuda_sign_bits");
}

}  // namespace

void add_sign_bits(core::Registry& registry) {
    core::Kernel<core::SignBitsProblem> kernel;
    kernel.name = "cuda_sign_bits";
    kernel.needs = "any CUDA device";
    kernel.supports = [](const core::SignBitsProblem& problem) {
        return std::string(problem.x.channels > INT32_MAX || problem.x.pixels() * problem.x.channels / 32 > int64_t(INT32_MAX) * 128
                               ? "more channels or pixels than a launch has threads for"
                               : "");
    };
    kernel.run = run_sign_bits;
    registry.sign_bits.add(std::move(kernel));
}

}  // namespace lowbit::cuda
