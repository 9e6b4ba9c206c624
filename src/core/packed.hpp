// A packed weight: one run of bytes that says itself what it is, so that it can be written to a file and opened again.
//
//     header (128 bytes) | codes | scales | zero points | tensor scale        each plane starts at a multiple of 256 bytes
//
// Layout `rows` keeps the planes as they are: what the CPU kernels read, and the CUDA kernels for 8 bits and more.
//
// Layout `tiles` holds 4-bit codes in the order in which the tensor cores want the weight's rows (the 16-row operand of mma.m16n8k16 and of
// wgmma), so that one 16-byte load per lane brings four k-steps of a fragment, whatever the number of tokens:
//
//     codes        [16-row tile][64 columns] atoms of 512 bytes; lane l of a warp has 16 bytes at 16 l: a 32-bit word per step of 16
//     columns
//                  nibble j of word s, j = 0..3:    row l/4 + 8(j%2), column 16 s + 2(l%4) + 8(j/2)
//                  nibble j + 4:                    the same row, the next column
//     scales       [16-row tile][group], 16 scales each, rows r and r + 8 side by side
//     zero points  the same order, one byte each
//
// Signed codes (int4) are stored plus 8, as q4_0 stores them. Rows and columns beyond the matrix hold the code of zero.
#pragma once
#include <span>

#include "core/tensor.hpp"

namespace lowbit::core {

constexpr int64_t packed_alignment = 256;  // of every plane, and of the whole on a GPU; 64 is enough for a CPU

// Bytes of the planes of a weight in a layout.
struct PackedSizes {
    int64_t codes = 0, scales = 0, zero_points = 0, tensor_scale = 0;
};

// The tiles of a rows x columns weight, in numbers that kernels compute with.
struct TileGrid {
    static constexpr int rows_per_tile = 16, columns_per_atom = 64, atom_bytes = 512;
    int64_t tiles = 0, atoms = 0;   // atoms: of one tile, along K
    int64_t group = 0, groups = 0;  // columns that share a scale; scales of a row
    TileGrid(const Format& format, int64_t rows, int64_t columns);
};

// The layout a format is packed to for a device.
PackedLayout packed_layout(const Format& format, Device device);
// The element of the scales in the `tiles` layout: GGML blocks keep theirs inside the codes otherwise.
Element tile_scale_element(const Format& format);

// The nibble that stands for zero, as a plain row or a block stores it (int4: after the 8 is added).
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
