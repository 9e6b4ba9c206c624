// The table of functions of an instruction set whose vectors are S.
#pragma once
#include "cpu/isa.hpp"
#include "cpu/simd/bits.hpp"
#include "cpu/simd/blocks.hpp"
#include "cpu/simd/convert.hpp"
#include "cpu/simd/dense.hpp"
#include "cpu/simd/int8.hpp"
#include "cpu/simd/peak.hpp"
#include "cpu/simd/quantize.hpp"
#include "cpu/simd/rows.hpp"
#include "cpu/simd/weight4.hpp"
#include "cpu/simd/weight4_int8.hpp"

namespace lowbit::cpu {
namespace {

template <class S>
constexpr Isa isa_of(const char* name, decltype(Isa::float_blocks) float_blocks, decltype(Isa::integer_blocks) integer_blocks) {
    return {.name = name,
            .weight4 = weight4<S>,
            .weight4_int8 = weight4_int8<S>,
            .rows = rows<S>,
            .dense = dense<S>,
            .int8 = int8<S>,
            .bits = bits<S>,
            .q4_0_q8 = q4_0_q8<S>,
            .q8_0_q8 = q8_0_q8<S>,
            .float_blocks = float_blocks,
            .integer_blocks = integer_blocks,
            .to_float = to_float<S>,
            .from_float = from_float<S>,
            .largest = largest<S>,
            .quantize_int8 = quantize_int8<S>,
            .quantize_q4_0 = quantize_q4_0<S>,
            .quantize_q8_0 = quantize_q8_0<S>,
            .quantize_q8_1 = quantize_q8_1<S>,
            .read = read<S>,
            .integer_peak = integer_peak<S>};
}

}  // namespace
}  // namespace lowbit::cpu
