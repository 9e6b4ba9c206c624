// A weight into the `tiles` layout of core/packed.hpp, and back.
#include "core/packed.hpp"
#include "cuda/formats/planes.cuh"
#include "cuda/launch.cuh"
#include "cuda/memory.hpp"
#include "cuda/pack/row_sums.cuh"

namespace lowbit::cuda {
namespace {

// What the kernels need to know of both layouts, in plain numbers.
struct Geometry {
    Element element;
    bool blocks;  // GGML types; otherwise rows of nibbles
    int64_t rows, columns, row_bytes;
    int bits;
    int64_t tiles, atoms, group, groups;
    core::BlockSize block;
    int scale_bytes;
    bool asymmetric;
    uint32_t flip, zero;  // what tiles of nibbles have flipped; the code of zero
};

struct Header {
    uint4 words[core::packed_header_bytes / 16];
};

Geometry geometry_of(const core::QuantizedView& plain) {
    const core::TileGrid grid(plain.format, plain.rows, plain.columns);
    Geometry g{};
    g.element = plain.format.element, g.blocks = plain.format.is_ggml(), g.block = core::ggml_block(g.element);
    g.rows = plain.rows, g.columns = plain.columns, g.row_bytes = plain.row_bytes();
    g.bits = grid.bits, g.tiles = grid.tiles, g.atoms = grid.atoms, g.group = grid.group, g.groups = grid.groups;
    g.scale_bytes = core::element_bytes(core::tile_scale_element(plain.format));
    g.asymmetric = plain.format.asymmetric;
    g.flip = g.element == Element::int4 ? 8 : 0;
    g.zero = core::code_of_zero(g.element);
    return g;
}

// The low bits, or the others, of the code of a row and column, as tiles have them.
__device__ uint32_t plain_bits(const Geometry& g, const uint8_t* codes, int64_t row, int64_t column, bool high) {
    if (row >= g.rows || column >= g.columns) return high ? g.zero >> core::low_bits(g.bits) : g.zero;
    const uint8_t* from = codes + row * g.row_bytes;
    if (!g.blocks) return (column % 2 ? from[column / 2] >> 4 : from[column / 2] & 15) ^ g.flip;
    const int64_t block = quotient(column, g.block.values);
    const core::BlockField field = core::ggml_code(g.element, int(column - block * g.block.values));
    return (high ? field.high : field.low).read(from + block * g.block.bytes);
}

// A warp packs an atom, word by word of 32 bits.
__global__ void pack_codes(Geometry g, const uint8_t* codes, uint32_t* packed, Header header, uint4* header_place) {
    if (blockIdx.x == 0 && threadIdx.x < sizeof(Header) / 16) header_place[threadIdx.x] = header.words[threadIdx.x];
    const int64_t warps = int64_t(gridDim.x) * (blockDim.x / 32);
    const int low = core::low_bits(g.bits), high = core::high_bits(g.bits);
    for (int64_t atom = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32; atom < g.tiles * g.atoms; atom += warps) {
        const int64_t first_row = atom / g.atoms * 16, first_column = atom % g.atoms * 64;
        for (int index = threadIdx.x % 32; index < 32 * g.bits; index += 32) {
            const bool upper = index >= 32 * low;
            const int bits = upper ? high : low, run = bits < 4 ? bits : 4, at = index - (upper ? 32 * low : 0);
            const int lane = at / run % 32, first = (at / (32 * run) * run + at % run) * 8 / bits;
            uint32_t word = 0;
            for (int i = 0; i < 32 / bits; ++i) {
                const int byte = i % 4, slot = first + i / 4;
                const int64_t row = first_row + lane / 4 + slot % 2 * 8,
                              column = first_column + slot / 2 * 16 + lane % 4 * 2 + byte % 2 * 8 + byte / 2;
                const uint32_t value = plain_bits(g, codes, row, column, upper) & ((1u << bits) - 1);
                word |= value << (8 * byte + i / 4 * bits);
            }
            packed[atom * 32 * g.bits + index] = core::arrange_word(g.element, word);
        }
    }
}

__device__ uint32_t tile_code_at(const Geometry& g, const uint8_t* packed, int64_t row, int64_t column) {
    const uint8_t* atom = packed + (row / 16 * g.atoms + column / 64) * core::tile_atom_bytes(g.bits);
    return core::read_tile_code(g.element, g.bits, atom, int(row % 16), int(column % 64));
}

// A thread writes a whole byte, two neighbouring columns, so that no byte has two writers.
__global__ void unpack_nibbles(Geometry g, const uint8_t* packed, uint8_t* codes) {
    const int64_t count = g.rows * g.row_bytes;
    for (int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; index < count; index += int64_t(gridDim.x) * blockDim.x) {
        const int64_t row = quotient(index, g.row_bytes), column = (index - row * g.row_bytes) * 2;
        uint32_t value = tile_code_at(g, packed, row, column) ^ g.flip;
        if (column + 1 < g.columns) value |= (tile_code_at(g, packed, row, column + 1) ^ g.flip) << 4;
        codes[index] = uint8_t(value);
    }
}

// A thread writes a whole block, terms and codes.
__global__ void unpack_blocks(Geometry g, const uint8_t* packed, uint8_t* terms, uint8_t* codes) {
    constexpr int largest_block = core::ggml_block(Element::q6_k).bytes;
    const int64_t count = g.rows * g.groups;
    for (int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; index < count; index += int64_t(gridDim.x) * blockDim.x) {
        const int64_t row = quotient(index, g.groups), which = index - row * g.groups;
        uint8_t block[largest_block] = {};
        for (int i = 0; i < g.block.values; ++i)
            core::ggml_code(g.element, i).write(block, tile_code_at(g, packed, row, which * g.block.values + i));
        core::move_terms<false>(g.element, int(row % 16), block,
                                terms + (row / 16 * g.groups + which) * core::tile_block(g.element).term_bytes());
        uint8_t* to = codes + row * g.row_bytes + which * g.block.bytes;
        for (int i = 0; i < g.block.bytes; ++i) to[i] = block[i];
    }
}

// One thread per block; what stands for rows beyond the matrix is zero already.
__global__ void pack_terms(Geometry g, uint8_t* codes, uint8_t* terms) {
    const int64_t count = g.rows * g.groups;
    for (int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; index < count; index += int64_t(gridDim.x) * blockDim.x) {
        const int64_t row = quotient(index, g.groups), which = index - row * g.groups;
        core::move_terms<true>(g.element, int(row % 16), codes + row * g.row_bytes + which * g.block.bytes,
                               terms + (row / 16 * g.groups + which) * core::tile_block(g.element).term_bytes());
    }
}

// Scales and zero points of nibbles, in either direction: one thread per scale of the packed weight.
template <bool Packing>
__global__ void move_scales(Geometry g, uint8_t* plain, uint8_t* plain_zeros, uint8_t* packed, uint8_t* packed_zeros, float* plain_tensor,
                            float* packed_tensor) {
    if (blockIdx.x == 0 && threadIdx.x == 0 && plain_tensor) Packing ? * packed_tensor = *plain_tensor : * plain_tensor = *packed_tensor;
    const int64_t count = g.tiles * g.groups * 16;
    for (int64_t to = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; to < count; to += int64_t(gridDim.x) * blockDim.x) {
        const int64_t tile = to / 16 / g.groups, group = to / 16 % g.groups;
        const int64_t row = tile * 16 + to % 2 * 8 + to % 16 / 2;
        const bool inside = row < g.rows;
        const int64_t from = row * g.groups + group;
        uint8_t* place = plain + from * g.scale_bytes;
        for (int i = 0; i < g.scale_bytes; ++i) {
            if (Packing) packed[to * g.scale_bytes + i] = inside ? place[i] : uint8_t(0);
            if (!Packing && inside) place[i] = packed[to * g.scale_bytes + i];
        }
        if (!g.asymmetric) continue;
        if (Packing) packed_zeros[to] = inside ? plain_zeros[from] : uint8_t(0);
        if (!Packing && inside) plain_zeros[from] = packed_zeros[to];
    }
}

constexpr int threads = 256;

unsigned blocks_of(int64_t items) { return unsigned(std::clamp<int64_t>(core::ceil_div(items, threads), 1, 65535)); }

template <bool Packing>
void launch_scales(const core::Context& context, const Geometry& g, const core::QuantizedView& plain, const core::QuantizedView& packed) {
    const int64_t count = g.tiles * g.groups * 16;
    if (count == 0 && !plain.tensor_scale) return;
    move_scales<Packing><<<blocks_of(count), threads, 0, stream_of(context)>>>(g, static_cast<uint8_t*>(plain.scales), plain.zero_points,
                                                                               static_cast<uint8_t*>(packed.scales), packed.zero_points,
                                                                               plain.tensor_scale, packed.tensor_scale);
    check_launch("move_scales");
}

void copy_planes(const core::Context& context, const core::QuantizedView& from, const core::QuantizedView& to) {
    const core::PlaneSizes sizes = from.format.measure(from.rows, from.columns);
    copy(context, to.codes, from.codes, sizes.code_bytes);
    copy(context, to.scales, from.scales, sizes.scale_bytes);
    copy(context, to.zero_points, from.zero_points, sizes.zero_point_bytes);
    copy(context, to.tensor_scale, from.tensor_scale, sizes.tensor_scale_bytes);
}

}  // namespace

void pack(const core::Context& context, const core::QuantizedView& plain, core::PackedLayout layout, std::byte* memory) {
    const DeviceScope scope(context.device_index);
    const core::QuantizedView packed = core::packed_planes(plain.format, layout, plain.rows, plain.columns, memory);
    const int64_t bytes = core::packed_bytes(plain.format, layout, plain.rows, plain.columns);
    // The gaps between planes are zeros: equal weights give equal bytes.
    check(cudaMemsetAsync(memory, 0, size_t(bytes), stream_of(context)), "cudaMemsetAsync");
    Geometry g = layout == core::PackedLayout::tiles ? geometry_of(plain) : Geometry{};
    Header header;
    core::write_packed_header(packed, reinterpret_cast<std::byte*>(&header));
    // The header travels as an argument: nothing is read from host memory after this call.
    pack_codes<<<blocks_of(g.tiles * g.atoms * 32), threads, 0, stream_of(context)>>>(
        g, plain.codes, reinterpret_cast<uint32_t*>(packed.codes), header, reinterpret_cast<uint4*>(memory));
    check_launch("pack_codes");
    if (layout == core::PackedLayout::rows) {
        copy_planes(context, plain, packed);
        if (!packed.row_sums) return;
        const auto sum = plain.format.element == Element::int1 ? launch_row_sums<true> : launch_row_sums<false>;
        return sum({packed.codes, packed.rows}, {}, packed.row_bytes(), packed.row_sums, false, stream_of(context));
    }
    if (!g.blocks) return launch_scales<true>(context, g, plain, packed);
    pack_terms<<<blocks_of(g.rows * g.groups), threads, 0, stream_of(context)>>>(g, plain.codes, static_cast<uint8_t*>(packed.scales));
    check_launch("pack_terms");
}

void unpack(const core::Context& context, const core::QuantizedView& packed, const core::QuantizedView& plain) {
    const DeviceScope scope(context.device_index);
    if (packed.layout == core::PackedLayout::rows) return copy_planes(context, packed, plain);
    const Geometry g = geometry_of(plain);
    if (g.blocks) {
        unpack_blocks<<<blocks_of(g.rows * g.groups), threads, 0, stream_of(context)>>>(g, packed.codes,
                                                                                        static_cast<uint8_t*>(packed.scales), plain.codes);
        return check_launch("unpack_blocks");
    }
    unpack_nibbles<<<blocks_of(g.rows * g.row_bytes), threads, 0, stream_of(context)>>>(g, packed.codes, plain.codes);
    check_launch("unpack_nibbles");
    launch_scales<false>(context, g, plain, packed);
}

}  // namespace lowbit::cuda
