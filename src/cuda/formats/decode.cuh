// A few neighbouring values, or codes, of any format: what every kernel that has no faster way of its own reads a quantized matrix with.
// The element is chosen at run time, the same for all threads of a warp.
#pragma once
#include "cuda/formats/load_bytes.cuh"
#include "cuda/formats/planes.cuh"
#include "reference/ggml_simple.hpp"
#include "reference/ggml_super.hpp"
#include "reference/values.hpp"

namespace lowbit::cuda {

namespace decoding {

// Values of this call that lie inside of the matrix.
template <int Count>
LOWBIT_HOST_DEVICE inline int valid_values(int64_t column, int64_t columns) {
    const int64_t left = columns - column;
    return left >= Count ? Count : left > 0 ? int(left) : 0;
}

// The bit patterns of `Count` codes of `Bits` bits, from a column that is a multiple of Count on; 0 beyond `valid` of them.
template <int Count, int Bits>
struct Codes {
    uint32_t words[(Count * Bits + 31) / 32];

    LOWBIT_HOST_DEVICE Codes(const uint8_t* row, int64_t column, int valid) {
        load_bytes<Count * Bits / 8>(row + column * Bits / 8, (valid * Bits + 7) / 8, words);
    }
    LOWBIT_HOST_DEVICE uint32_t operator[](int i) const {
        constexpr uint32_t mask = uint32_t((uint64_t(1) << Bits) - 1);
        return words[i * Bits / 32] >> (i * Bits % 32) & mask;
    }
};

template <Element element, int Bits, int Count>
LOWBIT_HOST_DEVICE inline void unpack_values(const uint8_t* row, int64_t column, int valid, float (&values)[Count]) {
    const Codes<Count, Bits> codes(row, column, valid);
    LOWBIT_UNROLL
    for (int i = 0; i < Count; ++i) {
        if constexpr (element == Element::fp32)
            values[i] = core::bits_to_float(codes[i]);
        else if constexpr (element == Element::fp16)
            values[i] = core::fp16_to_float(uint16_t(codes[i]));
        else if constexpr (element == Element::bf16)
            values[i] = core::bf16_to_float(uint16_t(codes[i]));
        else
            values[i] = reference::code_value(element, codes[i]);
    }
}

// (value - zero point) * scale, each rounded by itself. A NaN stays some NaN.
LOWBIT_HOST_DEVICE inline float scaled(float value, int zero_point, float scale) {
#ifdef __CUDA_ARCH__
    return __fmul_rn(__fsub_rn(value, float(zero_point)), scale);
#else
    return (value - float(zero_point)) * scale;
#endif
}

template <int Count>
LOWBIT_HOST_DEVICE inline void apply_scales(const core::QuantizedView& view, int64_t row, int64_t column, int valid,
                                            float (&values)[Count]) {
    const int64_t span = scale_span(view.format, view.columns);
    int64_t index = scale_index(view.format, row, column, view.columns);
    int64_t end = span - (column - quotient(column, span) * span);  // of the group among these values
    const float scale = scale_at(view, index);
    const int zero_point = zero_point_at(view, index);
    if (end >= valid) {  // nearly always: one group covers all of them
        LOWBIT_UNROLL
        for (int i = 0; i < Count; ++i) values[i] = scaled(values[i], zero_point, scale);
        return;
    }
    LOWBIT_ROLLED
    for (int64_t begin = 0; begin < valid; begin = end, end += span, ++index) {
        const float group_scale = scale_at(view, index);
        const int group_zero_point = zero_point_at(view, index);
        LOWBIT_UNROLL
        for (int i = 0; i < Count; ++i)
            if (i >= begin && i < end) values[i] = scaled(values[i], group_zero_point, group_scale);
    }
}

template <int Count>
LOWBIT_HOST_DEVICE inline void clear_beyond(int valid, float (&values)[Count]) {
    if (valid == Count) return;
    LOWBIT_UNROLL
    for (int i = 0; i < Count; ++i) values[i] = i < valid ? values[i] : 0.0f;
}

// The block that a column lies in. Rows are whole blocks, and Count divides their length: all values of a call lie in one.
template <class Block>
LOWBIT_HOST_DEVICE inline const uint8_t* block_at(const uint8_t* row, int64_t column) {
    return row + column / Block::values * Block::bytes;
}

template <class Block, int Count>
LOWBIT_HOST_DEVICE inline void decode_block(const uint8_t* row, int64_t column, float (&values)[Count]) {
    Block::template decode<Count>(block_at<Block>(row, column), int(column % Block::values), values);
}

template <int Count>
LOWBIT_HOST_DEVICE inline void decode_ggml(Element element, const uint8_t* row, int64_t column, float (&values)[Count]) {
    using namespace reference::ggml;
    switch (element) {
    case Element::q4_0: return decode_block<Q4_0>(row, column, values);
    case Element::q4_1: return decode_block<Q4_1>(row, column, values);
    case Element::q5_0: return decode_block<Q5_0>(row, column, values);
    case Element::q5_1: return decode_block<Q5_1>(row, column, values);
    case Element::q8_0: return decode_block<Q8_0>(row, column, values);
    case Element::q8_1: return decode_block<Q8_1>(row, column, values);
    case Element::q2_k: return decode_block<Q2_K>(row, column, values);
    case Element::q3_k: return decode_block<Q3_K>(row, column, values);
    case Element::q4_k: return decode_block<Q4_K>(row, column, values);
    case Element::q5_k: return decode_block<Q5_K>(row, column, values);
    case Element::q6_k: return decode_block<Q6_K>(row, column, values);
    default: return decode_block<IQ4_NL>(row, column, values);
    }
}

}  // namespace decoding

// Values column .. column + Count of a row, bit for bit those of reference::decode_row in float (but for the bits of a NaN). `column` is a
// multiple of Count. Values beyond the matrix are 0, and no byte outside of the planes is read.
template <int Count>
LOWBIT_HOST_DEVICE inline void decode(const core::QuantizedView& view, int64_t row, int64_t column, float (&values)[Count]) {
    static_assert(Count == 8 || Count == 16 || Count == 32);
    using namespace decoding;
    const int valid = valid_values<Count>(column, view.columns);
    if (valid == 0) return clear_beyond(0, values);
    const Element element = view.format.element;
    const uint8_t* codes = row_codes(view, row);
    if (is_ggml(element)) return decode_ggml(element, codes, column, values);
    switch (element) {
    case Element::fp32: unpack_values<Element::fp32, 32>(codes, column, valid, values); break;
    case Element::fp16: unpack_values<Element::fp16, 16>(codes, column, valid, values); break;
    case Element::bf16: unpack_values<Element::bf16, 16>(codes, column, valid, values); break;
    case Element::int8: unpack_values<Element::int8, 8>(codes, column, valid, values); break;
    case Element::uint8: unpack_values<Element::uint8, 8>(codes, column, valid, values); break;
    case Element::int4: unpack_values<Element::int4, 4>(codes, column, valid, values); break;
    case Element::uint4: unpack_values<Element::uint4, 4>(codes, column, valid, values); break;
    case Element::int1: unpack_values<Element::int1, 1>(codes, column, valid, values); break;
    case Element::fp8_e4m3: unpack_values<Element::fp8_e4m3, 8>(codes, column, valid, values); break;
    case Element::fp8_e5m2: unpack_values<Element::fp8_e5m2, 8>(codes, column, valid, values); break;
    case Element::fp4_e2m1: unpack_values<Element::fp4_e2m1, 4>(codes, column, valid, values); break;
    default: unpack_values<Element::nf4, 4>(codes, column, valid, values); break;
    }
    if (view.format.granularity != Granularity::none) apply_scales(view, row, column, valid, values);
    clear_beyond(valid, values);
}

namespace decoding {

template <Element element, int Bits, int Count>
LOWBIT_HOST_DEVICE inline void unpack_codes(const uint8_t* row, int64_t column, int valid, int8_t (&codes)[Count]) {
    const Codes<Count, Bits> packed(row, column, valid);
    LOWBIT_UNROLL
    for (int i = 0; i < Count; ++i) {
        const uint32_t code = packed[i];
        if constexpr (element == Element::uint8)
            codes[i] = int8_t(code ^ 0x80);  // less 128
        else if constexpr (element == Element::int4)
            codes[i] = int8_t(int(code ^ 8) - 8);
        else if constexpr (element == Element::int1)
            codes[i] = int8_t(1 - 2 * int(code));
        else
            codes[i] = int8_t(code);
        if (i >= valid) codes[i] = 0;
    }
}

template <class Block, int Count>
LOWBIT_HOST_DEVICE inline void unpack_block_bytes(const uint8_t* row, int64_t column, int8_t (&codes)[Count]) {
    const uint8_t* from = block_at<Block>(row, column) + Block::codes + column % Block::values;
    uint32_t words[Count / 4];
    load_bytes<Count>(from, Count, words);
    LOWBIT_UNROLL
    for (int i = 0; i < Count; ++i) codes[i] = int8_t(words[i / 4] >> (8 * (i % 4)));
}

template <int Count>
LOWBIT_HOST_DEVICE inline void unpack_q4_0(const uint8_t* row, int64_t column, int8_t (&codes)[Count]) {
    using reference::ggml::Q4_0;
    const uint8_t* nibbles = block_at<Q4_0>(row, column) + Q4_0::nibbles;
    const int first = Count == Q4_0::values ? 0 : int(column % Q4_0::values);
    LOWBIT_UNROLL
    for (int i = 0; i < Count; ++i) codes[i] = int8_t(reference::ggml::simple::load_nibble(nibbles, first + i) - 8);
}

}  // namespace decoding

// The codes themselves as signed bytes, for integer products: int8 as it is, uint8 less 128, int4 with its sign, uint4 as 0 .. 15, int1 as
// +1 or -1, q8_0 and q8_1 as they are, q4_0 less 8; 0 beyond the matrix. Other elements have none.
template <int Count>
LOWBIT_HOST_DEVICE inline void decode_codes(const core::QuantizedView& view, int64_t row, int64_t column, int8_t (&codes)[Count]) {
    static_assert(Count == 8 || Count == 16 || Count == 32);
    using namespace decoding;
    const int valid = valid_values<Count>(column, view.columns);
    const uint8_t* from = row_codes(view, row);
    if (valid == 0) {
        LOWBIT_UNROLL
        for (int i = 0; i < Count; ++i) codes[i] = 0;
        return;
    }
    switch (view.format.element) {
    case Element::int8: return unpack_codes<Element::int8, 8>(from, column, valid, codes);
    case Element::uint8: return unpack_codes<Element::uint8, 8>(from, column, valid, codes);
    case Element::int4: return unpack_codes<Element::int4, 4>(from, column, valid, codes);
    case Element::uint4: return unpack_codes<Element::uint4, 4>(from, column, valid, codes);
    case Element::int1: return unpack_codes<Element::int1, 1>(from, column, valid, codes);
    case Element::q8_0: return unpack_block_bytes<reference::ggml::Q8_0>(from, column, codes);
    case Element::q8_1: return unpack_block_bytes<reference::ggml::Q8_1>(from, column, codes);
    default: return unpack_q4_0(from, column, codes);
    }
}

}  // namespace lowbit::cuda
