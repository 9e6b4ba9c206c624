#include "cuda/quantize/division.cuh"
#include "cuda/quantize/fast.hpp"
#include "cuda/quantize/launcher.cuh"
#include "cuda/quantize/requirements.hpp"
#include "cuda/quantize/unit_scale.cuh"
#include "cuda/quantize/unit_values.cuh"

namespace lowbit::cuda {
namespace {

constexpr int unit_threads = 256;
constexpr int most_units = 4;  // per thread

// Codes and y are one run of units each; a scale covers `scale_units` of them.
struct UnitsArguments {
    core::QuantizedView x;
    void* y;
    uint32_t units;
    IndexDivisor scale_units;
    bool for_product;
};

template <Element Output, Element element, int Units>
__device__ inline void dequantize_units_as(const UnitsArguments& arguments) {
    constexpr int words = has_byte_codes(element) ? 2 : 1;
    const uint32_t first = blockIdx.x * (unit_threads * Units) + threadIdx.x;
    uint32_t codes[Units][words];
#pragma unroll
    for (int i = 0; i < Units; ++i) {
        const uint32_t unit = first + i * unit_threads;
        if (unit < arguments.units) load_words<words>(arguments.x.codes + int64_t(unit) * words * 4, codes[i]);
    }
#pragma unroll
    for (int i = 0; i < Units; ++i) {
        const uint32_t unit = first + i * unit_threads;
        if (unit >= arguments.units) continue;
        const uint32_t index = arguments.scale_units.quotient(unit);
        const float scale = unit_scale_at(arguments.x, index);
        float values[unit_values];
        decode_unit<element>(codes[i], zero_point_at(arguments.x, index), values);
#pragma unroll
        for (int k = 0; k < unit_values; ++k) values[k] = core::product(values[k], scale);
        PlainUnit<Output>::of(values).store(arguments.y, unit);
    }
}

template <Element Output, int Units>
__global__ void __launch_bounds__(unit_threads) dequantize_units(UnitsArguments arguments) {
    if (arguments.for_product) ptx::let_dependents_begin();
    switch (arguments.x.format.element) {
    case Element::int8: return dequantize_units_as<Output, Element::int8, Units>(arguments);
    case Element::uint8: return dequantize_units_as<Output, Element::uint8, Units>(arguments);
    case Element::int4: return dequantize_units_as<Output, Element::int4, Units>(arguments);
    case Element::uint4: return dequantize_units_as<Output, Element::uint4, Units>(arguments);
    case Element::fp8_e4m3: return dequantize_units_as<Output, Element::fp8_e4m3, Units>(arguments);
    case Element::fp8_e5m2: return dequantize_units_as<Output, Element::fp8_e5m2, Units>(arguments);
    case Element::fp4_e2m1: return dequantize_units_as<Output, Element::fp4_e2m1, Units>(arguments);
    default: return dequantize_units_as<Output, Element::nf4, Units>(arguments);
    }
}

// Few units are spread over as many threads as there are; many have several accesses of each thread under way.
template <Element Output>
void run_with_output(const core::DequantizeProblem& problem, const UnitsArguments& arguments) {
    constexpr uint32_t few_units = 1 << 18;
    const bool thin = arguments.units <= few_units;
    launch("dequantize_units", thin ? dequantize_units<Output, 1> : dequantize_units<Output, most_units>,
           {blocks_for(arguments.units, unit_threads * (thin ? 1 : most_units)), unit_threads}, *problem.context, arguments);
}

}  // namespace

std::string supports_dequantize_units(const core::DequantizeProblem& problem) {
    const core::Format& format = problem.x.format;
    const int64_t columns = problem.x.columns;
    if (!is_symmetric_fast_element(format.element) && format.element != Element::uint8 && format.element != Element::uint4)
        return "for elements of 8 and 4 bits";
    if (format.granularity == Granularity::block) return "not for blocks of several rows";
    if (format.granularity == Granularity::group && (format.group_columns % unit_values != 0 || columns % format.group_columns != 0))
        return "for groups of a multiple of 8 that divide K";
    if (std::string reason = reason_against_dense(problem.y); !reason.empty()) return reason;
    if (!is_aligned(problem.x.codes, 8)) return "for codes at a multiple of 8 bytes";
    return "";
}

void run_dequantize_units(const core::DequantizeProblem& problem) {
    const core::QuantizedView& x = problem.x;
    const auto units = uint32_t(x.rows * (x.columns / unit_values));
    if (units == 0) return;
    const bool whole = x.format.granularity == Granularity::tensor;
    const UnitsArguments arguments{x, problem.y.data, units, IndexDivisor(whole ? units : uint32_t(x.format.span(x.columns) / unit_values)),
                                   problem.for_product};
    switch (problem.y.element) {
    case Element::bf16: return run_with_output<Element::bf16>(problem, arguments);
    case Element::fp16: return run_with_output<Element::fp16>(problem, arguments);
    default: return run_with_output<Element::fp32>(problem, arguments);
    }
}

}  // namespace lowbit::cuda
