// 4-bit codes times tokens of bf16, or of fp16, which are sums of two bf16 numbers. A shift and a lookup make 32 numbers, and VDPBF16PS
// multiplies all of them with one part of a token; fp32 vectors take two of each for as many. Nothing is lost: what a code stands for is a
// bf16 number too (bf16_parts.hpp), and products are summed up in fp32. (Three parts, of fp32, take as long as fp32 vectors.)
//
// Tokens are packed once for all rows: [tile of tokens][step][token of the tile][j][part], 32 numbers each.
#include "cpu/avx512/bf16_parts.hpp"
#include "cpu/simd/scratch.hpp"
#include "cpu/simd/stream.hpp"
#include "cpu/simd/tiles.hpp"

namespace lowbit::cpu::avx512_bf16 {
namespace {

using Float = __m512;
constexpr int64_t step_values = word_step_values, step_bytes = word_step_bytes;
constexpr int64_t lanes = Avx512::lanes, chunk_values = 32, block_bytes = 18;

struct PackedTokens {
    int64_t columns, steps;
    int parts;
    __m512i* vectors;

    PackedTokens(const FloatTokens& x, int64_t values, uint8_t* memory)
        : columns(values), steps(ceil_div(values, step_values)), parts(x.bf16_parts), vectors(reinterpret_cast<__m512i*>(memory)) {}

    // Vectors of one step of a token, and of a whole one.
    int64_t step_size() const { return word_nibbles * parts; }
    int64_t size() const { return steps * step_size(); }

    void pack(const FloatTokens& x, int64_t step) const {
        for (int64_t token = 0, width; token < x.tokens; token += width) {
            width = tile_width(x.tokens - token);
            for (int64_t t = 0; t < width; ++t) {
                StepParts values(x.values + (token + t) * x.stride, columns, step);
                __m512i* to = vectors + token * size() + (step * width + t) * step_size();
                for (int part = 0; part < parts; ++part)
                    for (int j = 0; j < word_nibbles; ++j) _mm512_store_si512(to + j * parts + part, values.next(j));
            }
        }
    }
};

// Codes that run on, with their scales in a plane of their own.
struct RunningCodes {
    const Weight4& weight;
    const WordTables& tables;
    int64_t steps;
    static constexpr int64_t bytes_of_step = step_bytes;

    RunningCodes(const Weight4& w, const WordTables& t, int64_t s) : weight(w), tables(t), steps(s) {}

    int64_t whole_steps() const { return weight.columns / step_values; }
    int64_t index(int64_t row, int64_t group) const { return row * weight.scale_stride + group; }
    static __m512i whole_codes(const uint8_t* bytes) { return _mm512_loadu_si512(bytes); }
    __m512i last_codes(const uint8_t* bytes) const {
        const int64_t there = (weight.columns + 1) / 2 - (steps - 1) * step_bytes;
        return _mm512_maskz_loadu_epi8(~__mmask64(0) >> (step_bytes - there), bytes);
    }
};

// Groups are whole steps, and all elements of a vector have the same scale ...
template <bool has_zeros>
struct Groups : RunningCodes {
    static constexpr int tile_rows = 8;  // of one token

    using RunningCodes::RunningCodes;
    int64_t group_steps() const { return weight.group >= weight.columns ? steps : weight.group / step_values; }
    Float scale(int64_t row, int64_t group) const { return _mm512_set1_ps(weight.scales[index(row, group)]); }
    __m512i table(int64_t row, int64_t group) const { return tables.table(has_zeros ? int64_t(weight.zeros[index(row, group)]) : 0); }
};

// ... or a step has several groups, of 32 or 64, and each lane its scale.
struct LaneGroups : RunningCodes {
    static constexpr int tile_rows = 4;
    Avx512::LaneIndex each, last;

    LaneGroups(const Weight4& w, const WordTables& t, int64_t s) : RunningCodes(w, t, s), each(lane_index(0)), last(lane_index(s - 1)) {}

    int64_t group_steps() const { return 1; }
    int64_t step_groups() const { return step_values / weight.group; }
    Avx512::LaneIndex lane_index(int64_t step) const {
        const int64_t left = ceil_div(weight.columns, weight.group) - step * step_groups();
        int32_t groups[lanes];
        for (int64_t lane = 0; lane < lanes; ++lane) groups[lane] = int32_t(smaller(lane * chunk_values / weight.group, left - 1));
        return Avx512::lane_index(groups);
    }
    Float scale(int64_t row, int64_t step) const {
        return Avx512::spread(weight.scales + index(row, step * step_groups()), step + 1 == steps ? last : each);
    }
    __m512i table(int64_t, int64_t) const { return tables.table(0); }
};

// GGML blocks of 32: an fp16 scale before each.
struct Blocks {
    const Weight4& weight;
    const WordTables& tables;
    int64_t steps;
    static constexpr int64_t bytes_of_step = lanes * block_bytes;
    static constexpr int tile_rows = 8;

    int64_t group_steps() const { return 1; }
    int64_t whole_steps() const { return weight.columns / step_values; }
    int there(int64_t step) const { return int(smaller(lanes, weight.columns / chunk_values - step * lanes)); }
    Float scale(int64_t row, int64_t step) const {
        return Avx512::spread_halves(weight.codes + row * weight.row_stride + step * bytes_of_step, block_bytes, there(step));
    }
    __m512i table(int64_t, int64_t) const { return tables.table(0); }
    static __m512i whole_codes(const uint8_t* bytes) { return Avx512::gather_lanes(bytes + sizeof(uint16_t), block_bytes); }
    __m512i last_codes(const uint8_t* bytes) const { return Avx512::gather_lanes(bytes + sizeof(uint16_t), block_bytes, there(steps - 1)); }
};

template <class Source, int Parts>
struct Product {
    template <int Tokens>
    static constexpr int rows = Tokens == 1 ? Source::tile_rows : Avx512::scaled_tile_rows<Tokens>;

    Source source;
    const PackedTokens& tokens;

    template <int Rows, int Tokens>
    void tile(int64_t row, int64_t token, float* out, int64_t out_stride) const {
        constexpr int64_t token_vectors = Tokens * word_nibbles * Parts;
        const int64_t stride = source.weight.row_stride, group_steps = source.group_steps(), whole_steps = source.whole_steps();
        const uint8_t* codes = source.weight.codes + row * stride;
        const Stream stream{stride, Rows};
        const __m512i* x = tokens.vectors + token * tokens.size();
        Float sums[Rows][Tokens] = {};
        for (int64_t group = 0, step = 0; step < tokens.steps; ++group) {
            Float parts[Rows][Tokens] = {};
            __m512i tables[Rows];
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) tables[r] = source.table(row + r, group);
            const int64_t end = smaller(tokens.steps, step + group_steps);
            for (const int64_t whole_end = smaller(end, whole_steps); step < whole_end; ++step, x += token_vectors) {
                const uint8_t* bytes = codes + step * Source::bytes_of_step;
                const int64_t ahead = stream.ahead(step * Source::bytes_of_step);
                __m512i here[Rows];
#pragma GCC unroll 8
                for (int r = 0; r < Rows; ++r) {
                    Stream::prefetch(codes + r * stride, ahead, Source::bytes_of_step);
                    here[r] = Source::whole_codes(bytes + r * stride);
                }
                add(here, tables, x, parts);
            }
            for (; step < end; ++step) {  // the last one, and not whole
                __m512i here[Rows];
#pragma GCC unroll 8
                for (int r = 0; r < Rows; ++r) here[r] = source.last_codes(codes + step * Source::bytes_of_step + r * stride);
                add(here, tables, x, parts);
            }
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                const Float scale = source.scale(row + r, group);
#pragma GCC unroll 8
                for (int t = 0; t < Tokens; ++t) sums[r][t] = _mm512_fmadd_ps(parts[r][t], scale, sums[r][t]);
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
            for (int t = 0; t < Tokens; ++t) out[(row + r) * out_stride + token + t] = Avx512::sum(sums[r][t]);
    }

    template <int Rows, int Tokens>
    [[gnu::always_inline]] static void add(const __m512i (&codes)[Rows], const __m512i (&tables)[Rows], const __m512i* x,
                                           Float (&parts)[Rows][Tokens]) {
#pragma GCC unroll 8
        for (int j = 0; j < word_nibbles; ++j)
#pragma GCC unroll 8
            for (int r = 0; r < Rows; ++r) {
                const __m512i numbers = _mm512_permutexvar_epi16(_mm512_srli_epi16(codes[r], unsigned(4 * j)), tables[r]);
#pragma GCC unroll 8
                for (int t = 0; t < Tokens; ++t)
#pragma GCC unroll 8
                    for (int part = 0; part < Parts; ++part) {
                        const __m512i values = _mm512_load_si512(x + (t * word_nibbles + j) * Parts + part);
                        parts[r][t] = _mm512_dpbf16_ps(parts[r][t], (__m512bh)numbers, (__m512bh)values);
                    }
            }
    }
};

template <int Parts, class Source>
void multiply(const Source& source, const PackedTokens& packed, int64_t tokens, float* out, int64_t out_stride) {
    constexpr int64_t rows_at_once = 8;
    const int64_t rows = source.weight.rows;
    const Product<Source, Parts> product{source, packed};
    for (int64_t row = 0; row < rows; row += rows_at_once)
        cover<Product<Source, Parts>>(smaller(rows_at_once, rows - row), tokens, [&]<int Rows, int Tokens>(int64_t r, int64_t t) {
            product.template tile<Rows, Tokens>(row + r, t, out, out_stride);
        });
}

template <class Source>
void multiply(const Source& source, const PackedTokens& packed, int64_t tokens, float* out, int64_t out_stride) {
    if (packed.parts == 1)
        multiply<1>(source, packed, tokens, out, out_stride);
    else
        multiply<2>(source, packed, tokens, out, out_stride);
}

}  // namespace

int64_t packed4_bytes(const Weight4& kind, const FloatTokens& x) {
    if (kind.columns == 0 || x.bf16_parts > 2 || !has_normal_parts(x, padded_columns(kind.columns))) return 0;
    return x.tokens * PackedTokens(x, kind.columns, nullptr).size() * int64_t(sizeof(__m512i));
}

void pack4(const FloatTokens& x, int64_t columns, int64_t part, int64_t parts, uint8_t* packed) {
    const PackedTokens tokens(x, columns, packed);
    for (int64_t step = part * tokens.steps / parts; step < (part + 1) * tokens.steps / parts; ++step) tokens.pack(x, step);
}

void weight4(const Weight4& weight, const FloatTokens& x, float* out, int64_t out_stride) {
    const Scratch<WordTables> tables(1);
    if (!x.packed || !tables.data()->fill(weight)) return avx512_isa().weight4(weight, x, out, out_stride);
    const PackedTokens packed(x, weight.columns, const_cast<uint8_t*>(x.packed));
    if (weight.block_bytes)
        multiply(Blocks{weight, *tables.data(), packed.steps}, packed, x.tokens, out, out_stride);
    else if (weight.group < step_values && weight.group < weight.columns)
        multiply(LaneGroups(weight, *tables.data(), packed.steps), packed, x.tokens, out, out_stride);
    else if (weight.zeros)
        multiply(Groups<true>(weight, *tables.data(), packed.steps), packed, x.tokens, out, out_stride);
    else
        multiply(Groups<false>(weight, *tables.data(), packed.steps), packed, x.tokens, out, out_stride);
}

}  // namespace lowbit::cpu::avx512_bf16
