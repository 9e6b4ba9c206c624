#include "core/packed.hpp"

#include <algorithm>
#include <cstring>

#include "core/ggml_blocks.hpp"
#include "core/status.hpp"

namespace lowbit::core {
namespace {

constexpr char packed_magic[8] = {'l', 'o', 'w', 'b', 'i', 't', 'P', 'K'};
constexpr uint32_t packed_version = 2;
constexpr uintptr_t cpu_alignment = 64;

struct Header {
    char magic[8];
    uint32_t version;
    uint32_t layout;
    int32_t element, granularity, scale, asymmetric;
    int64_t group_columns, group_rows;
    int64_t rows, columns;
    int64_t bytes;  // of everything, this header included
    uint8_t reserved[packed_header_bytes - 72];
};
static_assert(sizeof(Header) == packed_header_bytes);

struct Offsets {
    int64_t codes, scales, zero_points, tensor_scale, end;
};

int64_t align(int64_t offset) { return ceil_div(offset, packed_alignment) * packed_alignment; }

bool is_block_of_nibbles(Element element) { return element == Element::q4_0 || element == Element::iq4_nl; }

PackedSizes plane_sizes(const Format& format, PackedLayout layout, int64_t rows, int64_t columns) {
    const PlaneSizes plain = format.measure(rows, columns);
    if (layout == PackedLayout::rows) return {plain.code_bytes, plain.scale_bytes, plain.zero_point_bytes, plain.tensor_scale_bytes};
    const TileGrid grid(format, rows, columns);
    PackedSizes sizes;
    const int64_t scales = checked_multiply(grid.tiles * TileGrid::rows_per_tile, grid.groups, "packed scales");
    sizes.codes = checked_multiply(checked_multiply(grid.tiles, grid.atoms, "packed codes"), TileGrid::atom_bytes, "packed codes");
    sizes.scales = checked_multiply(scales, element_bytes(tile_scale_element(format)), "packed scales");
    sizes.zero_points = format.asymmetric ? scales : 0;
    sizes.tensor_scale = plain.tensor_scale_bytes;
    return sizes;
}

Offsets offsets(const PackedSizes& sizes) {
    checked_add(checked_add(sizes.codes, sizes.scales, "packed bytes"), sizes.zero_points + 8 * packed_alignment, "packed bytes");
    Offsets o{};
    o.codes = align(packed_header_bytes);
    o.scales = align(o.codes + sizes.codes);
    o.zero_points = align(o.scales + sizes.scales);
    o.tensor_scale = align(o.zero_points + sizes.zero_points);
    o.end = align(o.tensor_scale + sizes.tensor_scale);
    return o;
}

// Where the code of (row, column) stands: its byte, and whether it is the upper half.
struct NibblePlace {
    int64_t byte;
    bool upper;
};

NibblePlace tile_nibble(const TileGrid& grid, int64_t row, int64_t column) {
    const int64_t atom = row / 16 * grid.atoms + column / 64;
    const int r = int(row % 16), c = int(column % 16), step = int(column % 64 / 16);
    const int lane = r % 8 * 4 + c % 8 / 2;
    const int nibble = r / 8 + 2 * (c / 8) + 4 * (c % 2);
    return {atom * TileGrid::atom_bytes + lane * 16 + step * 4 + nibble / 2, nibble % 2 != 0};
}

int64_t tile_scale(const TileGrid& grid, int64_t row, int64_t group) {
    return (row / 16 * grid.groups + group) * 16 + row % 8 * 2 + row % 16 / 8;
}

// Code i of a plain row: a nibble of a row of nibbles, or of a block whose low nibbles are its first half.
struct PlainNibble {
    int64_t byte;
    bool upper;
};

PlainNibble plain_nibble(const Format& format, int64_t column) {
    if (!is_block_of_nibbles(format.element)) return {column / 2, column % 2 != 0};
    const BlockSize block = ggml_block(format.element);
    const int64_t inside = column % block.values;
    return {column / block.values * block.bytes + 2 + inside % 16, inside >= 16};
}

unsigned read_nibble(const uint8_t* bytes, int64_t byte, bool upper) { return upper ? bytes[byte] >> 4 : bytes[byte] & 15; }
void write_nibble(uint8_t* bytes, int64_t byte, bool upper, unsigned code) {
    bytes[byte] = uint8_t(upper ? (bytes[byte] & 0x0f) | code << 4 : (bytes[byte] & 0xf0) | code);
}

// Goes over every scale of a weight: body(plain scale pointer, packed scale pointer, index in plain, index in packed).
template <class Body>
void for_each_scale(const QuantizedView& plain, const QuantizedView& packed, const Body& body) {
    const TileGrid grid(plain.format, plain.rows, plain.columns);
    const int bytes = element_bytes(tile_scale_element(plain.format));
    const bool inside = is_block_of_nibbles(plain.format.element);
    for (int64_t row = 0; row < plain.rows; ++row)
        for (int64_t group = 0; group < grid.groups; ++group) {
            const int64_t from = plain.format.is_ggml() ? 0 : plain.format.scale_index(row, group * grid.group, plain.columns);
            uint8_t* scale = inside ? plain.row_codes(row) + group * ggml_block(plain.format.element).bytes
                                    : static_cast<uint8_t*>(plain.scales) + from * bytes;
            const int64_t to = tile_scale(grid, row, group);
            body(scale, static_cast<uint8_t*>(packed.scales) + to * bytes, from, to, size_t(bytes));
        }
}

void pack_tiles(const QuantizedView& plain, const QuantizedView& packed) {
    const TileGrid grid(plain.format, plain.rows, plain.columns);
    const PackedSizes sizes = plane_sizes(plain.format, PackedLayout::tiles, plain.rows, plain.columns);
    const unsigned zero = code_of_zero(plain.format.element), offset = plain.format.element == Element::int4 ? 8 : 0;
    if (sizes.codes) std::memset(packed.codes, int(zero * 0x11), size_t(sizes.codes));
    if (sizes.scales) std::memset(packed.scales, 0, size_t(sizes.scales));
    if (sizes.zero_points) std::memset(packed.zero_points, 0, size_t(sizes.zero_points));
    for (int64_t row = 0; row < plain.rows; ++row)
        for (int64_t column = 0; column < plain.columns; ++column) {
            const PlainNibble from = plain_nibble(plain.format, column);
            const NibblePlace to = tile_nibble(grid, row, column);
            write_nibble(packed.codes, to.byte, to.upper, read_nibble(plain.row_codes(row), from.byte, from.upper) ^ offset);
        }
    for_each_scale(plain, packed, [&](const uint8_t* from, uint8_t* to, int64_t i, int64_t j, size_t bytes) {
        std::memcpy(to, from, bytes);
        if (packed.zero_points) packed.zero_points[j] = plain.zero_points[i];
    });
    if (sizes.tensor_scale) *packed.tensor_scale = *plain.tensor_scale;
}

void unpack_tiles(const QuantizedView& packed, const QuantizedView& plain) {
    const TileGrid grid(plain.format, plain.rows, plain.columns);
    const unsigned offset = plain.format.element == Element::int4 ? 8 : 0;
    if (const int64_t bytes = plain.rows * plain.row_bytes()) std::memset(plain.codes, 0, size_t(bytes));
    for (int64_t row = 0; row < plain.rows; ++row)
        for (int64_t column = 0; column < plain.columns; ++column) {
            const NibblePlace from = tile_nibble(grid, row, column);
            const PlainNibble to = plain_nibble(plain.format, column);
            write_nibble(plain.row_codes(row), to.byte, to.upper, read_nibble(packed.codes, from.byte, from.upper) ^ offset);
        }
    for_each_scale(plain, packed, [&](uint8_t* to, const uint8_t* from, int64_t i, int64_t j, size_t bytes) {
        std::memcpy(to, from, bytes);
        if (packed.zero_points) plain.zero_points[i] = packed.zero_points[j];
    });
    if (plain.tensor_scale) *plain.tensor_scale = *packed.tensor_scale;
}

void copy_planes(const QuantizedView& from, const QuantizedView& to) {
    const PlaneSizes sizes = from.format.measure(from.rows, from.columns);
    const auto plane = [](void* destination, const void* source, int64_t bytes) {
        if (bytes) std::memcpy(destination, source, size_t(bytes));
    };
    plane(to.codes, from.codes, sizes.code_bytes);
    plane(to.scales, from.scales, sizes.scale_bytes);
    plane(to.zero_points, from.zero_points, sizes.zero_point_bytes);
    plane(to.tensor_scale, from.tensor_scale, sizes.tensor_scale_bytes);
}

}  // namespace

unsigned code_of_zero(Element element) {
    switch (element) {
    case Element::int4:
    case Element::q4_0: return 8;
    case Element::nf4:
    case Element::iq4_nl: return 7;
    default: return 0;
    }
}

TileGrid::TileGrid(const Format& format, int64_t rows, int64_t columns) {
    tiles = ceil_div(rows, rows_per_tile);
    atoms = ceil_div(columns, columns_per_atom);
    group = format.is_ggml() ? ggml_block(format.element).values : format.span(columns);
    // A row that has no columns still has its scale; groups of columns have none then.
    groups = format.granularity == Granularity::row ? 1 : ceil_div(columns, std::max<int64_t>(group, 1));
}

PackedLayout packed_layout(const Format& format, Device device) {
    if (device == Device::cpu) return PackedLayout::rows;
    if (is_block_of_nibbles(format.element)) return PackedLayout::tiles;
    if (format.is_ggml() || format.is_plain() || element_bits(format.element) != 4) return PackedLayout::rows;
    const bool whole_steps = format.granularity == Granularity::group && format.group_columns % 16 == 0;
    return format.granularity == Granularity::row || whole_steps ? PackedLayout::tiles : PackedLayout::rows;
}

Element tile_scale_element(const Format& format) { return format.is_ggml() ? Element::fp16 : format.scale; }

int64_t packed_bytes(const Format& format, PackedLayout layout, int64_t rows, int64_t columns) {
    return offsets(plane_sizes(format, layout, rows, columns)).end;
}

void write_packed_header(const QuantizedView& view, std::byte* memory) {
    Header header{};
    std::memcpy(header.magic, packed_magic, sizeof(packed_magic));
    header.version = packed_version;
    header.layout = uint32_t(view.layout);
    header.element = int32_t(view.format.element);
    header.granularity = int32_t(view.format.granularity);
    header.scale = int32_t(view.format.scale);
    header.asymmetric = view.format.asymmetric;
    header.group_columns = view.format.group_columns;
    header.group_rows = view.format.group_rows;
    header.rows = view.rows;
    header.columns = view.columns;
    header.bytes = packed_bytes(view.format, view.layout, view.rows, view.columns);
    std::memcpy(memory, &header, sizeof(header));
}

QuantizedView packed_planes(const Format& format, PackedLayout layout, int64_t rows, int64_t columns, std::byte* memory) {
    const PackedSizes sizes = plane_sizes(format, layout, rows, columns);
    const Offsets o = offsets(sizes);
    auto* base = reinterpret_cast<uint8_t*>(memory);
    QuantizedView view;
    view.format = format;
    view.layout = layout;
    view.rows = rows;
    view.columns = columns;
    view.codes = base + o.codes;
    view.scales = sizes.scales ? base + o.scales : nullptr;
    view.zero_points = sizes.zero_points ? base + o.zero_points : nullptr;
    view.tensor_scale = sizes.tensor_scale ? reinterpret_cast<float*>(base + o.tensor_scale) : nullptr;
    return view;
}

void pack_planes(const QuantizedView& plain, const QuantizedView& packed) {
    packed.layout == PackedLayout::tiles ? pack_tiles(plain, packed) : copy_planes(plain, packed);
}

void unpack_planes(const QuantizedView& packed, const QuantizedView& plain) {
    packed.layout == PackedLayout::tiles ? unpack_tiles(packed, plain) : copy_planes(packed, plain);
}

QuantizedView open_packed(std::span<const std::byte> bytes) {
    require(bytes.data() != nullptr, "packed: data is a null pointer");
    require(bytes.size() >= sizeof(Header), "packed: ", bytes.size(), " bytes are fewer than the header's ", sizeof(Header));
    require(reinterpret_cast<uintptr_t>(bytes.data()) % cpu_alignment == 0, "packed: data stands at ",
            static_cast<const void*>(bytes.data()), ", which is not aligned to ", cpu_alignment, " bytes");
    Header header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    require(std::memcmp(header.magic, packed_magic, sizeof(packed_magic)) == 0,
            "packed: these bytes are not a packed weight (no \"lowbitPK\" at the start)");
    require(header.version == packed_version, "packed: version ", header.version, "; this library reads version ", packed_version,
            ": pack the weight again");
    const auto layout = PackedLayout(header.layout);
    const Format format = {Element(header.element), Granularity(header.granularity),
                           Element(header.scale),   header.asymmetric != 0,
                           header.group_columns,    header.group_rows};
    format.check();
    require(layout == PackedLayout::rows || layout == packed_layout(format, Device::cuda), "packed: layout ", header.layout,
            " is unknown to this library; pack the weight again");
    const int64_t expected = packed_bytes(format, layout, header.rows, header.columns);
    require(header.bytes == expected && bytes.size() == size_t(expected), "packed: ", bytes.size(), " bytes (the header says ",
            header.bytes, "), but ", format.print(), " of ", header.rows, " x ", header.columns, " takes ", expected);
    auto* base = const_cast<std::byte*>(bytes.data());  // a view; nobody writes through an operand
    return packed_planes(format, layout, header.rows, header.columns, base);
}

}  // namespace lowbit::core
