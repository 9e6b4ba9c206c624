// Codes of any input in any format: a thread per unit, or per block of a GGML type.
#pragma once
#include "cuda/formats/planes.cuh"
#include "cuda/quantize/units.cuh"
#include "reference/ggml_simple.hpp"
#include "reference/ggml_super.hpp"
#include "reference/scales.hpp"

namespace lowbit::cuda {

constexpr int encode_threads = 256;

// What the codes of one group are computed with.
struct ScaleInForce {
    float scale;
    bool usable;
    int zero_point;

    LOWBIT_HOST_DEVICE ScaleInForce(const core::QuantizedView& result, int64_t index)
        : scale(scale_at(result, index)), usable(reference::is_usable_scale(scale)), zero_point(zero_point_at(result, index)) {
        // A caller's zero point may be any byte; the codes of uint4 end at 15. Whoever meets one stores what it is taken for.
        if (result.format.element == Element::uint4 && zero_point > 15) zero_point = result.zero_points[index] = 15;
    }
};

// Eight codes of `bits` bits as the bytes of a row.
template <int Bits>
LOWBIT_HOST_DEVICE inline void store_codes(uint8_t* to, int valid, const uint32_t (&codes)[unit_values]) {
    constexpr int bytes = Bits;  // of a unit: 8 values of Bits bits
    const int written = (valid * Bits + 7) / 8;
    LOWBIT_UNROLL
    for (int byte = 0; byte < bytes; ++byte) {
        uint32_t assembled = 0;
        if constexpr (Bits <= 8) {
            LOWBIT_UNROLL
            for (int i = 0; i < 8 / Bits; ++i) assembled |= codes[byte * (8 / Bits) + i] << (Bits * i);
        } else {
            assembled = codes[byte / (Bits / 8)] >> (8 * (byte % (Bits / 8)));
        }
        if (byte < written) to[byte] = uint8_t(assembled);
    }
}

template <Element element>
LOWBIT_HOST_DEVICE inline void encode_unit_as(const core::QuantizedView& result, int64_t row, int64_t column, int valid,
                                              const float (&values)[unit_values], uint32_t (&codes)[unit_values]) {
    LOWBIT_UNROLL
    for (int i = 0; i < unit_values; ++i) codes[i] = 0;
    const int64_t span = scale_span(result.format, result.columns);
    int64_t index = scale_index(result.format, row, column, result.columns);
    int64_t end = span - (column - quotient(column, span) * span);  // of the group in this unit
    LOWBIT_ROLLED
    for (int64_t begin = 0; begin < valid; begin = end, end += span, ++index) {
        const ScaleInForce in_force(result, index);
        LOWBIT_UNROLL
        for (int i = 0; i < unit_values; ++i)
            if (i >= begin && i < smaller(end, valid))
                codes[i] = reference::encode_value(element, values[i], in_force.scale, in_force.usable, in_force.zero_point);
    }
}

LOWBIT_HOST_DEVICE inline void encode_unit(const core::QuantizedView& result, int64_t row, int64_t column, int valid,
                                           const float (&values)[unit_values]) {
    uint8_t* to = row_codes(result, row) + column * code_bits(result.format.element) / 8;
    uint32_t codes[unit_values];
    switch (result.format.element) {
    case Element::fp32:
        LOWBIT_UNROLL
        for (int i = 0; i < unit_values; ++i) codes[i] = core::float_to_bits(values[i]);
        return store_codes<32>(to, valid, codes);
    case Element::fp16:
        LOWBIT_UNROLL
        for (int i = 0; i < unit_values; ++i) codes[i] = core::float_to_fp16(values[i]);
        return store_codes<16>(to, valid, codes);
    case Element::bf16:
        LOWBIT_UNROLL
        for (int i = 0; i < unit_values; ++i) codes[i] = core::float_to_bf16(values[i]);
        return store_codes<16>(to, valid, codes);
    case Element::int8: encode_unit_as<Element::int8>(result, row, column, valid, values, codes); return store_codes<8>(to, valid, codes);
    case Element::uint8: encode_unit_as<Element::uint8>(result, row, column, valid, values, codes); return store_codes<8>(to, valid, codes);
    case Element::fp8_e4m3:
        encode_unit_as<Element::fp8_e4m3>(result, row, column, valid, values, codes);
        return store_codes<8>(to, valid, codes);
    case Element::fp8_e5m2:
        encode_unit_as<Element::fp8_e5m2>(result, row, column, valid, values, codes);
        return store_codes<8>(to, valid, codes);
    case Element::int4: encode_unit_as<Element::int4>(result, row, column, valid, values, codes); return store_codes<4>(to, valid, codes);
    case Element::uint4: encode_unit_as<Element::uint4>(result, row, column, valid, values, codes); return store_codes<4>(to, valid, codes);
    case Element::fp4_e2m1:
        encode_unit_as<Element::fp4_e2m1>(result, row, column, valid, values, codes);
        return store_codes<4>(to, valid, codes);
    case Element::nf4: encode_unit_as<Element::nf4>(result, row, column, valid, values, codes); return store_codes<4>(to, valid, codes);
    default: encode_unit_as<Element::int1>(result, row, column, valid, values, codes); return store_codes<1>(to, valid, codes);
    }
}

__global__ void __launch_bounds__(encode_threads) encode_units(core::Tensor x, core::QuantizedView result, int64_t per_row, int64_t units) {
    const int64_t index = int64_t(blockIdx.x) * encode_threads + threadIdx.x;
    if (index >= units) return;
    const UnitPosition at(index, per_row);
    const int valid = at.valid(x.columns);
    float values[unit_values];
    load_unit(x, at.row, at.column, valid, values);
    encode_unit(result, at.row, at.column, valid, values);
}

// A block of a GGML type by one thread, with the reference's own quantizer.
template <class Block>
__device__ inline void encode_ggml_block(const core::Tensor& x, int64_t row, int64_t column, uint8_t* to) {
    float values[Block::values];
    for (int first = 0; first < Block::values; first += unit_values) {
        float unit[unit_values];
        load_unit(x, row, column + first, unit_values, unit);
#pragma unroll
        for (int i = 0; i < unit_values; ++i) values[first + i] = unit[i];
    }
    Block::quantize(values, to);
}

// Few threads per block: those of the K types keep a kilobyte each on their stacks.
constexpr int ggml_threads = 64;

__global__ void __launch_bounds__(ggml_threads) encode_ggml(core::Tensor x, core::QuantizedView result, int64_t per_row, int64_t blocks) {
    using namespace reference::ggml;
    const int64_t index = int64_t(blockIdx.x) * ggml_threads + threadIdx.x;
    if (index >= blocks) return;
    const int64_t row = quotient(index, per_row), along = index - row * per_row;
    const core::BlockSize size = core::ggml_block(result.format.element);
    uint8_t* to = row_codes(result, row) + along * size.bytes;
    const int64_t column = along * size.values;
    switch (result.format.element) {
    case Element::q4_0: return encode_ggml_block<Q4_0>(x, row, column, to);
    case Element::q4_1: return encode_ggml_block<Q4_1>(x, row, column, to);
    case Element::q5_0: return encode_ggml_block<Q5_0>(x, row, column, to);
    case Element::q5_1: return encode_ggml_block<Q5_1>(x, row, column, to);
    case Element::q8_0: return encode_ggml_block<Q8_0>(x, row, column, to);
    case Element::q8_1: return encode_ggml_block<Q8_1>(x, row, column, to);
    case Element::q2_k: return encode_ggml_block<Q2_K>(x, row, column, to);
    case Element::q3_k: return encode_ggml_block<Q3_K>(x, row, column, to);
    case Element::q4_k: return encode_ggml_block<Q4_K>(x, row, column, to);
    case Element::q5_k: return encode_ggml_block<Q5_K>(x, row, column, to);
    case Element::q6_k: return encode_ggml_block<Q6_K>(x, row, column, to);
    default: return encode_ggml_block<IQ4_NL>(x, row, column, to);
    }
}

}  // namespace lowbit::cuda
