#include "cuda/quantize/fast.hpp"
#include "cuda/quantize/launcher.cuh"
#include "cuda/quantize/requirements.hpp"
#include "cuda/quantize/unit_codes.cuh"

namespace lowbit::cuda {
namespace {

constexpr int most_threads = 1024;
constexpr int many_units = 4;  // per thread, for long rows

struct RowArguments {
    const void* x;
    int64_t row_bytes;   // from one row of x to the next
    uint32_t row_units;  // units of a row
    core::QuantizedView result;
    bool static_scales;
    bool for_product;
};

// The largest of all threads of the block, in each of them.
__device__ inline float block_largest(float own) {
    __shared__ uint32_t warps[most_threads / warp_size];
    const int lane = int(threadIdx.x) % warp_size, warp = int(threadIdx.x) / warp_size;
    const uint32_t of_warp = warp_largest(core::float_to_bits(own));
    if (lane == 0) warps[warp] = of_warp;
    __syncthreads();
    return core::bits_to_float(warp_largest(lane < int(blockDim.x) / warp_size ? warps[lane] : 0));
}

// Block b has row b; thread t has its units t, t + threads, ...: neighbouring threads read and write side by side.
template <Element Input, Element element, int Units>
__device__ inline void quantize_row_as(const RowArguments& arguments) {
    const core::QuantizedView& result = arguments.result;
    const int64_t row = blockIdx.x;
    const uint8_t* from = static_cast<const uint8_t*>(arguments.x) + row * arguments.row_bytes;
    PlainUnit<Input> x[Units];
#pragma unroll
    for (int i = 0; i < Units; ++i) {
        const uint32_t unit = threadIdx.x + i * blockDim.x;
        x[i] = unit < arguments.row_units ? PlainUnit<Input>::load(from, unit) : PlainUnit<Input>::zeros();
    }
    uint32_t unit_bits[Units];
#pragma unroll
    for (int i = 0; i < Units; ++i) unit_bits[i] = x[i].largest_bits();

    float scale;
    if (arguments.static_scales) {
        scale = scale_at(result, row);
    } else {
        float largest = 0.0f;
#pragma unroll
        for (int i = 0; i < Units; ++i) largest = fmaxf(largest, x[i].largest_finite(unit_bits[i]));
        const Divisor largest_code(reference::largest_value(element));
        const reference::Scale made = symmetric_scale(result.format, block_largest(largest), largest_code, 0.0f);
        scale = made.value;
        if (threadIdx.x == 0) reference::store_scale_bits(result.format.scale, result.scales, row, made.bits);
    }

    using Codes = UnitCodes<element>;
    const Divisor divisor(scale);
    uint8_t* to = result.codes + row * (int64_t(arguments.row_units) * Codes::words * 4);
    uint32_t left_out = 0;  // a bit for each unit that the fast way does not take
#pragma unroll
    for (int i = 0; i < Units; ++i) {
        const uint32_t unit = threadIdx.x + i * blockDim.x;
        if (unit >= arguments.row_units) continue;
        if (Codes::template is_ordinary<Input>(unit_bits[i], scale))
            Codes::encode(x[i], divisor).store(to, unit);
        else
            left_out |= 1u << i;
    }
    // Rare: these are read again, so that the fast way need not keep them.
#pragma unroll 1
    for (int i = 0; left_out != 0; ++i, left_out >>= 1) {
        const uint32_t unit = threadIdx.x + i * blockDim.x;
        if (left_out & 1) Codes::encode_slowly(PlainUnit<Input>::load(from, unit), scale).store(to, unit);
    }
}

template <Element Input, int Units>
__global__ void __launch_bounds__(most_threads) quantize_row(RowArguments arguments) {
    wait_in_chain(arguments.for_product);
    switch (arguments.result.format.element) {
    case Element::int8: return quantize_row_as<Input, Element::int8, Units>(arguments);
    case Element::int4: return quantize_row_as<Input, Element::int4, Units>(arguments);
    case Element::fp8_e4m3: return quantize_row_as<Input, Element::fp8_e4m3, Units>(arguments);
    case Element::fp8_e5m2: return quantize_row_as<Input, Element::fp8_e5m2, Units>(arguments);
    case Element::fp4_e2m1: return quantize_row_as<Input, Element::fp4_e2m1, Units>(arguments);
    default: return quantize_row_as<Input, Element::nf4, Units>(arguments);
    }
}

// Short rows, and few of them, are spread thin: the time is that of one access to memory. Many rows have several accesses of each thread
// under way at once.
template <Element Input>
void run_with_input(const core::QuantizeProblem& problem, const RowArguments& arguments) {
    constexpr int64_t few_rows = 512, short_row = 512;
    const int64_t units = arguments.row_units;
    const bool thin = units <= most_threads && (problem.x.rows <= few_rows || units <= short_row / 2);
    const int64_t threads = core::ceil_div(core::ceil_div(units, thin ? 1 : many_units), warp_size) * warp_size;
    launch_quantizer("quantize_row", thin ? quantize_row<Input, 1> : quantize_row<Input, many_units>,
                     {unsigned(problem.x.rows), unsigned(threads)}, problem, arguments);
}

}  // namespace

std::string supports_quantize_row(const core::QuantizeProblem& problem) {
    const core::Format& format = problem.result.format;
    if (format.granularity != Granularity::row) return "for one scale per row";
    if (!is_symmetric_fast_element(format.element)) return "for symmetric elements of 8 and 4 bits";
    if (format.scale == Element::e8m0) return "for scales of 16 and 32 bits";
    if (std::string reason = reason_against_rows(problem.x); !reason.empty()) return reason;
    if (problem.x.columns > int64_t(most_threads) * many_units * unit_values) return "for rows of up to 32768 values";
    if (problem.x.rows >= int64_t(1) << 31) return "for fewer than 2^31 rows";
    if (!is_aligned(problem.result.codes, 8)) return "for codes at a multiple of 8 bytes";
    return "";
}

void run_quantize_row(const core::QuantizeProblem& problem) {
    const core::Tensor& x = problem.x;
    const RowArguments arguments{x.data,
                                 x.row_stride * bytes_of(x.element),
                                 uint32_t(x.columns / unit_values),
                                 problem.result,
                                 problem.static_scales,
                                 problem.for_product};
    switch (x.element) {
    case Element::bf16: return run_with_input<Element::bf16>(problem, arguments);
    case Element::fp16: return run_with_input<Element::fp16>(problem, arguments);
    default: return run_with_input<Element::fp32>(problem, arguments);
    }
}

}  // namespace lowbit::cuda
