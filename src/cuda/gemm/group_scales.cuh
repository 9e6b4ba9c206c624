// The scale of a row and a group of K, wherever a format keeps it: an address in four numbers, and a type.
#pragma once
#include "core/ggml_blocks.hpp"
#include "core/packed.hpp"
#include "core/status.hpp"
#include "cuda/numbers.cuh"

namespace lowbit::cuda {

struct GroupScales {
    int group = 0;         // values of K that share a scale; 0: there are none, all are 1
    uint32_t inverse = 0;  // 2^32 / group, rounded down
    const uint8_t* data = nullptr;
    const uint8_t* zero_points = nullptr;  // of tiles
    const float* unit_at = nullptr;        // what e4m3 scales count in
    Element element = Element::fp32;
    int bytes = 4;                      // of a scale
    bool unaligned = false;             // a row of blocks need not be aligned to its 16-bit scales
    int rows_per_scale = 1;             // tiles: 16
    int64_t row_step = 0;               // bytes from one row (of tiles, of blocks) of scales to the next
    int group_step = 0, lane_step = 0;  // bytes from group to group, and inside of a tile

    GroupScales() = default;
    explicit GroupScales(const core::QuantizedView& view) {
        const core::BlockSize block = core::ggml_block(view.format.element);
        group = int(block.values ? block.values : view.format.span(view.columns));
        inverse = group > 1 ? uint32_t((uint64_t(1) << 32) / uint64_t(group)) : UINT32_MAX;
        const int groups = int(core::ceil_div(view.columns, group));
        element = block.values ? Element::fp16 : view.format.scale;
        bytes = core::element_bytes(element);
        data = static_cast<const uint8_t*>(view.scales);
        unit_at = view.tensor_scale;
        group_step = bytes;
        row_step = int64_t(groups) * bytes;
        if (view.layout == core::PackedLayout::tiles) {
            rows_per_scale = 16, lane_step = bytes, group_step *= 16, row_step *= 16;
            zero_points = view.zero_points;
        } else if (block.values) {  // the scale stands before the codes of a block
            data = view.codes, group_step = block.bytes, row_step = view.row_bytes(), unaligned = true;
        } else if (view.format.granularity == Granularity::block) {
            rows_per_scale = int(view.format.group_rows);
        } else if (view.format.granularity == Granularity::tensor) {
            row_step = 0;
        }
    }

    // k / group, without a division: the product with the inverse is at most one too small.
    __device__ int group_of(int k) const {
        const int quotient = int(__umulhi(uint32_t(k), inverse));
        return quotient + (k - quotient * group >= group);
    }

    __device__ int64_t offset(int64_t row, int which) const {
        const int64_t first = rows_per_scale == 1 ? row : int64_t(uint32_t(row) / uint32_t(rows_per_scale));
        const int inside = int(row % 8) * 2 + int(row % 16) / 8;  // rows r and r + 8 of a tile side by side
        return first * row_step + int64_t(which) * group_step + inside * lane_step;
    }

    // The bits of a scale as they lie in memory. Kept apart from what they stand for: a load is waited for where its bits are first used,
    // and that should be at the end of the group, not at its beginning.
    __device__ uint32_t bits_at(int64_t row, int which) const {
        const uint8_t* place = data + offset(row, which);
        if (unaligned) return uint32_t(place[0] | place[1] << 8);
        if (bytes == 2) return *reinterpret_cast<const uint16_t*>(place);
        return bytes == 4 ? *reinterpret_cast<const uint32_t*>(place) : *place;
    }
    __device__ float value(uint32_t bits) const {
        if (element == Element::fp16) return half_to_float(uint16_t(bits));
        if (element == Element::bf16) return bfloat_to_float(uint16_t(bits));
        return element == Element::fp32 ? __uint_as_float(bits) : byte_value(bits);
    }
    // Scales of one byte; a call of its own, since few formats have them and every group of every kernel would hold the code.
    __device__ __noinline__ float byte_value(uint32_t bits) const { return byte_value_in_line(bits); }
    __device__ float byte_value_in_line(uint32_t bits) const {
        if (element == Element::e8m0) return __uint_as_float(bits == 0 ? 0x00400000u : bits == 255 ? 0x7fffffffu : bits << 23);
        // e4m3 as fp16: sign and exponent moved into place, the difference of the exponents' biases multiplied in.
        const float number = half_to_float(uint16_t((bits & 0x80) << 8 | (bits & 0x7f) << 7)) * 256.0f;
        return ((bits & 0x7f) == 0x7f ? __uint_as_float(0x7fffffffu) : number) * *unit_at;
    }
    __device__ float at(int64_t row, int which) const { return value(bits_at(row, which)); }

    // Tiles: the scales of rows r and r + 8 in one load, and their zero points in another. `tile` and `lane_row` (r % 8) give the place.
    __device__ int64_t pair_offset(int64_t tile, int lane_row) const { return tile * row_step + lane_row * 2 * bytes; }
    template <int Count>
    __device__ void pairs_at(const int64_t (&offsets)[Count], int which, uint2 (&bits)[Count]) const {
        const uint8_t* place = data + int64_t(which) * group_step;
        if (bytes == 2) {
#pragma unroll
            for (int i = 0; i < Count; ++i) bits[i].x = *reinterpret_cast<const uint32_t*>(place + offsets[i]);
        } else if (bytes == 4) {
#pragma unroll
            for (int i = 0; i < Count; ++i) bits[i] = *reinterpret_cast<const uint2*>(place + offsets[i]);
        } else {
#pragma unroll
            for (int i = 0; i < Count; ++i) bits[i].x = *reinterpret_cast<const uint16_t*>(place + offsets[i]);
        }
    }
    // What they stand for. One branch for all of them, and none inside for the scales of two bytes that nearly all formats have.
    template <int Count>
    __device__ void pair_values(const uint2 (&bits)[Count], float (&values)[Count][2]) const {
        if (bytes == 2) {
#pragma unroll
            for (int i = 0; i < Count; ++i)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const auto narrow = uint16_t(bits[i].x >> (16 * half));
                    values[i][half] = element == Element::fp16 ? half_to_float(narrow) : bfloat_to_float(narrow);
                }
        } else if (bytes == 4) {
#pragma unroll
            for (int i = 0; i < Count; ++i) values[i][0] = __uint_as_float(bits[i].x), values[i][1] = __uint_as_float(bits[i].y);
        } else {
#pragma unroll
            for (int i = 0; i < Count; ++i)
#pragma unroll
                for (int half = 0; half < 2; ++half) values[i][half] = byte_value(bits[i].x >> (8 * half) & 0xffu);
        }
    }
    __device__ uint32_t zero_pair(int64_t offset, int which) const {
        return *reinterpret_cast<const uint16_t*>(zero_points + (offset + int64_t(which) * group_step) / bytes);
    }
};

// What the decoded codes of rows g (half 0) and g + 8 of a tile count in: 1, unless a source says otherwise. Scales are multiplied by it;
// one of 2^126 and more would overflow.
template <class Source>
LOWBIT_HOST_DEVICE constexpr float code_unit(int half) {
    if constexpr (requires { Source::code_unit(0); })
        return Source::code_unit(half);
    else
        return 1.0f;
}

}  // namespace lowbit::cuda
