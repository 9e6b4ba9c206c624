// A weight into the `tiles` layout of core/packed.hpp, and back.
#include "core/ggml_blocks.hpp"
#include "core/packed.hpp"
#include "cuda/launch.cuh"
#include "cuda/memory.hpp"

namespace lowbit::cuda {
namespace {

// What the kernels need to know of both layouts, in plain numbers.
struct Geometry {
    int64_t rows, columns, row_bytes;
    int64_t tiles, atoms, group, groups;
    int block_values, block_bytes;  // GGML: 32 values in 18 bytes, the scale first; 0: rows of nibbles
    int scale_bytes;
    bool asymmetric;
    uint32_t offset, zero;  // both spread over eight nibbles
};

struct Header {
    uint4 words[core::packed_header_bytes / 16];
};

Geometry geometry_of(const core::QuantizedView& plain) {
    const core::TileGrid grid(plain.format, plain.rows, plain.columns);
    const core::BlockSize block = core::ggml_block(plain.format.element);
    Geometry g{};
    g.rows = plain.rows, g.columns = plain.columns, g.row_bytes = plain.row_bytes();
    g.tiles = grid.tiles, g.atoms = grid.atoms, g.group = grid.group, g.groups = grid.groups;
    g.block_values = block.values, g.block_bytes = block.bytes;
    g.scale_bytes = core::element_bytes(core::tile_scale_element(plain.format));
    g.asymmetric = plain.format.asymmetric;
    g.offset = plain.format.element == Element::int4 ? 0x88888888u : 0;
    g.zero = core::code_of_zero(plain.format.element) * 0x11111111u;
    return g;
}

// Where the code of a column stands in a plain row.
__device__ int64_t plain_byte(const Geometry& g, int64_t column, bool& upper) {
    if (g.block_values == 0) {
        upper = column % 2 != 0;
        return column / 2;
    }
    const int inside = int(column % g.block_values);
    upper = inside >= 16;
    return column / g.block_values * g.block_bytes + 2 + inside % 16;
}

// The (row, column) of nibble i of word `step` of lane `lane` in an atom.
__device__ void place_of(int lane, int step, int i, int& row, int& column) {
    const int j = i % 4;
    row = lane / 4 + 8 * (j % 2);
    column = 16 * step + 2 * (lane % 4) + 8 * (j / 2) + i / 4;
}

// A warp packs an atom: every lane makes its own 16 bytes.
__global__ void pack_codes(Geometry g, const uint8_t* codes, uint4* packed, Header header, uint4* header_place) {
    if (blockIdx.x == 0 && threadIdx.x < sizeof(Header) / 16) header_place[threadIdx.x] = header.words[threadIdx.x];
    const int lane = threadIdx.x % 32;
    const int64_t warps = int64_t(gridDim.x) * (blockDim.x / 32);
    for (int64_t atom = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32; atom < g.tiles * g.atoms; atom += warps) {
        const int64_t first_row = atom / g.atoms * 16, first_column = atom % g.atoms * 64;
        uint32_t words[4];
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            uint32_t word = 0;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                int row, column;
                place_of(lane, step, i, row, column);
                uint32_t code = (g.zero ^ g.offset) & 15;
                if (first_row + row < g.rows && first_column + column < g.columns) {
                    bool upper;
                    const uint8_t byte = codes[(first_row + row) * g.row_bytes + plain_byte(g, first_column + column, upper)];
                    code = upper ? byte >> 4 : byte & 15;
                }
                word |= code << (4 * i);
            }
            words[step] = word ^ g.offset;
        }
        packed[atom * 32 + lane] = make_uint4(words[0], words[1], words[2], words[3]);
    }
}

// A thread writes a whole byte (two neighbouring columns, or the two halves of a block), so that no byte has two writers.
__global__ void unpack_codes(Geometry g, const uint8_t* packed, uint8_t* codes) {
    const int64_t count = g.rows * g.row_bytes;
    for (int64_t index = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; index < count; index += int64_t(gridDim.x) * blockDim.x) {
        const int64_t row = index / g.row_bytes, byte = index % g.row_bytes;
        int64_t column[2] = {2 * byte, 2 * byte + 1};
        if (g.block_values) {
            const int inside = int(byte % g.block_bytes) - 2;
            if (inside < 0) continue;  // the scale
            column[0] = byte / g.block_bytes * g.block_values + inside;
            column[1] = column[0] + 16;
        }
        uint32_t value = 0;
        for (int half = 0; half < 2; ++half) {
            if (column[half] >= g.columns) continue;
            const int r = int(row % 16), c = int(column[half] % 16), step = int(column[half] % 64 / 16);
            const int lane = r % 8 * 4 + c % 8 / 2, nibble = r / 8 + 2 * (c / 8) + 4 * (c % 2);
            const int64_t atom = row / 16 * g.atoms + column[half] / 64;
            const uint32_t word = reinterpret_cast<const uint32_t*>(packed)[atom * 128 + lane * 4 + step] ^ g.offset;
            value |= (word >> (4 * nibble) & 15) << (4 * half);
        }
        codes[index] = uint8_t(value);
    }
}

// Scales and zero points, in either direction: one thread per scale of the packed weight.
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
        uint8_t* place = g.block_values ? plain + row * g.row_bytes + group * g.block_bytes : plain + from * g.scale_bytes;
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

template <bool Packing>
void launch_scales(const core::Context& context, const Geometry& g, const core::QuantizedView& plain, const core::QuantizedView& packed) {
    const int64_t count = g.tiles * g.groups * 16;
    if (count == 0 && !plain.tensor_scale) return;
    auto* place = g.block_values ? plain.codes : static_cast<uint8_t*>(plain.scales);
    move_scales<Packing><<<unsigned(std::clamp<int64_t>(core::ceil_div(count, threads), 1, 65535)), threads, 0, stream_of(context)>>>(
        g, place, plain.zero_points, static_cast<uint8_t*>(packed.scales), packed.zero_points, plain.tensor_scale, packed.tensor_scale);
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
    pack_codes<<<unsigned(std::clamp<int64_t>(core::ceil_div(g.tiles * g.atoms, threads / 32), 1, 65535)), threads, 0,
                 stream_of(context)>>>(g, plain.codes, reinterpret_cast<uint4*>(packed.codes), header, reinterpret_cast<uint4*>(memory));
    check_launch("pack_codes");
    if (layout == core::PackedLayout::rows) return copy_planes(context, plain, packed);
    launch_scales<true>(context, g, plain, packed);
}

void unpack(const core::Context& context, const core::QuantizedView& packed, const core::QuantizedView& plain) {
    const DeviceScope scope(context.device_index);
    if (packed.layout == core::PackedLayout::rows) return copy_planes(context, packed, plain);
    const Geometry g = geometry_of(plain);
    if (const int64_t bytes = g.rows * g.row_bytes) {
        unpack_codes<<<unsigned(std::min<int64_t>(core::ceil_div(bytes, threads), 65535)), threads, 0, stream_of(context)>>>(
            g, packed.codes, plain.codes);
        check_launch("unpack_codes");
    }
    launch_scales<false>(context, g, plain, packed);
}

}  // namespace lowbit::cuda
