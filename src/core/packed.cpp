#include "core/packed.hpp"

#include <cstring>

#include "core/status.hpp"

namespace lowbit::core {
namespace {

constexpr char packed_magic[8] = {'l', 'o', 'w', 'b', 'i', 't', 'P', 'K'};
constexpr uint32_t packed_version = 1;
constexpr int64_t plane_alignment = 64;

struct Header {
    char magic[8];
    uint32_t version;
    uint32_t layout;
    int32_t element, granularity, scale, asymmetric;
    int64_t group_columns, group_rows;
    int64_t rows, columns;
    int64_t bytes;  // of everything, this header included
    uint8_t reserved[128 - 72];
};
static_assert(sizeof(Header) == 128 && sizeof(Header) % plane_alignment == 0);

struct Offsets {
    int64_t codes, scales, zero_points, tensor_scale, end;
};

int64_t align(int64_t offset) { return ceil_div(offset, plane_alignment) * plane_alignment; }

Offsets offsets(const PlaneSizes& sizes) {
    Offsets o{};
    o.codes = sizeof(Header);
    o.scales = align(o.codes + sizes.code_bytes);
    o.zero_points = align(o.scales + sizes.scale_bytes);
    o.tensor_scale = align(o.zero_points + sizes.zero_point_bytes);
    o.end = align(o.tensor_scale + sizes.tensor_scale_bytes);
    return o;
}

}  // namespace

int64_t packed_bytes(const QuantizedView& view) {
    const PlaneSizes sizes = view.format.measure(view.rows, view.columns);
    checked_add(sizes.total(), int64_t(sizeof(Header)) + 4 * plane_alignment, "packed bytes");
    return offsets(sizes).end;
}

void pack_rows(const QuantizedView& view, std::byte* memory) {
    const PlaneSizes sizes = view.format.measure(view.rows, view.columns);
    const Offsets o = offsets(sizes);
    Header header{};
    std::memcpy(header.magic, packed_magic, sizeof(packed_magic));
    header.version = packed_version;
    header.layout = uint32_t(PackedLayout::rows);
    header.element = int32_t(view.format.element);
    header.granularity = int32_t(view.format.granularity);
    header.scale = int32_t(view.format.scale);
    header.asymmetric = view.format.asymmetric;
    header.group_columns = view.format.group_columns;
    header.group_rows = view.format.group_rows;
    header.rows = view.rows;
    header.columns = view.columns;
    header.bytes = o.end;
    std::memcpy(memory, &header, sizeof(header));
    // The gaps between planes are zeros: equal weights give equal bytes.
    const auto plane = [&](int64_t begin, int64_t end, const void* data, int64_t bytes) {
        if (bytes) std::memcpy(memory + begin, data, size_t(bytes));
        std::memset(memory + begin + bytes, 0, size_t(end - begin - bytes));
    };
    plane(o.codes, o.scales, view.codes, sizes.code_bytes);
    plane(o.scales, o.zero_points, view.scales, sizes.scale_bytes);
    plane(o.zero_points, o.tensor_scale, view.zero_points, sizes.zero_point_bytes);
    plane(o.tensor_scale, o.end, view.tensor_scale, sizes.tensor_scale_bytes);
}

QuantizedView open_packed(std::span<const std::byte> bytes) {
    require(bytes.data() != nullptr, "packed: data is a null pointer");
    require(bytes.size() >= sizeof(Header), "packed: ", bytes.size(), " bytes are fewer than the header's ", sizeof(Header));
    require(reinterpret_cast<uintptr_t>(bytes.data()) % plane_alignment == 0, "packed: data stands at ",
            static_cast<const void*>(bytes.data()), ", which is not aligned to ", plane_alignment, " bytes");
    Header header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    require(std::memcmp(header.magic, packed_magic, sizeof(packed_magic)) == 0,
            "packed: these bytes are not a packed weight (no \"lowbitPK\" at the start)");
    require(header.version == packed_version, "packed: version ", header.version, "; this library reads version ", packed_version,
            ": pack the weight again");
    require(header.layout == uint32_t(PackedLayout::rows), "packed: layout ", header.layout,
            " is unknown to this library; pack the weight again");
    QuantizedView view;
    view.format = {Element(header.element), Granularity(header.granularity),
                   Element(header.scale),   header.asymmetric != 0,
                   header.group_columns,    header.group_rows};
    view.format.check();
    view.rows = header.rows;
    view.columns = header.columns;
    const PlaneSizes sizes = view.format.measure(view.rows, view.columns);
    const int64_t expected = packed_bytes(view);
    require(header.bytes == expected && bytes.size() == size_t(expected), "packed: ", bytes.size(), " bytes (the header says ",
            header.bytes, "), but ", view.format.print(), " of ", view.rows, " x ", view.columns, " takes ", expected);
    const Offsets o = offsets(sizes);
    auto* base = reinterpret_cast<uint8_t*>(const_cast<std::byte*>(bytes.data()));  // a view; nobody writes through an operand
    view.codes = base + o.codes;
    view.scales = sizes.scale_bytes ? base + o.scales : nullptr;
    view.zero_points = sizes.zero_point_bytes ? base + o.zero_points : nullptr;
    view.tensor_scale = sizes.tensor_scale_bytes ? reinterpret_cast<float*>(base + o.tensor_scale) : nullptr;
    return view;
}

}  // namespace lowbit::core
