// Operands in the shape the inner loops read.
#pragma once
#include <memory>
#include <vector>

#include "core/problem.hpp"
#include "cpu/isa.hpp"

namespace lowbit::cpu {

// Row `row` of an operand, columns first .. first + count, in fp32.
void load_row(const Isa& isa, const core::Operand& operand, int64_t row, int64_t first, int64_t count, float* values);

// A tensor that lies column by column: as its columns are read, many rows come with every line of memory.
constexpr int64_t rows_at_once = 32;
inline bool is_turned(const core::Operand& operand) {
    const core::Tensor& t = operand.tensor;
    return !operand.is_quantized && t.rows > 1 && t.row_stride == 1 && t.column_stride > 1;
}

// Several rows, into rows `stride` values apart.
void load_rows(const Isa& isa, const core::Operand& operand, int64_t first_row, int64_t rows, int64_t first, int64_t count, float* values,
               int64_t stride);

enum class TokenOrder {
    natural,
    even_then_odd,  // inside each chunk of 32: values 0, 2, ... 30, then 1, 3, ... 31 (see Weight4)
};

// How many bf16 numbers it may take to make up a value: it has 8, 11 or 24 bits.
int bf16_parts(const core::Operand& x);

// Tokens in the order of an inner loop, packed by all threads.
template <class Loop, class Tokens>
core::Buffer pack_tokens(const core::Context& context, const Loop& loop, const Tokens& x, int64_t columns) {
    core::Buffer memory(core::Allocator::aligned_heap(), loop.packed_bytes(x.tokens, columns));
    auto* packed = reinterpret_cast<uint8_t*>(memory.data());
    const int64_t parts = context.threads();
    context.parallel(parts, [&](int64_t part) { loop.pack(x, columns, part, parts, packed); });
    return memory;
}

// All rows of x in fp32, padded with zeros.
struct PreparedFloats {
    std::unique_ptr<float[]> values;
    FloatTokens tokens;
};
PreparedFloats prepare_floats(const core::Context& context, const Isa& isa, const core::Operand& x, TokenOrder order);

// One scale per row, of a format whose scales are constant along rows.
std::vector<float> row_scales(const core::QuantizedView& view);

// q8_1 or q8_0 blocks taken apart; int8 rows with one scale as blocks that share it.
struct PreparedBlocks {
    std::vector<int8_t> codes;
    std::vector<float> scales;
    std::vector<int32_t> sums;
    int64_t columns = 0;
    bool one_scale = false;  // each row has one

    BlockTokens part(int64_t first_token, int64_t tokens) const;
};
bool has_blocks(const core::Format& x);
PreparedBlocks prepare_blocks(const core::Context& context, const core::QuantizedView& x);

// Integer codes as int8 rows: value = code + offset[row], where asymmetric and unsigned codes carry an offset.
struct PreparedIntegers {
    const int8_t* codes = nullptr;
    int64_t stride = 0;
    std::unique_ptr<int8_t[]> memory;  // when they had to be widened
    std::vector<int32_t> offsets;      // per row; empty: all zero
    std::vector<int64_t> sums;         // of each row's codes, when asked for
};
PreparedIntegers prepare_integers(const core::Context& context, const core::QuantizedView& view, int64_t first_row, int64_t rows,
                                  bool with_sums);

}  // namespace lowbit::cpu
