#include "cuda/quantize/fast.hpp"
#include "cuda/quantize/general.hpp"
#include "cuda/quantize/launcher.cuh"
#include "cuda/quantize/requirements.hpp"
#include "cuda/quantize/unit_codes.cuh"
#include "cuda/quantize/unit_scale.cuh"

namespace lowbit::cuda {
namespace {

constexpr int group_threads = 256;
constexpr int most_units = 4;  // per thread

// x is taken as one run of units: groups are whole, and rows follow each other without gaps.
struct GroupArguments {
    const void* x;
    uint32_t units;
    int group_lanes;  // units of a group, a power of two up to 32: neighbouring lanes of a warp
    int group_shift;  // its logarithm
    core::QuantizedView result;
    bool static_scales;
};

template <Element Input, Element element, int Units>
__device__ inline void quantize_groups_as(const GroupArguments& arguments) {
    const core::QuantizedView& result = arguments.result;
    const uint32_t first = blockIdx.x * (group_threads * Units) + threadIdx.x;
    PlainUnit<Input> x[Units];
#pragma unroll
    for (int i = 0; i < Units; ++i) {
        const uint32_t unit = first + i * group_threads;
        x[i] = unit < arguments.units ? PlainUnit<Input>::load(arguments.x, unit) : PlainUnit<Input>::zeros();
    }
    const Divisor largest_code(reference::largest_value(element));
    const float tensor_scale = result.format.scale == Element::fp8_e4m3 ? *result.tensor_scale : 0.0f;
    using Codes = UnitCodes<element>;
    float scales[Units];
    uint32_t left_out = 0;  // a bit for each unit that the fast way does not take
#pragma unroll
    for (int i = 0; i < Units; ++i) {
        const uint32_t unit = first + i * group_threads, group = unit >> arguments.group_shift;
        const uint32_t unit_bits = x[i].largest_bits();
        if (!arguments.static_scales) {
            // All lanes take part, those behind the end with zeros.
            const float own = x[i].largest_finite(unit_bits);
            const float largest = core::bits_to_float(group_largest(core::float_to_bits(own), arguments.group_lanes));
            const reference::Scale made = symmetric_scale(result.format, largest, largest_code, tensor_scale);
            scales[i] = made.value;
            if (unit < arguments.units && threadIdx.x % arguments.group_lanes == 0)
                reference::store_scale_bits(result.format.scale, result.scales, group, made.bits);
        }
        if (unit >= arguments.units) continue;
        if (arguments.static_scales) scales[i] = unit_scale_at(result, group);
        if (Codes::template is_ordinary<Input>(unit_bits, scales[i]))
            Codes::encode(x[i], Divisor(scales[i])).store(result.codes, unit);
        else
            left_out |= 1u << i;
    }
    // Rare: these are read again, so that the fast way need not keep them.
#pragma unroll 1
    for (int i = 0; left_out != 0; ++i, left_out >>= 1) {
        const uint32_t unit = first + i * group_threads;
        float scale = scales[0];
#pragma unroll
        for (int k = 1; k < Units; ++k) scale = i == k ? scales[k] : scale;
        if (left_out & 1) Codes::encode_slowly(PlainUnit<Input>::load(arguments.x, unit), scale).store(result.codes, unit);
    }
}

template <Element Input, int Units>
__global__ void __launch_bounds__(group_threads) quantize_groups(GroupArguments arguments) {
    switch (arguments.result.format.element) {
    case Element::int8: return quantize_groups_as<Input, Element::int8, Units>(arguments);
    case Element::int4: return quantize_groups_as<Input, Element::int4, Units>(arguments);
    case Element::fp8_e4m3: return quantize_groups_as<Input, Element::fp8_e4m3, Units>(arguments);
    case Element::fp8_e5m2: return quantize_groups_as<Input, Element::fp8_e5m2, Units>(arguments);
    case Element::fp4_e2m1: return quantize_groups_as<Input, Element::fp4_e2m1, Units>(arguments);
    default: return quantize_groups_as<Input, Element::nf4, Units>(arguments);
    }
}

// Few units are spread over as many threads as there are; many have several accesses of each thread under way.
template <Element Input>
void run_with_input(const core::QuantizeProblem& problem, const GroupArguments& arguments) {
    constexpr uint32_t few_units = 1 << 18;
    const bool thin = arguments.units <= few_units;
    launch("quantize_groups", thin ? quantize_groups<Input, 1> : quantize_groups<Input, most_units>,
           {blocks_for(arguments.units, group_threads * (thin ? 1 : most_units)), group_threads}, *problem.context, arguments);
}

}  // namespace

std::string supports_quantize_group(const core::QuantizeProblem& problem) {
    const core::Format& format = problem.result.format;
    if (format.granularity != Granularity::group) return "for groups along K";
    if (!is_symmetric_fast_element(format.element)) return "for symmetric elements of 8 and 4 bits";
    const int64_t size = format.group_columns;
    if (size < unit_values || size > unit_values * warp_size || (size & (size - 1)) != 0) return "for groups of 8, 16, ..., 256";
    if (std::string reason = reason_against_dense(problem.x); !reason.empty()) return reason;
    if (problem.x.columns % size != 0) return "for K a multiple of the group";
    if (!is_aligned(problem.result.codes, 8)) return "for codes at a multiple of 8 bytes";
    return "";
}

void run_quantize_group(const core::QuantizeProblem& problem) {
    run_tensor_statistics(problem);
    const core::Tensor& x = problem.x;
    GroupArguments arguments{x.data,
                             uint32_t(x.rows * (x.columns / unit_values)),
                             int(problem.result.format.group_columns / unit_values),
                             0,
                             problem.result,
                             problem.static_scales};
    while ((1 << arguments.group_shift) < arguments.group_lanes) ++arguments.group_shift;
    switch (x.element) {
    case Element::bf16: return run_with_input<Element::bf16>(problem, arguments);
    case Element::fp16: return run_with_input<Element::fp16>(problem, arguments);
    default: return run_with_input<Element::fp32>(problem, arguments);
    }
}

}  // namespace lowbit::cuda
