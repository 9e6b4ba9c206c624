// The rows of the weight are the left operand; the tokens have been rearranged into right operands, once for all rows and threads. A tile
// of the result is 32 rows x 32 tokens.
//
// What bounds this is not the multiplication but the way to the second-level cache. K is taken in chunks: a chunk of 32 rows stays in the
// first level, the same chunk of all the tokens and the sums in the second. Of four tiles that are loaded for every four that are
// multiplied, two then come from the first level, and the other two are loaded as a stream, so that they do not displace the rows there.
#include <cstring>

#include "cpu/amx/products.hpp"
#include "cpu/amx/tiles.hpp"
#include "cpu/avx512/transpose.hpp"
#include "cpu/simd/arithmetic.hpp"
#include "cpu/simd/scratch.hpp"

namespace lowbit::cpu::amx {
namespace {

constexpr int64_t few_tokens = 4;  // up to so many, avx512_isa() is as fast
constexpr int64_t panel_rows = 2 * tile_rows;
constexpr int64_t chunk = 1024;  // codes along K: of 32 rows 32 KB
constexpr int64_t chunk_steps = chunk / tile_bytes;

// Tokens as right operands, [block of tokens][chunk][token / 16][step][k / 4][token % 16][k % 4], zero beyond the end. One block of at
// most IntegerTokens::block tokens.
struct PackedTokens {
    int64_t tokens, tiles, steps;

    PackedTokens(int64_t count, int64_t columns)
        : tokens(count), tiles(ceil_div(count, tile_rows)), steps(padded_columns(columns) / tile_bytes) {}

    int64_t bytes() const { return tiles * steps * tile_size; }
    // Where the chunk's tile `tile` begins; its steps follow each other.
    int64_t offset(int64_t tile, int64_t first_step) const {
        return (tiles * first_step + tile * smaller(chunk_steps, steps - first_step)) * tile_size;
    }
    // Tile and step number `index` of tiles * steps.
    void pack(const int8_t* x, int64_t stride, int64_t columns, int64_t index, int8_t* to) const {
        const int64_t tile = index / steps, step = index % steps, first_step = step / chunk_steps * chunk_steps;
        const int64_t used = smaller(tile_rows, tokens - tile * tile_rows), there = columns - step * tile_bytes;
        const __mmask64 mask = there >= tile_bytes ? ~__mmask64(0) : (__mmask64(1) << there) - 1;
        const int8_t* from = x + tile * tile_rows * stride + step * tile_bytes;
        to += offset(tile, first_step) + (step - first_step) * tile_size;
        __m512i rows[16];
        for (int64_t i = 0; i < 16; ++i) rows[i] = i < used ? _mm512_maskz_loadu_epi8(mask, from + i * stride) : _mm512_setzero_si512();
        transpose(rows);
        for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * tile_bytes, rows[i]);
    }
};

// A chunk of 32 rows of the weight: in place for few tokens, else copied in the order of the tiles, [step][row][k]. In place, rows that lie
// a large power of two apart would displace each other in the first-level cache.
struct Panel {
    const int8_t* codes;
    int64_t row_stride, step_stride;
    int64_t steps;
    alignas(64) int8_t copy[panel_rows * chunk];

    void load(const int8_t* weight, int64_t weight_stride, int64_t rows, int64_t columns, bool may_stay) {
        codes = weight;
        row_stride = weight_stride;
        step_stride = tile_bytes;
        steps = ceil_div(columns, tile_bytes);
        if (may_stay && rows == panel_rows && columns % tile_bytes == 0) return;
        codes = copy;
        row_stride = tile_bytes;
        step_stride = panel_rows * tile_bytes;
        const __mmask64 last = columns % tile_bytes ? (__mmask64(1) << columns % tile_bytes) - 1 : ~__mmask64(0);
        for (int64_t r = 0; r < panel_rows; ++r)
            for (int64_t step = 0; step < steps; ++step) {
                const __mmask64 there = r >= rows ? __mmask64(0) : step + 1 < steps ? ~__mmask64(0) : last;
                _mm512_store_si512(copy + step * step_stride + r * tile_bytes,
                                   _mm512_maskz_loadu_epi8(there, weight + smaller(r, rows - 1) * weight_stride + step * tile_bytes));
            }
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
    const int8_t* lower_codes = panel.codes + tile_rows * panel.row_stride;
    for (int64_t step = 0; step < panel.steps; ++step) {
        _tile_loadd(4, upper_codes + step * panel.step_stride, panel.row_stride);
        _tile_stream_loadd(6, first_tokens + step * tile_size, tile_bytes);
        _tile_dpbssd(0, 4, 6);
        _tile_loadd(5, lower_codes + step * panel.step_stride, panel.row_stride);
        _tile_dpbssd(2, 5, 6);
        if constexpr (TokenTiles == 2) {
            _tile_stream_loadd(7, second_tokens + step * tile_size, tile_bytes);
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

// Rows times a block of tokens.
struct Product {
    const int8_t* weight;
    int64_t weight_stride, rows, columns;
    PackedTokens tokens;
    const int8_t* packed;
    int32_t* out;
    int64_t out_stride;

    void add_chunk(int64_t first, Panel& panel, Result& result) const {
        constexpr int64_t few_pairs = 2;  // a copy does not pay
        const int64_t codes = smaller(chunk, columns - first);
        const int64_t pairs = ceil_div(tokens.tiles, 2), rows_ahead = ceil_div(panel_rows, pairs);
        for (int64_t row = 0; row < rows; row += panel_rows) {
            const int64_t rows_here = smaller(panel_rows, rows - row);
            panel.load(weight + row * weight_stride + first, weight_stride, rows_here, codes, pairs <= few_pairs);
            const int8_t* next = row + panel_rows < rows ? weight + (row + panel_rows) * weight_stride + first : weight + first + codes;
            for (int64_t t = 0; t < tokens.tiles; t += 2) {
                const bool is_pair = t + 1 < tokens.tiles;
                const int64_t token = t * tile_rows, wanted = is_pair ? 2 * tile_rows : tile_rows;
                result.open(out + row * out_stride + token, out_stride, rows_here, smaller(wanted, tokens.tokens - token), wanted,
                            first > 0);
                const Ahead ahead{next, weight_stride, t / 2 * rows_ahead, rows_ahead};
                const int8_t* tile = packed + tokens.offset(t, first / tile_bytes);
                if (is_pair)
                    multiply<2>(panel, tile, tile + panel.steps * tile_size, first > 0, ahead, result);
                else
                    multiply<1>(panel, tile, nullptr, first > 0, ahead, result);
                result.close();
            }
        }
    }
};

}  // namespace

int64_t packed8_bytes(const IntegerTokens& x, int64_t columns) {
    return x.tokens <= few_tokens ? 0 : PackedTokens(x.tokens, columns).bytes();
}

void pack8(const IntegerTokens& x, int64_t columns, int64_t part, int64_t parts, int8_t* packed) {
    for (int64_t token = 0; token < x.tokens; token += IntegerTokens::block) {
        const PackedTokens block(smaller(IntegerTokens::block, x.tokens - token), columns);
        const int64_t count = block.tiles * block.steps;
        for (int64_t i = part * count / parts; i < (part + 1) * count / parts; ++i)
            block.pack(x.codes + token * x.stride, x.stride, columns, i, packed + token * padded_columns(columns));
    }
}

void int8(const int8_t* weight, int64_t weight_stride, int64_t rows, int64_t columns, const IntegerTokens& x, int32_t* out,
          int64_t out_stride) {
    if (!x.packed) return avx512_isa().int8(weight, weight_stride, rows, columns, x, out, out_stride);
    const TileScope tiles(tile_bytes);
    const Scratch<Panel> panel(1);
    const Scratch<Result> result(1);
    for (int64_t token = 0; token < x.tokens; token += IntegerTokens::block) {
        const int64_t tokens_here = smaller(IntegerTokens::block, x.tokens - token);
        const Product product{weight,      weight_stride, rows, columns, {tokens_here, columns}, x.packed + token * padded_columns(columns),
                              out + token, out_stride};
        for (int64_t first = 0; first < columns; first += chunk) product.add_chunk(first, *panel.data(), *result.data());
    }
}

}  // namespace lowbit::cpu::amx
