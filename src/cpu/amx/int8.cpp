// The rows of the weight are the left operand, read in place; the tokens are rearranged into right operands, once per call. A tile of the
// result is 32 rows x 32 tokens. K is taken in chunks, so that the chunk of all the tokens stays in the second-level cache, from where
// four tiles are loaded for every four that are multiplied: at 47 bytes per cycle that takes a little longer than multiplying them.
#include <cstring>

#include "cpu/amx/products.hpp"
#include "cpu/amx/tiles.hpp"
#include "cpu/simd/arithmetic.hpp"
#include "cpu/simd/scratch.hpp"

namespace lowbit::cpu::amx {
namespace {

constexpr int64_t few_tokens = 4;  // up to so many, avx512_isa() is as fast
constexpr int64_t panel_rows = 2 * tile_rows;
constexpr int64_t chunk = 2048;       // codes along K
constexpr int64_t most_tokens = 512;  // at a time: a chunk of them is 1 MB
constexpr int64_t chunk_steps = chunk / tile_bytes;

// A chunk of all the tokens: [token / 16][step][k / 4][token % 16][k % 4], zero beyond the end.
struct PackedTokens {
    int64_t tiles;
    Scratch<int8_t> codes;

    explicit PackedTokens(int64_t tokens) : tiles(ceil_div(tokens, tile_rows)), codes(tiles * chunk_steps * tile_size) {}

    int8_t* tile(int64_t token_tile, int64_t step) const { return codes.data() + (token_tile * chunk_steps + step) * tile_size; }

    void pack(const int8_t* x, int64_t stride, int64_t tokens, int64_t columns) const {
        for (int64_t t = 0; t < tiles; ++t)
            for (int64_t k = 0; k < columns; k += tile_bytes)
                pack(x + t * tile_rows * stride + k, stride, smaller(tile_rows, tokens - t * tile_rows), smaller(tile_bytes, columns - k),
                     tile(t, k / tile_bytes));
    }

private:
    static void pack(const int8_t* x, int64_t stride, int64_t tokens, int64_t columns, int8_t* to) {
        const __mmask64 there = columns == tile_bytes ? ~__mmask64(0) : (__mmask64(1) << columns) - 1;
        __m512i rows[16];
        for (int64_t i = 0; i < 16; ++i) rows[i] = i < tokens ? _mm512_maskz_loadu_epi8(there, x + i * stride) : _mm512_setzero_si512();
        transpose(rows);
        for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * tile_bytes, rows[i]);
    }
};

// A chunk of 32 rows of the weight: in place, or a copy with zeros where something is missing.
struct Panel {
    const int8_t* codes;
    int64_t stride;
    int64_t steps;
    alignas(64) int8_t copy[panel_rows * chunk];

    void load(const int8_t* weight, int64_t weight_stride, int64_t rows, int64_t columns) {
        codes = weight;
        stride = weight_stride;
        steps = ceil_div(columns, tile_bytes);
        if (rows == panel_rows && columns % tile_bytes == 0) return;
        std::memset(copy, 0, sizeof copy);
        for (int64_t r = 0; r < rows; ++r) std::memcpy(copy + r * chunk, weight + r * weight_stride, size_t(columns));
        codes = copy;
        stride = chunk;
    }
};

// Where a tile of the result collects: in place, or in a copy of full size at the edges.
struct Result {
    int32_t* sums;
    int64_t stride;  // in sums
    int64_t rows, tokens;
    int32_t* place;
    int64_t place_stride;
    alignas(64) int32_t copy[panel_rows * panel_rows];

    void open(int32_t* out, int64_t out_stride, int64_t rows_here, int64_t tokens_here, int64_t tokens_wanted, bool keep) {
        sums = place = out;
        stride = place_stride = out_stride;
        rows = rows_here;
        tokens = tokens_here;
        if (rows == panel_rows && tokens == tokens_wanted) return;
        sums = copy;
        stride = panel_rows;
        for (int64_t r = 0; keep && r < rows; ++r)
            std::memcpy(copy + r * stride, place + r * place_stride, size_t(tokens) * sizeof(int32_t));
    }
    void close() const {
        for (int64_t r = 0; sums == copy && r < rows; ++r)
            std::memcpy(place + r * place_stride, copy + r * stride, size_t(tokens) * sizeof(int32_t));
    }
};

// The weight's next panel, asked for while this one is multiplied: some of its rows with each pair of token tiles.
struct Ahead {
    const int8_t* codes;
    int64_t stride;
    int64_t first_row, rows;

    void prefetch(int64_t step) const {
        for (int64_t r = first_row; r < first_row + rows; ++r)
            __builtin_prefetch(reinterpret_cast<const void*>(uintptr_t(codes) + uintptr_t(r * stride + step * tile_bytes)), 0, 2);
    }
};

// result (+)= 32 rows x 16 or 32 tokens.
template <int TokenTiles>
void multiply(const Panel& panel, const int8_t* first_tokens, const int8_t* second_tokens, bool add, const Ahead& ahead, Result& result) {
    const int64_t result_bytes = result.stride * int64_t(sizeof(int32_t));
    int32_t* lower = result.sums + tile_rows * result.stride;
    if (add) {
        _tile_loadd(0, result.sums, result_bytes);
        _tile_loadd(2, lower, result_bytes);
        if constexpr (TokenTiles == 2) {
            _tile_loadd(1, result.sums + tile_rows, result_bytes);
            _tile_loadd(3, lower + tile_rows, result_bytes);
        }
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    const int8_t* upper_codes = panel.codes;
    const int8_t* lower_codes = panel.codes + tile_rows * panel.stride;
    for (int64_t step = 0; step < panel.steps; ++step) {
        _tile_loadd(4, upper_codes + step * tile_bytes, panel.stride);
        _tile_loadd(6, first_tokens + step * tile_size, tile_bytes);
        _tile_dpbssd(0, 4, 6);
        _tile_loadd(5, lower_codes + step * tile_bytes, panel.stride);
        _tile_dpbssd(2, 5, 6);
        if constexpr (TokenTiles == 2) {
            _tile_loadd(7, second_tokens + step * tile_size, tile_bytes);
            _tile_dpbssd(1, 4, 7);
            _tile_dpbssd(3, 5, 7);
        }
        ahead.prefetch(step);
    }
    _tile_stored(0, result.sums, result_bytes);
    _tile_stored(2, lower, result_bytes);
    if constexpr (TokenTiles == 2) {
        _tile_stored(1, result.sums + tile_rows, result_bytes);
        _tile_stored(3, lower + tile_rows, result_bytes);
    }
}

// Rows times a chunk of tokens.
struct Product {
    const int8_t* weight;
    int64_t weight_stride, rows, columns;
    int64_t tokens;
    int32_t* out;
    int64_t out_stride;

    void add_chunk(const PackedTokens& packed, int64_t first, Panel& panel, Result& result) const {
        const int64_t codes = smaller(chunk, columns - first);
        const int64_t pairs = ceil_div(packed.tiles, 2), rows_ahead = ceil_div(panel_rows, pairs);
        for (int64_t row = 0; row < rows; row += panel_rows) {
            const int64_t rows_here = smaller(panel_rows, rows - row);
            panel.load(weight + row * weight_stride + first, weight_stride, rows_here, codes);
            const int8_t* next = row + panel_rows < rows ? weight + (row + panel_rows) * weight_stride + first : weight + first + codes;
            for (int64_t t = 0; t < packed.tiles; t += 2) {
                const bool is_pair = t + 1 < packed.tiles;
                const int64_t token = t * tile_rows, wanted = is_pair ? 2 * tile_rows : tile_rows;
                result.open(out + row * out_stride + token, out_stride, rows_here, smaller(wanted, tokens - token), wanted, first > 0);
                const Ahead ahead{next, weight_stride, t / 2 * rows_ahead, rows_ahead};
                if (is_pair)
                    multiply<2>(panel, packed.tile(t, 0), packed.tile(t + 1, 0), first > 0, ahead, result);
                else
                    multiply<1>(panel, packed.tile(t, 0), nullptr, first > 0, ahead, result);
                result.close();
            }
        }
    }
};

}  // namespace

void int8(const int8_t* weight, int64_t weight_stride, int64_t rows, int64_t columns, const int8_t* x, int64_t x_stride, int64_t tokens,
          int32_t* out, int64_t out_stride) {
    if (tokens <= few_tokens || columns == 0)
        return avx512_isa().int8(weight, weight_stride, rows, columns, x, x_stride, tokens, out, out_stride);
    const TileScope tiles(tile_bytes);
    const Scratch<Panel> panel(1);
    const Scratch<Result> result(1);
    for (int64_t token = 0; token < tokens; token += most_tokens) {
        const int64_t tokens_here = smaller(most_tokens, tokens - token);
        const PackedTokens packed(tokens_here);
        const Product product{weight, weight_stride, rows, columns, tokens_here, out + token, out_stride};
        for (int64_t first = 0; first < columns; first += chunk) {
            packed.pack(x + token * x_stride + first, x_stride, tokens_here, smaller(chunk, columns - first));
            product.add_chunk(packed, first, *panel.data(), *result.data());
        }
    }
}

}  // namespace lowbit::cpu::amx
