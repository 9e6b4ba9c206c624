// q4_0, q8_0 and q8_1. A thread quantizes a block of 32 values, four units; four lanes dequantize one, a unit each. A warp has some
// neighbouring blocks, so that what it reads and what it writes is each one run of bytes.
#include "cuda/quantize/division.cuh"
#include "cuda/quantize/fast.hpp"
#include "cuda/quantize/launcher.cuh"
#include "cuda/quantize/requirements.hpp"
#include "cuda/quantize/stage.cuh"
#include "cuda/quantize/unit_codes.cuh"
#include "cuda/quantize/unit_values.cuh"
#include "reference/ggml_simple.hpp"

namespace lowbit::cuda {
namespace {

using reference::ggml::Q4_0;
using reference::ggml::Q8_0;
using reference::ggml::Q8_1;

constexpr int block_threads = 128;
constexpr int block_warps = block_threads / warp_size;
constexpr int units_per_block = 4;  // 32 values
constexpr int block_lanes = 4;      // of a block, when it is dequantized
constexpr int most_units = 4;       // per thread, when they are dequantized

struct BlocksArguments {
    const void* plain_in;  // of quantize
    void* plain_out;       // of dequantize
    uint8_t* blocks;
    uint32_t units;
    Element element;
    bool for_product;
};

// Where a thread stands: its units are first, first + 32, ...; the blocks of its warp begin at `bytes` of the plane.
template <class Block, int Units>
struct BlockPosition {
    int lane;
    uint32_t first;
    int64_t bytes;
    int warp_bytes;  // of the blocks of this warp that exist

    __device__ explicit BlockPosition(uint32_t units) : lane(int(threadIdx.x) % warp_size) {
        const uint32_t warp_first = (blockIdx.x * block_warps + threadIdx.x / warp_size) * (warp_size * Units);
        first = warp_first + uint32_t(lane);
        bytes = int64_t(warp_first / block_lanes) * Block::bytes;
        const int64_t existing = int64_t(units) - int64_t(warp_first);
        warp_bytes = int(smaller(existing > 0 ? existing : 0, warp_size * Units)) / block_lanes * Block::bytes;
    }
    // The thread's block of its i-th unit, counted in the warp.
    __device__ int block(int i) const { return (i * warp_size + lane) / block_lanes; }
    __device__ int quarter() const { return lane % block_lanes; }
};

// round(x * inverse), halves away from zero, in the bytes of two words.
template <Element Input>
__device__ inline void encode_q8(const PlainUnit<Input>& x, bool ordinary, float inverse, uint32_t (&bytes)[2]) {
    if (ordinary) {  // the product lies between -127.5 and 127.5; what is cut off cannot pass an integer
        uint32_t codes[unit_values];
#pragma unroll
        for (int i = 0; i < unit_values; ++i) {
            const float product = core::product(x.value(i), inverse);
            codes[i] = uint32_t(int(__fadd_rz(product, with_sign_of(0.5f, product))));
        }
        bytes[0] = low_bytes(codes[0], codes[1], codes[2], codes[3]);
        bytes[1] = low_bytes(codes[4], codes[5], codes[6], codes[7]);
        return;
    }
    PlainUnit<Input> left = x;
    bytes[0] = bytes[1] = 0;
#pragma unroll 1
    for (int i = 0; i < unit_values; ++i, left.drop_first()) {
        const int code = reference::ggml::round_half_away_between(core::product(left.value(0), inverse), -128, 127);
        bytes[0] = bytes[0] >> 8 | bytes[1] << 24;
        bytes[1] = bytes[1] >> 8 | uint32_t(code) << 24;
    }
}

template <class Block, Element Input>
__device__ inline void quantize_q8(const PlainUnit<Input> (&x)[units_per_block], uint8_t* to) {
    constexpr bool whole_words = Block::bytes % 4 == 0;
    const uint32_t bits = largest_bits(x);
    const float scale = core::divide(largest_number(x, bits), 127.0f);
    const float inverse = reference::ggml::inverse_or_zero(scale);
    const bool ordinary = Divisor::covers_divisor(scale) && bits < PlainUnit<Input>::extraordinary_bits;
    int sum = 0;
#pragma unroll
    for (int i = 0; i < units_per_block; ++i) {
        uint32_t bytes[2];
        encode_q8(x[i], ordinary, inverse, bytes);
#pragma unroll
        for (int w = 0; w < 2; ++w) {
            stage_word<whole_words>(to + Block::codes + unit_values * i + 4 * w, bytes[w]);
            sum = __dp4a(int(bytes[w]), 0x01010101, sum);
        }
    }
    stage_half(to + Block::scale, float_to_half(scale));
    if constexpr (Block::bytes == Q8_1::bytes)
        stage_half(to + Q8_1::sum, core::float_to_fp16(core::multiply(scale, float(sum))));  // infinity times 0: the reference's NaN
}

// The value of largest magnitude with its sign, the first of equals; 0 where there is none but zeros and NaN.
template <Element Input>
__device__ inline float signed_largest(const PlainUnit<Input> (&x)[units_per_block]) {
    const float largest = largest_number(x, largest_bits(x));
    float found = 0.0f;
#pragma unroll
    for (int i = units_per_block * unit_values - 1; i >= 0; --i) {
        const float value = x[i / unit_values].value(i % unit_values);
        if (fabsf(value) == largest) found = value;
    }
    return largest == 0.0f ? 0.0f : found;
}

template <Element Input>
__device__ inline void quantize_q4_0(const PlainUnit<Input> (&x)[units_per_block], uint8_t* to) {
    const float scale = core::divide(signed_largest(x), -8.0f);
    const float inverse = reference::ggml::inverse_or_zero(scale);
    // Values 16 .. 31 go into the high nibbles of values 0 .. 15.
#pragma unroll
    for (int half = 0; half < units_per_block / 2; ++half) {
        uint32_t bytes[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < 2 * unit_values; ++i) {
            const float number = x[half + i / unit_values * (units_per_block / 2)].value(i % unit_values);
            const float value = core::sum(core::product(number, inverse), 8.5f);
            const int shift = 8 * (i % 4) + 4 * (i / unit_values);
            bytes[i % unit_values / 4] |= uint32_t(reference::ggml::truncate_between(value, 0, 15)) << shift;
        }
        stage_word<false>(to + Q4_0::nibbles + unit_values * half, bytes[0]);
        stage_word<false>(to + Q4_0::nibbles + unit_values * half + 4, bytes[1]);
    }
    stage_half(to + Q4_0::scale, float_to_half(scale));
}

template <Element Input, class Block>
__device__ inline void quantize_blocks_as(const BlocksArguments& arguments, uint8_t* stage) {
    const int lane = int(threadIdx.x) % warp_size;
    const uint32_t warp_first = (blockIdx.x * block_warps + threadIdx.x / warp_size) * warp_size, block = warp_first + uint32_t(lane);
    const uint32_t blocks = arguments.units / units_per_block;
    if (block < blocks) {
        PlainUnit<Input> x[units_per_block];
#pragma unroll
        for (int i = 0; i < units_per_block; ++i) x[i] = PlainUnit<Input>::load(arguments.plain_in, int64_t(block) * units_per_block + i);
        uint8_t* to = stage + lane * Block::bytes;
        if constexpr (Block::bytes == Q4_0::bytes)
            quantize_q4_0(x, to);
        else
            quantize_q8<Block>(x, to);
    }
    const int existing = int(smaller(int64_t(blocks) - int64_t(warp_first), int64_t(warp_size)));
    if (existing > 0) copy_from_stage(stage, existing * Block::bytes, arguments.blocks + int64_t(warp_first) * Block::bytes, lane);
}

// Eight values of a block in the stage.
template <class Block>
__device__ inline void decode_block_unit(const uint8_t* block, int quarter, float (&values)[unit_values]) {
    const float scale = core::fp16_to_float(uint16_t(stage_half(block + Block::scale)));
    if constexpr (Block::bytes == Q4_0::bytes) {
        const uint8_t* from = block + Block::nibbles + unit_values * (quarter % 2);
        const int shift = quarter < 2 ? 0 : 4;
        const uint32_t bytes[2] = {stage_word(from) >> shift & 0x0f0f0f0fu, stage_word(from + 4) >> shift & 0x0f0f0f0fu};
        decode_unit<Element::uint8>(bytes, 8, values);
    } else {
        const uint8_t* from = block + Block::codes + unit_values * quarter;
        const uint32_t bytes[2] = {stage_word(from), stage_word(from + 4)};
        decode_unit<Element::int8>(bytes, 0, values);
    }
#pragma unroll
    for (int i = 0; i < unit_values; ++i) values[i] = core::product(values[i], scale);
}

template <Element Output, class Block, int Units>
__device__ inline void dequantize_blocks_as(const BlocksArguments& arguments, uint8_t* stage) {
    const BlockPosition<Block, Units> at(arguments.units);
    copy_to_stage(arguments.blocks + at.bytes, at.warp_bytes, stage, at.lane);
#pragma unroll
    for (int i = 0; i < Units; ++i) {
        const uint32_t unit = at.first + i * warp_size;
        if (unit >= arguments.units) continue;
        float values[unit_values];
        decode_block_unit<Block>(stage + at.block(i) * Block::bytes, at.quarter(), values);
        PlainUnit<Output>::of(values).store(arguments.plain_out, unit);
    }
}

template <int Units>
struct alignas(16) Stage {
    uint8_t bytes[block_warps][Units * warp_size / block_lanes * Q8_1::bytes];
};

template <Element Plain, int Units, bool Encode>
__global__ void __launch_bounds__(block_threads) convert_blocks(BlocksArguments arguments) {
    __shared__ Stage<Units> stages;
    if constexpr (Encode)
        wait_in_chain(arguments.for_product);
    else if (arguments.for_product)
        ptx::let_dependents_begin();
    uint8_t* stage = stages.bytes[threadIdx.x / warp_size];
    const auto convert = [&]<class Block>() {
        if constexpr (Encode)
            quantize_blocks_as<Plain, Block>(arguments, stage);
        else
            dequantize_blocks_as<Plain, Block, Units>(arguments, stage);
    };
    switch (arguments.element) {
    case Element::q4_0: return convert.template operator()<Q4_0>();
    case Element::q8_0: return convert.template operator()<Q8_0>();
    default: return convert.template operator()<Q8_1>();
    }
}

// run<plain>() with the element as a template argument.
template <class Run>
void with_plain(Element plain, const Run& run) {
    switch (plain) {
    case Element::bf16: return run.template operator()<Element::bf16>();
    case Element::fp16: return run.template operator()<Element::fp16>();
    default: return run.template operator()<Element::fp32>();
    }
}

BlocksArguments blocks_arguments(const core::Tensor& plain, const core::QuantizedView& quantized, bool for_product) {
    const auto units = uint32_t(plain.rows * (plain.columns / unit_values));
    return {plain.data, plain.data, quantized.codes, units, quantized.format.element, for_product};
}

std::string reason_against_blocks(const core::Tensor& plain, const core::QuantizedView& quantized) {
    const Element element = quantized.format.element;
    if (element != Element::q4_0 && element != Element::q8_0 && element != Element::q8_1) return "for q4_0, q8_0 and q8_1";
    if (std::string reason = reason_against_dense(plain); !reason.empty()) return reason;
    if (!is_aligned(quantized.codes, 16)) return "for blocks at a multiple of 16 bytes";
    return "";
}

}  // namespace

std::string supports_quantize_blocks(const core::QuantizeProblem& problem) { return reason_against_blocks(problem.x, problem.result); }
void run_quantize_blocks(const core::QuantizeProblem& problem) {
    const BlocksArguments arguments = blocks_arguments(problem.x, problem.result, problem.for_product);
    with_plain(problem.x.element, [&]<Element Plain>() {
        launch_quantizer("quantize_blocks", convert_blocks<Plain, units_per_block, true>,
                         {blocks_for(arguments.units, block_threads * units_per_block), block_threads}, problem, arguments);
    });
}

std::string supports_dequantize_blocks(const core::DequantizeProblem& problem) { return reason_against_blocks(problem.y, problem.x); }
void run_dequantize_blocks(const core::DequantizeProblem& problem) {
    const BlocksArguments arguments = blocks_arguments(problem.y, problem.x, problem.for_product);
    constexpr uint32_t few_units = 1 << 18;
    const bool thin = arguments.units <= few_units;
    with_plain(problem.y.element, [&]<Element Plain>() {
        launch("dequantize_blocks", thin ? convert_blocks<Plain, 1, false> : convert_blocks<Plain, most_units, false>,
               {blocks_for(arguments.units, block_threads * (thin ? 1 : most_units)), block_threads}, *problem.context, arguments);
    });
}

}  // namespace lowbit::cuda
