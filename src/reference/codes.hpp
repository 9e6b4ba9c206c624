// One value at a time: what a code means, and which code a value becomes. docs/formats.md in C++.
#pragma once
#include <cstdint>
#include <span>

#include "core/tensor.hpp"
#include "reference/values.hpp"

namespace lowbit::reference {

// What each code of an element of 8 bits or less stands for, before zero point and scale, indexed by its bit pattern.
std::span<const float> code_values(Element element);

// The codes of x[i] / scale (+ zero_point) for i < count, written from column `first` of a row of zeros on. A scale that is not a positive
// normal number makes the code of zero.
void encode_group(Element element, const float* x, int64_t count, float scale, int zero_point, uint8_t* row, int64_t first);

// Code i of a row of 8-, 4- or 1-bit codes; the first value stands in the lowest bits of a byte.
LOWBIT_HOST_DEVICE inline unsigned read_code(const uint8_t* row, int bits, int64_t i) {
    if (bits == 8) return row[i];
    const int64_t bit = i * bits;
    return row[bit / 8] >> (bit % 8) & ((1u << bits) - 1);
}

LOWBIT_HOST_DEVICE inline void write_code(uint8_t* row, int bits, int64_t i, unsigned code) {
    const int64_t bit = i * bits;
    const unsigned mask = ((1u << bits) - 1) << (bit % 8);
    row[bit / 8] = uint8_t((row[bit / 8] & ~mask) | (code << (bit % 8) & mask));
}

// Values first_column .. first_column + count of a row: (code value - zero point) * scale, in Real. GGML values are the fp32 numbers of
// their own formulas; first_column and count are whole blocks there.
template <class Real>
void decode_row(const core::QuantizedView& view, int64_t row, int64_t first_column, int64_t count, Real* values);

extern template void decode_row(const core::QuantizedView&, int64_t, int64_t, int64_t, float*);
extern template void decode_row(const core::QuantizedView&, int64_t, int64_t, int64_t, double*);

}  // namespace lowbit::reference
