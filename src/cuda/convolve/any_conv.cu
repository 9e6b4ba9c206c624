// Any convolution of signs: a thread makes one result. The last of the CUDA kernels, for what none before it takes, and for groups of few
// outputs, which would leave most of a tensor core's tile empty.
#include "cuda/convolve/convolve.hpp"
#include "cuda/convolve/result.cuh"
#include "cuda/formats/planes.cuh"
#include "cuda/launch.cuh"

namespace lowbit::cuda {
namespace {

constexpr int threads = 256;

struct AnyConvArgs {
    const uint8_t *x, *weight;
    core::ConvolutionAxis down, across;
    int64_t rows, columns, outputs, group_outputs, channels, group_bytes, pixel_bytes, weight_row_bytes, count;
    bool words;         // of 4 bytes, aligned on both sides
    bool outputs_last;  // neighbouring threads have neighbouring outputs, else columns
    ConvResult result;
};

__device__ int differing_bits(const uint8_t* a, const uint8_t* b, int64_t bytes, bool words) {
    int count = 0;
    if (words)
        for (int64_t i = 0; i < bytes; i += 4)
            count += __popc(*reinterpret_cast<const uint32_t*>(a + i) ^ *reinterpret_cast<const uint32_t*>(b + i));
    else
        for (int64_t i = 0; i < bytes; ++i) count += __popc(uint32_t(a[i] ^ b[i]));
    return count;
}

__device__ int64_t first_tap(const core::ConvolutionAxis& axis, int64_t start) {
    return start >= 0 ? 0 : quotient(-start + axis.dilation - 1, axis.dilation);
}

__global__ void __launch_bounds__(threads) any_conv(const AnyConvArgs args) {
    const int64_t index = int64_t(blockIdx.x) * threads + threadIdx.x;
    if (index >= args.count) return;
    // index = ((image * a + ..) * b + ..) * c + .., with the fastest of outputs and columns last.
    int64_t rest = index, output, row, column;
    const auto next = [&](int64_t size) {
        const int64_t whole = quotient(rest, size), part = rest - whole * size;
        rest = whole;
        return part;
    };
    if (args.outputs_last)
        output = next(args.outputs), column = next(args.columns), row = next(args.rows);
    else
        column = next(args.columns), row = next(args.rows), output = next(args.outputs);
    const int64_t image = rest, group = quotient(output, args.group_outputs);
    const int64_t top = row * args.down.stride - args.down.before, left = column * args.across.stride - args.across.before;
    const uint8_t* weight = args.weight + output * args.weight_row_bytes;
    const uint8_t* x = args.x + image * args.down.size * args.across.size * args.pixel_bytes + group * args.group_bytes;
    int taps = 0, differ = 0;
    for (int64_t i = first_tap(args.down, top); i < args.down.kernel; ++i) {
        const int64_t y = top + i * args.down.dilation;
        if (y >= args.down.size) break;
        for (int64_t j = first_tap(args.across, left); j < args.across.kernel; ++j) {
            const int64_t at = left + j * args.across.dilation;
            if (at >= args.across.size) break;
            differ += differing_bits(x + (y * args.across.size + at) * args.pixel_bytes,
                                     weight + (i * args.across.kernel + j) * args.group_bytes, args.group_bytes, args.words);
            ++taps;
        }
    }
    const ConvResult& result = args.result;
    const int value = int(taps * args.channels) - 2 * differ;
    const float number = finished(float(value), result.finish_of(output));
    uint32_t bits = uint32_t(value);
    if (result.element == Element::fp32) bits = __float_as_uint(number);
    if (result.element == Element::fp16) bits = float_to_half(number);
    if (result.element == Element::bf16) bits = float_to_bfloat(number);
    result.store(image * result.strides[0] + output * result.strides[1] + row * result.strides[2] + column * result.strides[3], bits);
}

void run_any_conv(const core::BinaryConvProblem& problem) {
    const int64_t rows = problem.down.positions(), columns = problem.across.positions();
    const int64_t count = problem.images * problem.outputs * rows * columns, group_bytes = core::bytes_of_bits(problem.channels);
    if (count == 0) return;
    const auto address = reinterpret_cast<uintptr_t>(problem.x) | reinterpret_cast<uintptr_t>(problem.weight);
    const AnyConvArgs args{problem.x,
                           problem.weight,
                           problem.down,
                           problem.across,
                           rows,
                           columns,
                           problem.outputs,
                           problem.group_outputs(),
                           problem.channels,
                           group_bytes,
                           problem.pixel_bytes(),
                           problem.weight_row_bytes(),
                           count,
                           group_bytes % 4 == 0 && address % 4 == 0,
                           problem.y.strides[1] == 1 && problem.outputs > 1,
                           ConvResult(problem)};
    any_conv<<<blocks_for(count, threads), threads, 0, stream_of(*problem.context)>>>(args);
    check_launch("cuda_any_conv");
}

}  // namespace

void add_any_conv(core::Registry& registry) {
    core::Kernel<core::BinaryConvProblem> kernel;
    kernel.name = "cuda_any_conv";
    kernel.needs = "any CUDA device";
    kernel.supports = [](const core::BinaryConvProblem& problem) {
        const int64_t count = problem.images * problem.outputs * problem.down.positions() * problem.across.positions();
        return std::string(count / threads >= INT32_MAX ? "more results than a launch has threads for" : "");
    };
    kernel.run = run_any_conv;
    registry.binary_conv.add(std::move(kernel));
}

}  // namespace lowbit::cuda
