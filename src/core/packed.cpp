#include "core/packed.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/status.hpp"

namespace lowbit::core {
namespace {

constexpr char packed_magic[8] = {'l', 'o', 'w', 'b', 'i', 't', 'P', 'K'};
constexpr uint32_t packed_version = 4;
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
    int64_t codes, scales, zero_points, tensor_scale, row_sums, end;
};

int64_t align(int64_t offset) { return ceil_div(offset, packed_alignment) * packed_alignment; }

PackedSizes plane_sizes(const Format& format, PackedLayout layout, int64_t rows, int64_t columns) {
    const PlaneSizes plain = format.measure(rows, columns);
    if (layout == PackedLayout::rows) {
        const bool summed = format.element == Element::int8 || format.element == Element::int1;
        return {plain.code_bytes, plain.scale_bytes, plain.zero_point_bytes, plain.tensor_scale_bytes, summed ? rows * 4 : 0};
    }
    const TileGrid grid(format, rows, columns);
    PackedSizes sizes;
    const int64_t groups = checked_multiply(grid.tiles, grid.groups, "packed scales"), scales = TileGrid::rows_per_tile * groups;
    sizes.codes = checked_multiply(checked_multiply(grid.tiles, grid.atoms, "packed codes"), tile_atom_bytes(grid.bits), "packed codes");
    const int group_bytes = format.is_ggml() ? tile_block(format.element).term_bytes() : 16 * element_bytes(format.scale);
    sizes.scales = checked_multiply(groups, group_bytes, "packed scales");
    sizes.zero_points = format.asymmetric ? scales : 0;
    sizes.tensor_scale = plain.tensor_scale_bytes;
    return sizes;
}

Offsets offsets(const PackedSizes& sizes) {
    checked_add(checked_add(sizes.codes, sizes.scales, "packed bytes"), sizes.zero_points + sizes.row_sums + 8 * packed_alignment,
                "packed bytes");
    Offsets o{};
    o.codes = align(packed_header_bytes);
    o.scales = align(o.codes + sizes.codes);
    o.zero_points = align(o.scales + sizes.scales);
    o.tensor_scale = align(o.zero_points + sizes.zero_points);
    o.row_sums = align(o.tensor_scale + sizes.tensor_scale);
    o.end = align(o.row_sums + sizes.row_sums);
    return o;
}

// The code of a column in its plain row.
BlockField plain_code(const Format& format, int64_t column) {
    if (!format.is_ggml()) return {{column / 2, int(column % 2) * 4, 4}};
    const BlockSize size = ggml_block(format.element);
    BlockField field = ggml_code(format.element, int(column % size.values));
    field.low.byte += column / size.values * size.bytes;
    field.high.byte += column / size.values * size.bytes;
    return field;
}

// Tiles hold signed nibbles plus 8.
unsigned sign_flip(const Format& format) { return format.element == Element::int4 ? 8 : 0; }

uint8_t* atom_of(const TileGrid& grid, const QuantizedView& packed, int64_t row, int64_t column) {
    return packed.codes + (row / 16 * grid.atoms + column / 64) * tile_atom_bytes(grid.bits);
}

int64_t tile_scale(const TileGrid& grid, int64_t row, int64_t group) {
    return (row / 16 * grid.groups + group) * 16 + row % 8 * 2 + row % 16 / 8;
}

// The terms of every block of a weight, either way.
template <bool Packing>
void move_blocks(const QuantizedView& plain, const QuantizedView& packed) {
    const TileGrid grid(plain.format, plain.rows, plain.columns);
    const Element element = plain.format.element;
    const int term_bytes = tile_block(element).term_bytes(), block_bytes = ggml_block(element).bytes;
    for (int64_t row = 0; row < plain.rows; ++row)
        for (int64_t block = 0; block < grid.groups; ++block)
            move_terms<Packing>(element, int(row % 16), plain.row_codes(row) + block * block_bytes,
                                static_cast<uint8_t*>(packed.scales) + (row / 16 * grid.groups + block) * term_bytes);
}

// The scales and zero points of every group, either way.
template <bool Packing>
void move_scales(const QuantizedView& plain, const QuantizedView& packed) {
    const TileGrid grid(plain.format, plain.rows, plain.columns);
    const auto bytes = element_bytes(plain.format.scale);
    for (int64_t row = 0; row < plain.rows; ++row)
        for (int64_t group = 0; group < grid.groups; ++group) {
            const int64_t i = plain.format.scale_index(row, group * grid.group, plain.columns), j = tile_scale(grid, row, group);
            uint8_t *in_rows = static_cast<uint8_t*>(plain.scales) + i * bytes,
                    *in_tiles = static_cast<uint8_t*>(packed.scales) + j * bytes;
            std::memcpy(Packing ? in_tiles : in_rows, Packing ? in_rows : in_tiles, size_t(bytes));
            if (!packed.zero_points) continue;
            if (Packing)
                packed.zero_points[j] = plain.zero_points[i];
            else
                plain.zero_points[i] = packed.zero_points[j];
        }
}

void pack_tiles(const QuantizedView& plain, const QuantizedView& packed) {
    const TileGrid grid(plain.format, plain.rows, plain.columns);
    const PackedSizes sizes = plane_sizes(plain.format, PackedLayout::tiles, plain.rows, plain.columns);
    if (sizes.codes) std::memset(packed.codes, 0, size_t(sizes.codes));
    if (sizes.scales) std::memset(packed.scales, 0, size_t(sizes.scales));
    if (sizes.zero_points) std::memset(packed.zero_points, 0, size_t(sizes.zero_points));
    for (int64_t row = 0; row < grid.tiles * 16; ++row)
        for (int64_t column = 0; column < grid.atoms * 64; ++column) {
            const bool inside = row < plain.rows && column < plain.columns;
            const unsigned code = inside ? plain_code(plain.format, column).read(plain.row_codes(row)) ^ sign_flip(plain.format)
                                         : code_of_zero(plain.format.element);
            tile_code(grid.bits, int(row % 16), int(column % 64)).write(atom_of(grid, packed, row, column), code);
        }
    if (has_own_order(plain.format.element))
        for (int64_t at = 0; at < sizes.codes; at += 4) {
            uint32_t word;
            std::memcpy(&word, packed.codes + at, 4);
            word = arrange_word(plain.format.element, word);
            std::memcpy(packed.codes + at, &word, 4);
        }
    plain.format.is_ggml() ? move_blocks<true>(plain, packed) : move_scales<true>(plain, packed);
    if (sizes.tensor_scale) *packed.tensor_scale = *plain.tensor_scale;
}

void unpack_tiles(const QuantizedView& packed, const QuantizedView& plain) {
    const TileGrid grid(plain.format, plain.rows, plain.columns);
    if (const int64_t bytes = plain.rows * plain.row_bytes()) std::memset(plain.codes, 0, size_t(bytes));
    for (int64_t row = 0; row < plain.rows; ++row)
        for (int64_t column = 0; column < plain.columns; ++column) {
            const uint8_t* atom = atom_of(grid, packed, row, column);
            const unsigned code = read_tile_code(plain.format.element, grid.bits, atom, int(row % 16), int(column % 64));
            plain_code(plain.format, column).write(plain.row_codes(row), code ^ sign_flip(plain.format));
        }
    plain.format.is_ggml() ? move_blocks<false>(plain, packed) : move_scales<false>(plain, packed);
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

void sum_rows(const QuantizedView& packed) {
    const int64_t bytes = packed.row_bytes();
    for (int64_t row = 0; row < packed.rows; ++row) {
        const uint8_t* codes = packed.row_codes(row);
        int32_t sum = 0;
        for (int64_t i = 0; i < bytes; ++i) sum += packed.format.element == Element::int1 ? std::popcount(codes[i]) : int8_t(codes[i]);
        packed.row_sums[row] = sum;
    }
}

}  // namespace

unsigned code_of_zero(Element element) {
    if (element == Element::int4) return 8;
    return element == Element::nf4 ? 7 : unsigned(tile_block(element).zero);
}

TileGrid::TileGrid(const Format& format, int64_t rows, int64_t columns) {
    if (format.is_ggml()) bits = tile_block(format.element).bits;
    tiles = ceil_div(rows, rows_per_tile);
    atoms = ceil_div(columns, columns_per_atom);
    group = format.is_ggml() ? ggml_block(format.element).values : format.span(columns);
    // A row that has no columns still has its scale; groups of columns have none then.
    groups = format.granularity == Granularity::row ? 1 : ceil_div(columns, std::max<int64_t>(group, 1));
}

PackedLayout packed_layout(const Format& format, Device device) {
    if (device == Device::cpu) return PackedLayout::rows;
    if (format.is_ggml()) return tile_block(format.element).bits ? PackedLayout::tiles : PackedLayout::rows;
    if (format.is_plain() || element_bits(format.element) != 4) return PackedLayout::rows;
    const bool whole_steps = format.granularity == Granularity::group && format.group_columns % 16 == 0;
    return format.granularity == Granularity::row || whole_steps ? PackedLayout::tiles : PackedLayout::rows;
}

bool has_nibble_tiles(const Format& format) {
    return !format.is_ggml() || format.element == Element::q4_0 || format.element == Element::iq4_nl;
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
    view.row_sums = sizes.row_sums ? reinterpret_cast<int32_t*>(base + o.row_sums) : nullptr;
    return view;
}

void pack_planes(const QuantizedView& plain, const QuantizedView& packed) {
    packed.layout == PackedLayout::tiles ? pack_tiles(plain, packed) : copy_planes(plain, packed);
    if (packed.row_sums) sum_rows(packed);
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
