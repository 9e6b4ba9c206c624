// q4_0 and q8_0 weights times tokens in blocks of int8, for many tokens.
//
// Every block has its own pair of scales, so a tile of results has to leave the tile registers after each block of 32. That, and not the
// multiplication, takes the time: of about 60 cycles per block and 16 x 16 results, 17 store the tile and 33 scale it and add it up. (The
// latter would be 17, but next to tile instructions the processor starts only one 512-bit floating-point operation per cycle, not two.)
// Measured with everything in the first-level cache, that is 0.14 of what the tile unit multiplies at best: 0.24 if nothing were scaled,
// 0.32 if nothing were stored either. (Blocks of 32 fill half of a tile, so 0.5 is the limit.) Scaling four or more blocks at a time, apart
// from the tile instructions, gets to 0.16 there, but a whole product did not become faster.
//
// Tokens are the left operand and rows of the weight the right one, so that the scales of 16 rows are a vector. A product starts from the
// bits of 1.5 * 2^23 instead of zero: then its int32 are, read as fp32, 1.5 * 2^23 + the dot product, and one FMA with the scale and with
// -1.5 * 2^23 * scale (exact: an fp16 scale has 11 bits) both converts and scales. Two operations per 16 results are the least possible.
#include <cstring>

#include "cpu/amx/products.hpp"
#include "cpu/amx/tiles.hpp"
#include "cpu/avx512/transpose.hpp"
#include "cpu/simd/arithmetic.hpp"
#include "cpu/simd/scratch.hpp"

namespace lowbit::cpu::amx {
namespace {

constexpr int64_t block_values = 32, block_size = tile_rows * block_values;
constexpr int64_t chunk = 32;  // blocks along K: of 16 rows and of 16 tokens, 16 KB each
constexpr int32_t start_bits = 0x4b400000;
constexpr float start_value = 0x1.8p23f;

struct Q4_0 {
    static constexpr int64_t bytes = 18;
    static constexpr int64_t few_tokens = 16;  // up to so many, avx512_isa() is faster
    static __m256i decode(const uint8_t* block) {
        const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 2));
        const __m256i nibbles = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(codes, 4), codes), _mm256_set1_epi8(15));
        return _mm256_sub_epi8(nibbles, _mm256_set1_epi8(8));
    }
};

struct Q8_0 {
    static constexpr int64_t bytes = 34;
    static constexpr int64_t few_tokens = 8;
    static __m256i decode(const uint8_t* block) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 2)); }
};

// A chunk of 16 rows as right operands, [block][k / 4][row][k % 4], and the scales. Rows and blocks that are not there are zero.
template <class Format>
struct Panel {
    alignas(64) uint8_t codes[chunk * block_size];
    alignas(64) float scales[chunk][tile_rows];

    void decode(const uint8_t* weight, int64_t row_stride, int64_t rows, int64_t blocks) {
        for (int64_t b = 0; b < blocks; b += 2) {
            __m512i pairs[16];
            uint16_t halves[2][16] = {};
            for (int64_t r = 0; r < 16; ++r) {
                const uint8_t* block = weight + r * row_stride + b * Format::bytes;
                const auto code = [&](int64_t i) {
                    if (r >= rows || b + i >= blocks) return _mm256_setzero_si256();
                    std::memcpy(&halves[i][r], block + i * Format::bytes, sizeof(uint16_t));
                    return Format::decode(block + i * Format::bytes);
                };
                const __m256i first = code(0);
                pairs[r] = _mm512_inserti64x4(_mm512_castsi256_si512(first), code(1), 1);
            }
            transpose(pairs);
            for (int i = 0; i < 16; ++i) _mm512_store_si512(codes + b * block_size + i * tile_bytes, pairs[i]);
            for (int i = 0; i < 2; ++i)
                _mm512_store_ps(scales[b + i], _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves[i]))));
        }
    }
};

// A chunk of all the tokens as left operands: [token / 16][block][token % 16][k], and the scales. Filled up with zeros likewise.
struct PackedTokens {
    int64_t tiles;
    Scratch<int8_t> codes;
    Scratch<float> scales;

    explicit PackedTokens(int64_t tokens)
        : tiles(ceil_div(tokens, tile_rows)), codes(tiles * chunk * block_size), scales(tiles * chunk * tile_rows) {}

    const int8_t* tile_codes(int64_t tile) const { return codes.data() + tile * chunk * block_size; }
    const float* tile_scales(int64_t tile) const { return scales.data() + tile * chunk * tile_rows; }

    void pack(const BlockTokens& x, int64_t first, int64_t count) const {
        for (int64_t tile = 0; tile < tiles; ++tile)
            for (int64_t b = 0; b < count + count % 2; ++b)
                for (int64_t t = 0; t < tile_rows; ++t) {
                    const int64_t token = tile * tile_rows + t, to = (tile * chunk + b) * tile_rows + t;
                    pack(x, token, first + b, token < x.tokens && b < count, to);
                }
    }

private:
    void pack(const BlockTokens& x, int64_t token, int64_t block, bool there, int64_t to) const {
        const auto* from = reinterpret_cast<const __m256i*>(x.codes + token * x.columns + block * block_values);
        auto* at = reinterpret_cast<__m256i*>(codes.data() + to * block_values);
        _mm256_store_si256(at, there ? _mm256_loadu_si256(from) : _mm256_setzero_si256());
        scales.data()[to] = there ? x.scales[token * (x.columns / block_values) + block] : 0.0f;
    }
};

// 16 tokens x 16 rows of the result. All of it is inlined and unrolled, for the sums to stay in registers.
struct Sums {
    __m512 tokens[16];

    [[gnu::always_inline]] void clear() {
#pragma GCC unroll 16
        for (int t = 0; t < 16; ++t) tokens[t] = _mm512_setzero_ps();
    }
    // tokens[t] += (product[t] - start) * row scales * token scale
    [[gnu::always_inline]] void add(const float* product, const float* token_scales, const float* row_scales) {
        const __m512 scales = _mm512_load_ps(row_scales), offset = _mm512_mul_ps(scales, _mm512_set1_ps(-start_value));
#pragma GCC unroll 16
        for (int t = 0; t < 16; ++t) {
            const __m512 scaled = _mm512_fmadd_ps(_mm512_load_ps(product + 16 * t), scales, offset);
            tokens[t] = _mm512_fmadd_ps(scaled, _mm512_set1_ps(token_scales[t]), tokens[t]);
        }
    }
};

// Where a tile of the result stands.
struct Place {
    float* y;
    int64_t stride;
    int64_t rows, tokens;
    bool has_sums;  // of the chunks before

    [[gnu::always_inline]] void store(const Sums& sums) const {
        __m512i rows_of[16];
#pragma GCC unroll 16
        for (int t = 0; t < 16; ++t) rows_of[t] = _mm512_castps_si512(sums.tokens[t]);
        transpose(rows_of);
        const auto there = __mmask16((1u << tokens) - 1);
        for (int64_t r = 0; r < rows; ++r) {
            const __m512 before = has_sums ? _mm512_maskz_loadu_ps(there, y + r * stride) : _mm512_setzero_ps();
            _mm512_mask_storeu_ps(y + r * stride, there, _mm512_add_ps(before, _mm512_castsi512_ps(rows_of[r])));
        }
    }
};

// Adds the products of an even number of blocks. While the tile unit multiplies one block, the product of the block before it is stored,
// and the one before that is added to the sums.
template <class Format>
void multiply(const Panel<Format>& panel, const int8_t* tokens, const float* token_scales, int64_t blocks, const Place& place) {
    alignas(64) float even[256], odd[256];
    alignas(64) static constexpr int32_t start[16] = {start_bits, start_bits, start_bits, start_bits, start_bits, start_bits,
                                                      start_bits, start_bits, start_bits, start_bits, start_bits, start_bits,
                                                      start_bits, start_bits, start_bits, start_bits};
    const auto multiply_even = [&](int64_t block) __attribute__((always_inline)) {
        _tile_loadd(0, start, 0);
        _tile_loadd(4, tokens + block * block_size, block_values);
        _tile_loadd(6, panel.codes + block * block_size, tile_bytes);
        _tile_dpbssd(0, 4, 6);
    };
    const auto multiply_odd = [&](int64_t block) __attribute__((always_inline)) {
        _tile_loadd(1, start, 0);
        _tile_loadd(5, tokens + block * block_size, block_values);
        _tile_loadd(7, panel.codes + block * block_size, tile_bytes);
        _tile_dpbssd(1, 5, 7);
    };
    Sums sums;
    sums.clear();
    multiply_even(0);
    multiply_odd(1);
    _tile_stored(0, even, tile_bytes);
    int64_t b = 2;
    for (; b < blocks; b += 2) {
        multiply_even(b);
        _tile_stored(1, odd, tile_bytes);
        sums.add(even, token_scales + (b - 2) * tile_rows, panel.scales[b - 2]);
        multiply_odd(b + 1);
        _tile_stored(0, even, tile_bytes);
        sums.add(odd, token_scales + (b - 1) * tile_rows, panel.scales[b - 1]);
    }
    _tile_stored(1, odd, tile_bytes);
    sums.add(even, token_scales + (b - 2) * tile_rows, panel.scales[b - 2]);
    sums.add(odd, token_scales + (b - 1) * tile_rows, panel.scales[b - 1]);
    place.store(sums);
}

template <class Format>
void multiply_blocks(const uint8_t* weight, int64_t row_stride, int64_t rows, const BlockTokens& x, float* out, int64_t out_stride) {
    const TileScope tiles(block_values);
    const PackedTokens packed(x.tokens);
    const Scratch<Panel<Format>> scratch(1);
    Panel<Format>& panel = *scratch.data();
    const int64_t blocks = x.columns / block_values;
    for (int64_t first = 0; first < blocks; first += chunk) {
        const int64_t blocks_here = smaller(chunk, blocks - first);
        packed.pack(x, first, blocks_here);
        for (int64_t row = 0; row < rows; row += tile_rows) {
            const int64_t rows_here = smaller(tile_rows, rows - row);
            panel.decode(weight + row * row_stride + first * Format::bytes, row_stride, rows_here, blocks_here);
            for (int64_t tile = 0; tile < packed.tiles; ++tile) {
                const int64_t token = tile * tile_rows;
                const Place place{out + row * out_stride + token, out_stride, rows_here, smaller(tile_rows, x.tokens - token), first > 0};
                multiply(panel, packed.tile_codes(tile), packed.tile_scales(tile), blocks_here + blocks_here % 2, place);
            }
        }
    }
}

}  // namespace

void q4_0_q8(const uint8_t* weight, int64_t row_stride, int64_t rows, const BlockTokens& x, float* out, int64_t out_stride) {
    if (x.tokens <= Q4_0::few_tokens || x.columns == 0) return avx512_isa().q4_0_q8(weight, row_stride, rows, x, out, out_stride);
    multiply_blocks<Q4_0>(weight, row_stride, rows, x, out, out_stride);
}

void q8_0_q8(const uint8_t* weight, int64_t row_stride, int64_t rows, const BlockTokens& x, float* out, int64_t out_stride) {
    if (x.tokens <= Q8_0::few_tokens || x.columns == 0) return avx512_isa().q8_0_q8(weight, row_stride, rows, x, out, out_stride);
    multiply_blocks<Q8_0>(weight, row_stride, rows, x, out, out_stride);
}

}  // namespace lowbit::cpu::amx
