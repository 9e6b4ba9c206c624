#include "cuda/quantize/fast.hpp"
#include "cuda/quantize/general.hpp"
#include "cuda/quantize/launcher.cuh"
#include "cuda/quantize/requirements.hpp"
#include "cuda/quantize/unit_codes.cuh"
#include "cuda/quantize/unit_scale.cuh"

namespace lowbit::cuda {
namespace {

constexpr int group_threads = 256;

// x is taken as one run of units: groups are whole, and rows follow each other without gaps.
struct GroupArguments {
    const void* x;
    uint32_t threads;  // that have something to do
    int group_lanes;   // threads that share a group, a power of two up to 32: neighbouring lanes of a warp
    int group_shift;   // its logarithm
    core::QuantizedView result;
    bool static_scales;
    bool for_product;
};

// A thread has one unit, or four of the same group: one scale and one divisor serve them all. Two and two of the four are neighbours, so
// that few lanes write whole sectors.
template <int Units>
__device__ inline uint32_t unit_of_thread(const GroupArguments& arguments, uint32_t thread, int i) {
    if constexpr (Units == 1) return thread;
    const uint32_t lanes = uint32_t(arguments.group_lanes), group = thread >> arguments.group_shift, lane = thread & (lanes - 1);
    return group * (lanes * Units) + uint32_t(i / 2) * (2 * lanes) + 2 * lane + uint32_t(i % 2);
}

// The codes of neighbouring units in one store.
template <int Units, Element element, class UnitAt>
__device__ inline void store_codes(const UnitCodes<element> (&codes)[Units], uint8_t* to, const UnitAt& unit_at) {
    if constexpr (Units == 1) {
        codes[0].store(to, unit_at(0));
    } else {
        constexpr int words = UnitCodes<element>::words;
#pragma unroll
        for (int i = 0; i < Units; i += 2) {
            uint32_t pair[2 * words];
#pragma unroll
            for (int w = 0; w < words; ++w) pair[w] = codes[i].word[w], pair[words + w] = codes[i + 1].word[w];
            store_words<2 * words>(to + int64_t(unit_at(i)) * words * 4, pair);
        }
    }
}

template <Element Input, Element element, int Units>
__device__ inline void quantize_groups_as(const GroupArguments& arguments) {
    const core::QuantizedView& result = arguments.result;
    const uint32_t thread = blockIdx.x * group_threads + threadIdx.x, group = thread >> arguments.group_shift;
    const bool inside = thread < arguments.threads;
    PlainUnit<Input> x[Units];
#pragma unroll
    for (int i = 0; i < Units; ++i)
        x[i] = inside ? PlainUnit<Input>::load(arguments.x, unit_of_thread<Units>(arguments, thread, i)) : PlainUnit<Input>::zeros();
    const uint32_t bits = largest_bits(x);
    float scale;
    if (!arguments.static_scales) {
        // All lanes take part, those behind the end with zeros.
        const Divisor largest_code(reference::largest_value(element));
        const float tensor_scale = result.format.scale == Element::fp8_e4m3 ? *result.tensor_scale : 0.0f;
        const float own = largest_finite(x, bits);
        const float largest = core::bits_to_float(group_largest(core::float_to_bits(own), arguments.group_lanes));
        const reference::Scale made = symmetric_scale(result.format, largest, largest_code, tensor_scale);
        scale = made.value;
        if (inside && threadIdx.x % arguments.group_lanes == 0)
            reference::store_scale_bits(result.format.scale, result.scales, group, made.bits);
    } else {
        scale = inside ? unit_scale_at(result, group) : 1.0f;
    }
    if (!inside) return;
    using Codes = UnitCodes<element>;
    if (Codes::template is_ordinary<Input>(bits, scale)) {
        const Divisor divisor(scale);
        Codes codes[Units];
#pragma unroll
        for (int i = 0; i < Units; ++i) codes[i] = Codes::encode(x[i], divisor);
        store_codes<Units>(codes, result.codes, [&](int i) { return unit_of_thread<Units>(arguments, thread, i); });
        return;
    }
    // Rare: read again, so that the fast way need not keep them.
#pragma unroll 1
    for (int i = 0; i < Units; ++i) {
        const uint32_t unit = unit_of_thread<Units>(arguments, thread, i);
        Codes::encode_slowly(PlainUnit<Input>::load(arguments.x, unit), scale).store(result.codes, unit);
    }
}

template <Element Input, int Units>
__global__ void __launch_bounds__(group_threads) quantize_groups(GroupArguments arguments) {
    wait_in_chain(arguments.for_product);
    switch (arguments.result.format.element) {
    case Element::int8: return quantize_groups_as<Input, Element::int8, Units>(arguments);
    case Element::int4: return quantize_groups_as<Input, Element::int4, Units>(arguments);
    case Element::fp8_e4m3: return quantize_groups_as<Input, Element::fp8_e4m3, Units>(arguments);
    case Element::fp8_e5m2: return quantize_groups_as<Input, Element::fp8_e5m2, Units>(arguments);
    case Element::fp4_e2m1: return quantize_groups_as<Input, Element::fp4_e2m1, Units>(arguments);
    default: return quantize_groups_as<Input, Element::nf4, Units>(arguments);
    }
}

template <Element Input>
void run_with_input(const core::QuantizeProblem& problem, GroupArguments arguments, uint32_t units) {
    // Few units are spread over as many threads as there are; and groups of one or two units have none to give to each other.
    constexpr uint32_t few_units = 1 << 18;
    constexpr int most_units = 4;
    const int64_t group_units = problem.result.format.group_columns / unit_values;
    // Stores of two units at a time are aligned to both.
    const int own = units <= few_units || group_units < most_units || !is_aligned(problem.result.codes, 16) ? 1 : most_units;
    arguments.threads = units / uint32_t(own);
    arguments.group_lanes = int(group_units) / own;
    while ((1 << arguments.group_shift) < arguments.group_lanes) ++arguments.group_shift;
    launch_quantizer("quantize_groups", own == 1 ? quantize_groups<Input, 1> : quantize_groups<Input, most_units>,
                     {blocks_for(arguments.threads, group_threads), group_threads}, problem, arguments);
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
    const uint32_t units = uint32_t(x.rows * (x.columns / unit_values));
    const GroupArguments arguments{x.data, 0, 1, 0, problem.result, problem.static_scales, problem.for_product};
    switch (x.element) {
    case Element::bf16: return run_with_input<Element::bf16>(problem, arguments, units);
    case Element::fp16: return run_with_input<Element::fp16>(problem, arguments, units);
    default: return run_with_input<Element::fp32>(problem, arguments, units);
    }
}

}  // namespace lowbit::cuda
