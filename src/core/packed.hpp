// A packed weight: one run of bytes that says itself what it is, so that it can be written to a file and opened again.
//
//     header (128 bytes) | codes | scales | zero points | tensor scale | row sums        each plane starts at a multiple of 256 bytes
//
// Row sums, 32 bits each: of int8 the sum of a row's codes, which products with tokens that have zero points need; of int1 how many of its
// bits are set. Other formats have none.
//
// Layout `rows` keeps the planes as they are: what the CPU kernels read, and the CUDA kernels for 8 bits and more that are not GGML's.
//
// Layout `tiles` holds codes of 2 to 8 bits in the order in which the tensor cores want the weight's rows (the 16-row operand of
// mma.m16n8k16 and of wgmma), so that one 16-byte load per lane brings four k-steps of a fragment of 4 bits, whatever the number of tokens:
//
//     codes        [16-row tile][64 columns] atoms; an atom has a plane of low bits (8, 4 or 2) and one of the rest (1 or 2) where there
//                  is one (5 bits: 4 + 1, 6: 4 + 2, 3: 2 + 1). In a plane of b bits, lane l of a warp has b words of 32 bits, 16 bytes of
//                  them (or all) side by side, and in byte i of its words, from the first bit of the first on, eight codes:
//                      code s:    row l/4 + 8(s%2),    column 16(s/2) + 2(l%4) + 8(i%2) + i/2
//
//                  A word of nibbles is a step of 16 columns:
//                      bits   0       4       8       12       16      20       24      28
//                      row    g       g + 8   g       g + 8    g       g + 8    g       g + 8        g = l/4
//                      column 2t      2t      2t + 8  2t + 8   2t + 1  2t + 1   2t + 9  2t + 9       t = l%4
//                  so that a shift and a mask give a pair of neighbouring columns in 16 bits each, or four codes of a row in 8 bits each;
//                  the bits of the upper plane fall into place above them the same way.
//
//                  nf4 and iq4_nl are looked up two at a time, so the codes of neighbouring columns share a byte:
//                      bits   0       4       8       12       16      20       24      28
//                      row    g       g       g + 8   g + 8    g       g        g + 8   g + 8
//                      column 2t      2t + 1  2t      2t + 1   2t + 8  2t + 9   2t + 8  2t + 9
//
//                  fp4: the four codes a, b, c, d of a half word (in the order of the first drawing) as exponent, mantissa and sign,
//                  where a shift or none brings them to their places in a bf16 number (bits 15 and 8 to 6), two at a time:
//                      bit    15 14 13 12 11 10  9  8  7  6  5  4  3  2  1  0
//                             d  d  d  sb sc sd sa c  c  c  b  b  b  a  a  a
//     scales       [16-row tile][group], 16 scales each, rows r and r + 8 side by side
//     zero points  the same order, one byte each
//
// Signed codes (int4) are stored plus 8, as q4_0 stores them. Rows and columns beyond the matrix hold the code of zero.
//
// GGML types have the terms of their blocks in place of scales, as the blocks have them, nothing rounded:
//
//     terms        [16-row tile][block of 32 or 256 values]: for g = 0..7 the fp16 scales of rows g and g + 8, then their minimums (q4_1,
//                  q5_1, q2_k, q4_k, q5_k); K types then for each half of 128 values and each g 16 bytes: of its 4 groups of 32 (q4_k,
//                  q5_k) the integer scales of rows g and g + 8 and their integer minimums, or of its 8 groups of 16 the signed scales
//                  (q3_k, q6_k) or the scale and minimum in one byte (q2_k) of rows g and g + 8.
#pragma once
#include <span>

#include "core/tensor.hpp"
#include "core/tile_layout.hpp"

namespace lowbit::core {

constexpr int64_t packed_alignment = 256;  // of every plane, and of the whole on a GPU; 64 is enough for a CPU

// Bytes of the planes of a weight in a layout.
struct PackedSizes {
    int64_t codes = 0, scales = 0, zero_points = 0, tensor_scale = 0, row_sums = 0;
};

// The tiles of a rows x columns weight, in numbers that kernels compute with.
struct TileGrid {
    static constexpr int rows_per_tile = 16, columns_per_atom = 64;
    int bits = 4;                   // of a code
    int64_t tiles = 0, atoms = 0;   // atoms: of one tile, along K
    int64_t group = 0, groups = 0;  // columns that share a scale (GGML: of a block); scales, or blocks, of a row
    TileGrid(const Format& format, int64_t rows, int64_t columns);
};

// The layout a format is packed to for a device.
PackedLayout packed_layout(const Format& format, Device device);
// Tiles of nibbles with one scale (and zero point) for a group: what kernels of 4-bit tiles take. The others are GGML types.
bool has_nibble_tiles(const Format& format);
// The element of the scales of such tiles: GGML blocks keep theirs inside the codes otherwise.
Element tile_scale_element(const Format& format);

// The code that stands for zero in tiles (int4: after the 8 is added).
unsigned code_of_zero(Element element);

int64_t packed_bytes(const Format& format, PackedLayout layout, int64_t rows, int64_t columns);

// The header that stands before the planes.
constexpr int64_t packed_header_bytes = 128;
void write_packed_header(const QuantizedView& packed, std::byte* header);

// The planes inside memory of packed_bytes(): for writing them, or for reading what is known to be a packed weight.
QuantizedView packed_planes(const Format& format, PackedLayout layout, int64_t rows, int64_t columns, std::byte* memory);

// On the CPU: fills the planes of `packed` (and not the header), and back.
void pack_planes(const QuantizedView& plain, const QuantizedView& packed);
void unpack_planes(const QuantizedView& packed, const QuantizedView& plain);

// The planes inside a packed weight in CPU memory; refuses bytes that are not one.
QuantizedView open_packed(std::span<const std::byte> bytes);

}  // namespace lowbit::core
