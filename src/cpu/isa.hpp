// The inner loops, once per instruction set. An Isa is a table of plain functions over raw pointers; the drivers beside this file check,
// prepare, split the work over threads and apply the epilogue, and are written once.
//
// Common to all: row-major operands, K contiguous; `out` is [row][token] (row of the weight first, stride `out_stride`), overwritten;
// any size >= 0; no alignment is assumed; nothing outside the given ranges is read or written, except that prepared tokens (`x`) are
// padded with zeros to `padded_columns`, so that whole vectors may be read there.
#pragma once
#include <cstdint>

#include "lowbit/types.hpp"

namespace lowbit::cpu {

// Prepared rows are padded to a multiple of this many values.
constexpr int64_t column_padding = 64;
constexpr int64_t padded_columns(int64_t columns) { return (columns + column_padding - 1) / column_padding * column_padding; }
// How far apart prepared fp32 rows lie: whole cache lines, and never a multiple of 4 KB, which would put all rows into the same sets of the
// first-level cache.
constexpr int64_t float_row_stride(int64_t columns) { return padded_columns(columns) + (padded_columns(columns) % 1024 == 0 ? 16 : 0); }

// 4-bit codes of `rows` rows. A chunk is 32 values in 16 bytes; value i of a chunk of `x` stands for
//     pairs = true  (plain layout, low nibble first):  low nibbles are values 0, 2, 4, ... and high nibbles 1, 3, 5, ...
//     pairs = false (GGML blocks):                     low nibbles are values 0 .. 15 and high nibbles 16 .. 31
// The tokens of a `pairs` weight are prepared with the even values of each chunk first, then the odd ones, so that both read alike.
struct Weight4 {
    const uint8_t* codes = nullptr;
    int64_t row_stride = 0;         // bytes
    int64_t rows = 0, columns = 0;  // values; the last chunk may be short (its missing bytes are not there)
    int64_t block_bytes = 0;        // 0: codes run on. 18: before each 16 bytes of codes stands the fp16 scale of that chunk
    int64_t group = 0;              // running codes: values per scale, a multiple of 32, or >= columns
    const float* scales = nullptr;  // running codes: [row][group], rows scale_stride apart
    const float* zeros = nullptr;   // the same for zero points; nullptr: 0
    int64_t scale_stride = 0;
    const float* values = nullptr;  // what each of the 16 codes means, before zero point and scale
};

// fp32 tokens: [token][padded columns], `stride` values apart.
struct FloatTokens {
    const float* values = nullptr;
    int64_t stride = 0;
    int64_t tokens = 0;
    const uint8_t* packed = nullptr;  // the same once more, by Isa::pack4
    int bf16_parts = 3;               // every value is the sum of at most so many bf16 numbers
};

// Codes in groups that run on, GGML blocks, or numbers as they are: value = (code - zero) * scale.
struct CodedWeight {
    Element element = Element::int8;
    const uint8_t* codes = nullptr;
    int64_t row_stride = 0;
    int64_t rows = 0, columns = 0;
    int64_t block_bytes = 0;        // 0: codes run on
    int64_t group = 0;              // running codes: values per scale
    const float* scales = nullptr;  // as above; numbers have one scale, 1
    const float* zeros = nullptr;
    int64_t scale_stride = 0;
};

// Tokens in blocks of 32 int8 with one scale each (q8_1 and q8_0, taken apart).
struct BlockTokens {
    const int8_t* codes = nullptr;  // [token][columns]
    const float* scales = nullptr;  // [token][columns / 32]
    const int32_t* sums = nullptr;  // [token][columns / 32]: sum of the block's codes
    int64_t tokens = 0;
    int64_t columns = 0;     // a multiple of 32
    bool one_scale = false;  // all blocks of a token have the same
};

// int8 tokens: [token][columns], `stride` bytes apart.
struct IntegerTokens {
    // Where a part of packed tokens may begin, and the most that an inner loop takes at a time.
    static constexpr int64_t block = 512;

    const int8_t* codes = nullptr;
    int64_t stride = 0;
    int64_t tokens = 0;
    const int8_t* packed = nullptr;  // the same once more, by Isa::pack8

    IntegerTokens part(int64_t first, int64_t count, int64_t columns) const {
        return {codes + first * stride, stride, count, packed ? packed + first * padded_columns(columns) : nullptr};
    }
};

// Rows of signs: bit 0 of a byte first, set for -1. Bits beyond `columns` mean nothing.
struct BitRows {
    const uint8_t* bits = nullptr;
    int64_t row_stride = 0;  // bytes
    int64_t rows = 0, columns = 0;
};

// Rows of a GGML type: any of q4_1, q5_0, q5_1 and the K types.
struct BlockWeight {
    const uint8_t* codes = nullptr;
    int64_t row_stride = 0;         // bytes
    int64_t rows = 0, columns = 0;  // whole blocks
};

// A loop that streams a weight past few tokens. These are packed once for all rows, in `parts` parts, into aligned memory.
template <class Tokens, class Weight = BlockWeight>
struct BlockLoop {
    int64_t (*packed_bytes)(int64_t tokens, int64_t columns);
    void (*pack)(const Tokens& x, int64_t columns, int64_t part, int64_t parts, uint8_t* packed);
    // out[row][token], in fp32.
    void (*multiply)(const Weight& weight, const uint8_t* packed, int64_t tokens, float* out, int64_t out_stride);
};

// Rows of a weight that a SlabLoop decodes at once.
constexpr int64_t slab_rows = 32;
// Up to so many tokens it goes through rows to their ends, and the more of them follow one another the better.
constexpr int64_t few_slab_tokens = 48;

// The loop for many tokens: 32 rows of the weight, in groups of multiples of 16, are decoded into a slab, each in an element of vectors.
// Tokens are packed once for all rows, in `parts` parts, into aligned memory.
template <class Tokens, class Sum>
struct SlabLoop {
    int64_t (*packed_bytes)(int64_t tokens, int64_t columns) = nullptr;
    void (*pack)(const Tokens& x, int64_t columns, int64_t part, int64_t parts, uint8_t* packed) = nullptr;
    // sums[token][row] of tokens first .. first + count, of `tokens` that were packed. Written up to a multiple of slab_rows.
    void (*multiply)(const CodedWeight& weight, const uint8_t* packed, int64_t tokens, int64_t first, int64_t count, Sum* sums,
                     int64_t stride) = nullptr;
};
using BlockSlabs = SlabLoop<BlockTokens, float>;
using ExactSlabs = SlabLoop<IntegerTokens, int32_t>;
using FloatSlabs = SlabLoop<FloatTokens, float>;

// What sums are multiplied by on their way out: sum * tokens[token] * rows[row] + bias[row].
struct LineFactors {
    const float* tokens;
    const float* rows;
    const float* bias;
};

struct Isa {
    const char* name;  // "avx512": part of the kernels' names

    // out[row][token] = sum over k of value(row, k) * x[token][k], in fp32.
    void (*weight4)(const Weight4& weight, const FloatTokens& x, float* out, int64_t out_stride);
    // Tokens in an order of weight4's own, made once for all rows, in `parts` parts, in memory aligned to 64 bytes. How many bytes they
    // take for a weight of this kind; 0, or no such function: weight4 takes them as they are.
    int64_t (*packed4_bytes)(const Weight4& kind, const FloatTokens& x) = nullptr;
    void (*pack4)(const FloatTokens& x, int64_t columns, int64_t part, int64_t parts, uint8_t* packed) = nullptr;
    // int4 without, or uint4 with zero points, whole chunks, groups that divide 128 or are multiples of it, times blocks: sum over chunks
    // of both scales * (exact integer dot product). `values` is not looked at.
    BlockLoop<BlockTokens, Weight4> (*weight4_int8)(bool has_zeros);
    // 8-bit codes (q8_0 as int8 in blocks), and numbers of 16 and 32 bits.
    void (*rows)(const CodedWeight& weight, const FloatTokens& x, float* out, int64_t out_stride);
    // The same for fp32 rows, `row_stride` values apart, padded like the tokens; `columns` is a multiple of column_padding. Adds to `out`.
    void (*dense)(const float* weight, int64_t row_stride, int64_t rows, int64_t columns, const FloatTokens& x, float* out,
                  int64_t out_stride);
    // Exact int32 product of int8 rows and int8 tokens (both [..][columns], strides in bytes); |sum| must fit, which K <= 131071 grants.
    void (*int8)(const int8_t* weight, int64_t weight_stride, int64_t rows, int64_t columns, const IntegerTokens& x, int32_t* out,
                 int64_t out_stride);
    // Exact int32 product of two matrices of signs.
    void (*bits)(const BitRows& weight, const BitRows& x, int32_t* out, int64_t out_stride);
    // As packed4_bytes and pack4, for int8. Packed tokens can be cut at multiples of IntegerTokens::block.
    int64_t (*packed8_bytes)(const IntegerTokens& x, int64_t columns) = nullptr;
    void (*pack8)(const IntegerTokens& x, int64_t columns, int64_t part, int64_t parts, int8_t* packed) = nullptr;
    // GGML blocks: sum over blocks of weight scale * token scale * (exact integer dot product of the block). fp32 over the blocks.
    void (*q4_0_q8)(const uint8_t* weight, int64_t row_stride, int64_t rows, const BlockTokens& x, float* out, int64_t out_stride);
    void (*q8_0_q8)(const uint8_t* weight, int64_t row_stride, int64_t rows, const BlockTokens& x, float* out, int64_t out_stride);
    // The other GGML types, with fp32 tokens, and with tokens in blocks as above.
    BlockLoop<FloatTokens> (*float_blocks)(Element weight);
    BlockLoop<BlockTokens> (*integer_blocks)(Element weight);

    // Many tokens in blocks times codes of this kind, and what int8 does for many tokens; no such functions: the others do it.
    BlockSlabs (*integer_slabs)(const CodedWeight& kind, bool one_scale) = nullptr;
    ExactSlabs (*exact_slabs)() = nullptr;
    // Many fp32 tokens; and such as are bf16 numbers, whose magnitudes are 0 or within 2^-100 .. 2^90.
    FloatSlabs (*float_slabs)(const CodedWeight& kind) = nullptr;
    FloatSlabs (*bf16_slabs)(const CodedWeight& kind) = nullptr;

    // Conversion of n values; source and destination contiguous, of type fp32, fp16 or bf16. Ties to even; exactly core/numeric.hpp.
    void (*to_float)(Element type, const void* source, float* destination, int64_t n);
    void (*from_float)(Element type, const float* source, void* destination, int64_t n);

    // lines[token][row] = sums[row][token] * factors in fp32, rounded after each operation; sums lie `stride` apart, lines `line_stride`.
    // No such functions: the caller does it.
    void (*int_lines)(const int32_t* sums, int64_t stride, int64_t rows, int64_t tokens, const LineFactors& factors, float* lines,
                      int64_t line_stride) = nullptr;
    void (*float_lines)(const float* sums, int64_t stride, int64_t rows, int64_t tokens, const LineFactors& factors, float* lines,
                        int64_t line_stride) = nullptr;

    // Largest |x| among the finite values of n (0 if there is none).
    float (*largest)(const float* x, int64_t n);
    // codes[i] = clamp(round to even(x[i] / scale), -128, 127); NaN -> 0; a scale that is no positive normal number -> 0. Division is IEEE
    // division, to the bit.
    void (*quantize_int8)(const float* x, int64_t n, float scale, int8_t* codes);
    // Whole blocks of 32, to the bit as reference/ggml.hpp for every input, NaN and infinity included.
    void (*quantize_q4_0)(const float* x, int64_t blocks, uint8_t* out);
    void (*quantize_q8_0)(const float* x, int64_t blocks, uint8_t* out);
    void (*quantize_q8_1)(const float* x, int64_t blocks, uint8_t* out);

    // For `bench --op peak`: reads n bytes and returns a value that depends on all of them; runs `rounds` rounds of independent integer dot
    // instructions of the widest kind in registers and returns how many operations (2 per multiply-add) that was.
    uint64_t (*read)(const void* memory, int64_t n);
    int64_t (*integer_peak)(int64_t rounds);
};

const Isa& portable_isa();
const Isa& avx2_isa();  // x86-64 builds only, as the next ones
const Isa& avx512_isa();
const Isa& avx512_popcnt_isa();  // bits; the rest is avx512's
const Isa& avx512_bf16_isa();    // weight4 for tokens of one or two bf16 parts; the rest is avx512's
const Isa& amx_isa();            // weight4; int8, q4_0_q8 and q8_0_q8 for many tokens; integer_peak. The rest is avx512's

// Parts of those tables that are compiled by themselves, since they take long.
BlockLoop<FloatTokens> portable_float_blocks(Element weight);
BlockLoop<FloatTokens> avx2_float_blocks(Element weight);
BlockLoop<FloatTokens> avx512_float_blocks(Element weight);
BlockLoop<BlockTokens> portable_integer_blocks(Element weight);
BlockLoop<BlockTokens> avx2_integer_blocks(Element weight);
BlockLoop<BlockTokens> avx512_integer_blocks(Element weight);
BlockSlabs avx512_integer_slabs(const CodedWeight& kind, bool one_scale);
ExactSlabs avx512_exact_slabs();
FloatSlabs avx512_float_slabs(const CodedWeight& kind);

// Isa::weight4, packed4_bytes, pack4 and bf16_slabs with AVX-512's products of bf16.
namespace avx512_bf16 {
FloatSlabs bf16_slabs(const CodedWeight& kind);
int64_t packed4_bytes(const Weight4& kind, const FloatTokens& x);
void pack4(const FloatTokens& x, int64_t columns, int64_t part, int64_t parts, uint8_t* packed);
void weight4(const Weight4& weight, const FloatTokens& x, float* out, int64_t out_stride);
}  // namespace avx512_bf16

// Isa::bits with AVX-512's own instruction to count them.
void avx512_popcnt_bits(const BitRows& weight, const BitRows& x, int32_t* out, int64_t out_stride);

}  // namespace lowbit::cpu
