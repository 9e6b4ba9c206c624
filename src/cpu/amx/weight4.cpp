// 4-bit codes times fp32 tokens. Vectors of fp32 need a lookup and an FMA per token for every 16 weights; tiles of bf16 do with one lookup
// for 32 weights and five tokens, and lose nothing: an fp32 number is the sum of three bf16 numbers, and what a 4-bit code stands for is
// one (bf16_parts.hpp). A token is three columns of the right operand; products are summed up in fp32.
//
// The numbers of nibble j of all words of a step are a row of left operand j. The right operands have the same order, with two numbers of a
// column side by side as TDPBF16PS wants them: [j][w / 2][column][w % 2].
#include <cstring>

#include "cpu/amx/products.hpp"
#include "cpu/amx/tiles.hpp"
#include "cpu/avx512/bf16_parts.hpp"
#include "cpu/avx512/transpose.hpp"
#include "cpu/simd/arithmetic.hpp"
#include "cpu/simd/scratch.hpp"
#include "cpu/simd/stream.hpp"

namespace lowbit::cpu::amx {
namespace {

constexpr int64_t step_values = word_step_values, step_bytes = word_step_bytes;
constexpr int64_t planes = 3, tile_tokens = tile_rows / planes;
constexpr int64_t most_batches = 2;         // of tokens, which share the decoded weight: what the tile registers hold
constexpr int64_t least_tokens = 2;         // of one, vectors are faster
constexpr int nibble_count = word_nibbles;  // tiles of a step

constexpr int64_t most_tokens = most_batches * tile_tokens;  // at a time

// Right operands of up to two batches of tokens: [step][batch][j][w / 2][plane][token][w % 2].
struct PackedTokens {
    int64_t count, batches, tokens, columns, steps;  // tokens and columns of a batch
    int64_t tile_stride;                             // bytes between the rows of an operand: no row crosses a cache line
    uint8_t* codes;

    // The tokens from `first` on.
    PackedTokens(int64_t all_tokens, int64_t first, int64_t values, uint8_t* memory)
        : count(smaller(most_tokens, all_tokens - first)),
          batches(ceil_div(count, tile_tokens)),
          tokens(ceil_div(count, batches)),
          columns(planes * tokens),
          steps(ceil_div(values, step_values)),
          tile_stride(columns <= 4   ? 16
                      : columns <= 8 ? 32
                                     : 64),
          codes(memory) {
        if (memory) codes += offset(first);
    }

    int64_t offset(int64_t first) const { return first / most_tokens * most_batches * steps * nibble_count * tile_size; }
    int64_t bytes() const { return steps * batches * nibble_count * tile_rows * tile_stride; }
    uint8_t* tile(int64_t step, int64_t batch, int64_t j) const {
        return codes + ((step * batches + batch) * nibble_count + j) * tile_rows * tile_stride;
    }

    void pack(const FloatTokens& x, int64_t first, int64_t values, int64_t step) const {
        for (int64_t batch = 0; batch < batches; ++batch) {
            const int64_t done = batch * tokens;
            pack_step(x, first + done, smaller(tokens, count - done), step, values, batch);
        }
    }

private:
    void pack_step(const FloatTokens& x, int64_t first, int64_t used, int64_t step, int64_t values, int64_t batch) const {
        __m512i right[nibble_count][tile_rows] = {};  // [j][column], one word pair per element
        for (int64_t t = 0; t < used; ++t) {
            StepParts parts(x.values + (first + t) * x.stride, values, step);
            for (int64_t plane = 0; plane < planes; ++plane)
                for (int j = 0; j < nibble_count; ++j) right[j][plane * tokens + t] = parts.next(j);
        }
        const auto there = __mmask16((1u << columns) - 1);
        for (int j = 0; j < nibble_count; ++j) {
            transpose(right[j]);
            for (int64_t r = 0; r < tile_rows; ++r) _mm512_mask_storeu_epi32(tile(step, batch, j) + r * tile_stride, there, right[j][r]);
        }
    }
};

// What the product of 16 rows works in.
struct Workspace {
    WordTables tables;
    alignas(64) uint8_t numbers[nibble_count][tile_size];      // a decoded step: [j][row][w]
    alignas(64) float groups[2][most_batches][tile_rows][16];  // sums of a group as they left the tiles, by turns
};

// All of it is inlined and unrolled, for the sums to stay in registers.
template <int Batches>
struct Panel {
    const Weight4& weight;
    const PackedTokens& tokens;
    Workspace& work;
    int64_t first_row;
    Stream stream;
    const uint8_t* codes[tile_rows];  // of each row; rows that are not there are the last one once more
    const float* scales[tile_rows];
    __m512 sums[Batches][tile_rows];

    Panel(const Weight4& w, const PackedTokens& t, Workspace& ws, int64_t row)
        : weight(w), tokens(t), work(ws), first_row(row), stream{w.row_stride, tile_rows, 256} {
        for (int64_t r = 0; r < tile_rows; ++r) {
            const int64_t at = smaller(first_row + r, weight.rows - 1);
            codes[r] = weight.codes + at * weight.row_stride;
            scales[r] = weight.scales + at * weight.scale_stride;
        }
    }
    int64_t group_steps() const { return weight.group >= weight.columns ? tokens.steps : weight.group / step_values; }

    // Nibbles j and j + 1. A step is decoded in two halves, one while the other is multiplied: loads that lie a multiple of 4 KB from a
    // store on its way would wait for it, and halves do not.
    template <int j>
    [[gnu::always_inline]] void decode(int64_t step, int64_t group) const {
        const int64_t first = step * step_bytes, bytes = (weight.columns + 1) / 2 - first;
        uint8_t* to = work.numbers[j];
        const auto put = [&](int64_t r, __m512i bits, __m512i table) __attribute__((always_inline)) {
            const __m512i low = j ? _mm512_srli_epi16(bits, 4 * j) : bits, high = _mm512_srli_epi16(bits, 4 * j + 4);
            _mm512_store_si512(to + r * tile_bytes, _mm512_permutexvar_epi16(low, table));
            _mm512_store_si512(to + tile_size + r * tile_bytes, _mm512_permutexvar_epi16(high, table));
        };
        if (bytes >= step_bytes && !weight.zeros) {
            const __m512i table = work.tables.table(0);
#pragma GCC unroll 16
            for (int r = 0; r < tile_rows; ++r) {
                if (j == 0) stream.prefetch_ahead(codes[r], first, step_bytes);
                put(r, _mm512_loadu_si512(codes[r] + first), table);
            }
            return;
        }
        const __mmask64 there = bytes >= step_bytes ? ~__mmask64(0) : (__mmask64(1) << bytes) - 1;
        for (int64_t r = 0; r < tile_rows; ++r) {
            if (j == 0) stream.prefetch_ahead(codes[r], first, step_bytes);
            const int64_t zero = weight.zeros ? int64_t(weight.zeros[scales[r] - weight.scales + group]) : 0;
            put(r, _mm512_maskz_loadu_epi8(there, codes[r] + first), work.tables.table(zero));
        }
    }

    [[gnu::always_inline]] void multiply(int64_t step, int64_t j) const {
        _tile_loadd(6, tokens.tile(step, 0, j), tokens.tile_stride);
        _tile_loadd(4, work.numbers[j], tile_bytes);
        _tile_dpbf16ps(0, 4, 6);
        if constexpr (Batches == 2) {
            _tile_loadd(7, tokens.tile(step, 1, j), tokens.tile_stride);
            _tile_dpbf16ps(1, 4, 7);
        }
    }
    static void clear_tiles() {
        _tile_zero(0);
        if (Batches == 2) _tile_zero(1);
    }
    [[gnu::always_inline]] void store_group(int64_t group) const {
        auto& to = work.groups[group % 2];
        _tile_stored(0, to[0], tile_bytes);
        if constexpr (Batches == 2) _tile_stored(1, to[1], tile_bytes);
        clear_tiles();
    }
    [[gnu::always_inline]] void add_group(int64_t group) {
#pragma GCC unroll 16
        for (int r = 0; r < tile_rows; ++r) {
            const __m512 scale = _mm512_set1_ps(scales[r][group]);
#pragma GCC unroll 2
            for (int batch = 0; batch < Batches; ++batch)
                sums[batch][r] = _mm512_fmadd_ps(_mm512_load_ps(work.groups[group % 2][batch][r]), scale, sums[batch][r]);
        }
    }

    [[gnu::always_inline]] void multiply() {
        const int64_t steps = tokens.steps, per_group = group_steps();
#pragma GCC unroll 16
        for (int r = 0; r < tile_rows; ++r)
#pragma GCC unroll 2
            for (int batch = 0; batch < Batches; ++batch) sums[batch][r] = _mm512_setzero_ps();
        clear_tiles();
        decode<0>(0, 0);
        for (int64_t step = 0, group = 0, end = smaller(per_group, steps); step < steps; ++step) {
            const bool is_end = step + 1 == end;
            decode<2>(step, group);
            multiply(step, 0);
            multiply(step, 1);
            if (step + 1 < steps) decode<0>(step + 1, group + is_end);
            multiply(step, 2);
            multiply(step, 3);
            if (!is_end) continue;
            if (group) add_group(group - 1);
            store_group(group++);
            end = smaller(steps, end + per_group);
            if (step + 1 == steps) add_group(group - 1);
        }
    }

    void store(float* out, int64_t out_stride) const {
        alignas(64) float sum[Batches][tile_rows][16];
#pragma GCC unroll 16
        for (int r = 0; r < tile_rows; ++r)
#pragma GCC unroll 2
            for (int batch = 0; batch < Batches; ++batch) _mm512_store_ps(sum[batch][r], sums[batch][r]);
        for (int64_t r = 0; r < smaller(tile_rows, weight.rows - first_row); ++r)
            for (int64_t t = 0; t < tokens.count; ++t) {
                const float* at = sum[t / tokens.tokens][r] + t % tokens.tokens;
                out[(first_row + r) * out_stride + t] = (at[2 * tokens.tokens] + at[tokens.tokens]) + at[0];
            }
    }
};

template <int Batches>
void multiply_rows(const Weight4& weight, const PackedTokens& tokens, Workspace& work, float* out, int64_t out_stride) {
    const TileScope tiles(tile_bytes, tokens.columns * int64_t(sizeof(uint32_t)));
    for (int64_t row = 0; row < weight.rows; row += tile_rows) {
        Panel<Batches> panel(weight, tokens, work, row);
        panel.multiply();
        panel.store(out, out_stride);
    }
}

bool is_for_tiles(const Weight4& kind, const FloatTokens& x) {
    if (kind.block_bytes || kind.columns == 0 || x.tokens < least_tokens) return false;
    if (kind.group < kind.columns && kind.group % step_values) return false;
    return has_normal_parts(x, padded_columns(kind.columns));
}

}  // namespace

int64_t packed4_bytes(const Weight4& kind, const FloatTokens& x) {
    if (!is_for_tiles(kind, x)) return 0;
    const int64_t last = (x.tokens - 1) / most_tokens * most_tokens;
    const PackedTokens tokens(x.tokens, last, kind.columns, nullptr);
    return tokens.offset(last) + tokens.bytes();
}

void pack4(const FloatTokens& x, int64_t columns, int64_t part, int64_t parts, uint8_t* packed) {
    for (int64_t token = 0; token < x.tokens; token += most_tokens) {
        const PackedTokens tokens(x.tokens, token, columns, packed);
        for (int64_t step = part * tokens.steps / parts; step < (part + 1) * tokens.steps / parts; ++step)
            tokens.pack(x, token, columns, step);
    }
}

void weight4(const Weight4& weight, const FloatTokens& x, float* out, int64_t out_stride) {
    const Scratch<Workspace> scratch(1);
    Workspace& work = *scratch.data();
    if (!x.packed || !work.tables.fill(weight)) return avx512_isa().weight4(weight, x, out, out_stride);
    std::memset(work.groups, 0, sizeof work.groups);  // columns that no token fills
    for (int64_t token = 0; token < x.tokens; token += most_tokens) {
        const PackedTokens tokens(x.tokens, token, weight.columns, const_cast<uint8_t*>(x.packed));
        if (tokens.batches == 1)
            multiply_rows<1>(weight, tokens, work, out + token, out_stride);
        else
            multiply_rows<2>(weight, tokens, work, out + token, out_stride);
    }
}

}  // namespace lowbit::cpu::amx
