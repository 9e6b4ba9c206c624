// q4_0 and q8_0 weights times tokens in blocks of int8, for many tokens.
//
// Every block has its own pair of scales, so a tile of results has to leave the tile registers after each block of 32: that, and not the
// multiplication, is what takes the time (per block and 16 x 16 results: about 16 cycles to multiply, 17 to store the tile, 17 to scale
// and add it). The codes are widened to bf16, which holds them exactly; their products and sums stay below 2^24 and so are exact in the
// fp32 of the results too, and need no conversion before the scaling.
#include <cstring>

#include "cpu/amx/products.hpp"
#include "cpu/amx/tiles.hpp"
#include "cpu/simd/arithmetic.hpp"
#include "cpu/simd/scratch.hpp"

namespace lowbit::cpu::amx {
namespace {

constexpr int64_t few_tokens = 8;
constexpr int64_t block_values = 32;
constexpr int64_t chunk = 32;  // blocks along K

// 32 int8 as bf16: whole numbers up to 256 have no bits below those that bf16 keeps.
__m512i widen(__m256i codes) {
    const __m512i low = _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_castsi256_si128(codes))));
    const __m512i high = _mm512_castps_si512(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm256_extracti128_si256(codes, 1))));
    const __m256i low_half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(low, 16)), high_half = _mm512_cvtepi32_epi16(_mm512_srli_epi32(high, 16));
    return _mm512_inserti64x4(_mm512_castsi256_si512(low_half), high_half, 1);
}

struct Q4_0 {
    static constexpr int64_t bytes = 18;
    static __m512i decode(const uint8_t* block) {
        const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 2)), nibble = _mm_set1_epi8(15);
        const __m256i both = _mm256_set_m128i(_mm_and_si128(_mm_srli_epi16(codes, 4), nibble), _mm_and_si128(codes, nibble));
        return widen(_mm256_sub_epi8(both, _mm256_set1_epi8(8)));
    }
};

struct Q8_0 {
    static constexpr int64_t bytes = 34;
    static __m512i decode(const uint8_t* block) { return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 2))); }
};

// 16 rows of a chunk of blocks as left operands, and their scales.
template <class Format>
struct Panel {
    alignas(64) uint8_t codes[chunk * tile_size];
    float scales[chunk][tile_rows];

    void decode(const uint8_t* weight, int64_t row_stride, int64_t rows, int64_t blocks) {
        for (int64_t r = 0; r < tile_rows; ++r)
            for (int64_t b = 0; b < blocks; ++b) {
                const uint8_t* block = weight + r * row_stride + b * Format::bytes;
                uint16_t half = 0;
                if (r < rows) std::memcpy(&half, block, sizeof half);
                scales[b][r] = _cvtsh_ss(half);
                _mm512_store_si512(codes + b * tile_size + r * tile_bytes, r < rows ? Format::decode(block) : _mm512_setzero_si512());
            }
    }
};

// A chunk of all the tokens as right operands: [token / 16][block][k / 2][token % 16][k % 2], and the scales [token / 16][block][token % 16].
struct PackedTokens {
    int64_t tiles;
    Scratch<uint8_t> codes;
    Scratch<float> scales;

    explicit PackedTokens(int64_t tokens)
        : tiles((tokens + tile_rows - 1) / tile_rows), codes(tiles * chunk * tile_size), scales(tiles * chunk * tile_rows) {}

    const uint8_t* tile_codes(int64_t tile) const { return codes.data() + tile * chunk * tile_size; }
    const float* tile_scales(int64_t tile) const { return scales.data() + tile * chunk * tile_rows; }

    void pack(const BlockTokens& x, int64_t first, int64_t count) const {
        for (int64_t tile = 0; tile < tiles; ++tile)
            for (int64_t b = 0; b < count; ++b) pack(x, tile, first + b, b);
    }

private:
    void pack(const BlockTokens& x, int64_t tile, int64_t block, int64_t to) const {
        const int64_t blocks = x.columns / block_values;
        float* scale = scales.data() + (tile * chunk + to) * tile_rows;
        __m512i rows[16];
        for (int64_t i = 0; i < 16; ++i) {
            const int64_t token = tile * tile_rows + i;
            const bool there = token < x.tokens;
            scale[i] = there ? x.scales[token * blocks + block] : 0.0f;
            const auto* from = reinterpret_cast<const __m256i*>(x.codes + token * x.columns + block * block_values);
            rows[i] = there ? widen(_mm256_loadu_si256(from)) : _mm512_setzero_si512();
        }
        transpose(rows);
        uint8_t* at = codes.data() + (tile * chunk + to) * tile_size;
        for (int i = 0; i < 16; ++i) _mm512_store_si512(at + i * tile_bytes, rows[i]);
    }
};

// Adds a product to the sums: sums[r] += (product[r] * token scales) * row scale.
inline void add_scaled(const float* product, const float* token_scales, const float* row_scales, __m512 (&sums)[16]) {
    const __m512 scales = _mm512_loadu_ps(token_scales);
#pragma GCC unroll 16
    for (int r = 0; r < 16; ++r)
        sums[r] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_load_ps(product + 16 * r), scales), _mm512_set1_ps(row_scales[r]), sums[r]);
}

// out[16][16] (+)= a chunk. While the tile unit multiplies one block, the product before it is stored and the one before that is added.
template <class Format>
void multiply(const Panel<Format>& panel, const uint8_t* tokens, const float* token_scales, int64_t blocks, __m512 (&sums)[16]) {
    alignas(64) float even[256], odd[256];
    const auto scales = [&](int64_t b) { return token_scales + b * tile_rows; };
    int64_t b = 0;
    for (; b + 2 <= blocks; b += 2) {
        _tile_loadd(4, panel.codes + b * tile_size, tile_bytes);
        _tile_loadd(6, tokens + b * tile_size, tile_bytes);
        _tile_zero(0);
        _tile_dpbf16ps(0, 4, 6);
        if (b) {
            _tile_stored(1, odd, tile_bytes);
            add_scaled(even, scales(b - 2), panel.scales[b - 2], sums);
        }
        _tile_loadd(5, panel.codes + (b + 1) * tile_size, tile_bytes);
        _tile_loadd(7, tokens + (b + 1) * tile_size, tile_bytes);
        _tile_zero(1);
        _tile_dpbf16ps(1, 5, 7);
        _tile_stored(0, even, tile_bytes);
        if (b) add_scaled(odd, scales(b - 1), panel.scales[b - 1], sums);
    }
    if (b) {
        _tile_stored(1, odd, tile_bytes);
        add_scaled(even, scales(b - 2), panel.scales[b - 2], sums);
        add_scaled(odd, scales(b - 1), panel.scales[b - 1], sums);
    }
    if (b < blocks) {
        _tile_loadd(4, panel.codes + b * tile_size, tile_bytes);
        _tile_loadd(6, tokens + b * tile_size, tile_bytes);
        _tile_zero(0);
        _tile_dpbf16ps(0, 4, 6);
        _tile_stored(0, even, tile_bytes);
        add_scaled(even, scales(b), panel.scales[b], sums);
    }
}

template <class Format>
void multiply_blocks(const uint8_t* weight, int64_t row_stride, int64_t rows, const BlockTokens& x, float* out, int64_t out_stride) {
    const TileScope tiles;
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
                const __mmask16 there = __mmask16((1u << smaller(tile_rows, x.tokens - token)) - 1);
                float* y = out + row * out_stride + token;
                __m512 sums[16];
#pragma GCC unroll 16
                for (int r = 0; r < 16; ++r) sums[r] = first && r < rows_here ? _mm512_maskz_loadu_ps(there, y + r * out_stride) : _mm512_setzero_ps();
                multiply(panel, packed.tile_codes(tile), packed.tile_scales(tile), blocks_here, sums);
#pragma GCC unroll 16
                for (int r = 0; r < 16; ++r)
                    if (r < rows_here) _mm512_mask_storeu_ps(y + r * out_stride, there, sums[r]);
            }
        }
    }
}

}  // namespace

void q4_0_q8(const uint8_t* weight, int64_t row_stride, int64_t rows, const BlockTokens& x, float* out, int64_t out_stride) {
    if (x.tokens <= few_tokens || x.columns == 0) return avx512_isa().q4_0_q8(weight, row_stride, rows, x, out, out_stride);
    multiply_blocks<Q4_0>(weight, row_stride, rows, x, out, out_stride);
}

void q8_0_q8(const uint8_t* weight, int64_t row_stride, int64_t rows, const BlockTokens& x, float* out, int64_t out_stride) {
    if (x.tokens <= few_tokens || x.columns == 0) return avx512_isa().q8_0_q8(weight, row_stride, rows, x, out, out_stride);
    multiply_blocks<Q8_0>(weight, row_stride, rows, x, out, out_stride);
}

}  // namespace lowbit::cpu::amx
