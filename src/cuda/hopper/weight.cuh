// The 64-row operand: the weight's rows. Either they lie in shared memory as the tensor core takes them, or they are decoded into
// registers. The main loop sees the same names in both:
//     stage_bytes                of the weight in a k block
//     copy                       brings a k block of the tile (one thread)
//     Fragment, load, keep       what a warpgroup holds of it; `keep`: the registers belong to the tensor core up to here
//     multiply                   one step, all of a warpgroup's blocks of 64 rows
#pragma once
#include "cuda/formats/bytes.cuh"
#include "cuda/hopper/config.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace lowbit::cuda {

// Weights in registers.
template <class Kind, int Blocks>
struct RegisterFragments {
    struct Fragment {
        uint32_t a[Blocks][ptx::wgmma_steps_per_row][4];
    };
    __device__ static void keep(Fragment& fragment) {
#pragma unroll
        for (int i = 0; i < Blocks * ptx::wgmma_steps_per_row * 4; ++i) ptx::own(fragment.a[i / 16][i / 4 % 4][i % 4]);
    }
    template <int Tokens>
    __device__ static void multiply(typename Kind::Accumulator (&sums)[Blocks][Tokens / 2], const Fragment& fragment, int step,
                                    uint64_t tokens, bool accumulate) {
#pragma unroll
        for (int block = 0; block < Blocks; ++block)
            ptx::Wgmma<Kind, Tokens>::registers(sums[block], fragment.a[block][step], tokens, accumulate);
    }
};

// Plain rows of what the tensor core multiplies. Rows: of the tile; Blocks: of 64 rows, of a warpgroup.
template <class Kind_>
struct PlainRows {
    using Kind = Kind_;
    template <int Rows, int Blocks>
    struct Tile {
        static constexpr int stage_bytes = Rows * ptx::wgmma_row_bytes;
        struct Fragment {
            uint64_t tile;
        };
        __device__ static void copy(uint8_t* stage, const HopperArgs& args, int row, int k_block, ptx::Barrier* full) {
            ptx::copy_box(stage, args.weight, k_block * (ptx::wgmma_row_bytes / Kind::bytes), row, full);
        }
        __device__ static uint32_t copied_bytes(const HopperArgs&) { return stage_bytes; }
        __device__ static void load(Fragment& fragment, const uint8_t* stage, int first_block, const HopperArgs&) {
            fragment.tile = ptx::wgmma_tile(stage + first_block * 64 * ptx::wgmma_row_bytes);
        }
        __device__ static void keep(Fragment&) {}
        template <int Tokens>
        __device__ static void multiply(typename Kind::Accumulator (&sums)[Blocks][Tokens / 2], const Fragment& fragment, int step,
                                        uint64_t tokens, bool accumulate) {
#pragma unroll
            for (int block = 0; block < Blocks; ++block)
                ptx::Wgmma<Kind, Tokens>::shared(sums[block],
                                                 fragment.tile + (block * 64 * ptx::wgmma_row_bytes + step * ptx::wgmma_step_bytes) / 16,
                                                 tokens, accumulate);
        }
    };
};

// Plain rows of 8 bits that become numbers of 16 in registers, exactly; their scales are the epilogue's. A k block is 64 bytes of a row.
template <class Kind_, class Mma, Element E>
struct WidenedRows {
    using Kind = Kind_;
    template <int Rows, int Blocks>
    struct Tile : RegisterFragments<Kind, Blocks> {
        static constexpr int row_bytes = 64, stage_bytes = Rows * row_bytes;
        __device__ static void copy(uint8_t* stage, const HopperArgs& args, int row, int k_block, ptx::Barrier* full) {
            ptx::copy_box(stage, args.weight, k_block * row_bytes, row, full);
        }
        __device__ static uint32_t copied_bytes(const HopperArgs&) { return stage_bytes; }
        __device__ static void load(typename Tile::Fragment& fragment, const uint8_t* stage, int first_block, const HopperArgs&) {
            const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, g = lane / 4, t = lane % 4;
            const uint32_t base = ptx::shared_address(stage) + uint32_t((first_block * 64 + warp * 16 + g) * row_bytes + 2 * t);
#pragma unroll
            for (int i = 0; i < Blocks * ptx::wgmma_steps_per_row * 2; ++i) {
                const int block = i / (2 * ptx::wgmma_steps_per_row), step = i / 2 % ptx::wgmma_steps_per_row, half = i % 2;
                // The copy engine's swizzle of rows of 64 bytes.
                const uint32_t place = base + uint32_t((block * 64 + half * 8) * row_bytes + (step ^ g / 2 % 4) * 16);
                uint32_t pairs[2];
                widen_bytes<Mma, E>(ptx::load_2(place) | ptx::load_2(place + 8) << 16, pairs);
                fragment.a[block][step][half] = pairs[0], fragment.a[block][step][2 + half] = pairs[1];
            }
        }
    };
};

// Codes in the `tiles` layout, decoded and multiplied by their scales: one rounding of the scale to 16 bits and one of the product.
// PerStep: groups are shorter than a k block of 64 values.
template <class Kind_, class Decoder, bool PerStep>
struct ScaledTiles {
    using Kind = Kind_;
    template <int Rows, int Blocks>
    struct Tile : RegisterFragments<Kind, Blocks> {
        static constexpr int tiles = Rows / 16, atom_bytes = core::tile_atom_bytes(4);
        static constexpr int scales_at = tiles * atom_bytes, most_groups = PerStep ? 4 : 1;
        static constexpr int zeros_at = scales_at + tiles * most_groups * 16 * 4;
        static constexpr int stage_bytes = (zeros_at + (Decoder::zero_points ? tiles * most_groups * 16 : 0) + 127) / 128 * 128;
        __device__ static void copy(uint8_t* stage, const HopperArgs& args, int row, int k_block, ptx::Barrier* full) {
            ptx::copy_box(stage, args.weight, 0, k_block, row / 16, full);
            const int group = PerStep ? k_block * args.groups : k_block / args.blocks_per_group;
            ptx::copy_box(stage + scales_at, args.scales, 0, group, row / 16, full);
            if (Decoder::zero_points && args.zero_bytes) ptx::copy_box(stage + zeros_at, args.zero_points, 0, group, row / 16, full);
        }
        __device__ static uint32_t copied_bytes(const HopperArgs& args) {
            return uint32_t(tiles * atom_bytes + args.scale_bytes + args.zero_bytes);
        }
        __device__ static void load(typename Tile::Fragment& fragment, const uint8_t* stage, int first_block, const HopperArgs& args) {
            const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
            const uint32_t base = ptx::shared_address(stage);
#pragma unroll
            for (int block = 0; block < Blocks; ++block) {
                const int tile = (first_block + block) * 4 + warp;
                const uint4 codes = ptx::load_16(base + uint32_t(tile * atom_bytes + lane * 16));
                const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
                typename Decoder::Group group;
                if constexpr (!PerStep) open(group, base, tile, lane, args);
#pragma unroll
                for (int step = 0; step < ptx::wgmma_steps_per_row; ++step) {
                    if constexpr (PerStep) open(group, base, tile * args.groups + step * args.groups / 4, lane, args);
                    Decoder::decode(fragment.a[block][step], words[step], group);
                }
            }
        }

    private:
        // The scales (and zero points) of rows g and g + 8; `which` counts groups of tiles.
        __device__ static void open(typename Decoder::Group& group, uint32_t base, int which, int lane, const HopperArgs& args) {
            const uint32_t place = uint32_t(which * 16 + lane / 4 * 2);
            group.set_scales(args.group_scales, base + scales_at, place);
            if constexpr (Decoder::zero_points) group.set_zeros(args.zero_bytes ? ptx::load_2(base + zeros_at + place) : 0x0808u);
        }
    };
};

// Two scales as pairs of 16-bit numbers.
template <class Mma>
struct ScalePairs {
    uint32_t scale[2];

    __device__ void set_scales(const GroupScales& scales, uint32_t base, uint32_t place) {
        constexpr Element own_type = std::is_same_v<Mma, ptx::MmaBf16> ? Element::bf16 : Element::fp16;
        if (scales.element == own_type) {
            const uint32_t both = ptx::load_4(base + place * 2);
            scale[0] = __byte_perm(both, 0, 0x1010), scale[1] = __byte_perm(both, 0, 0x3232);
            return;
        }
        uint2 bits = make_uint2(0, 0);
        if (scales.bytes == 4)
            bits = ptx::load_8(base + place * 4);
        else
            bits.x = scales.bytes == 2 ? ptx::load_4(base + place * 2) : ptx::load_2(base + place);
#pragma unroll
        for (int half = 0; half < 2; ++half) scale[half] = PairsOf<Mma>::both(value(scales, bits, half));
    }

private:
    // GroupScales::pair_value without its call: a main loop that calls a function has no registers left.
    __device__ static float value(const GroupScales& scales, uint2 bits, int half) {
        if (scales.bytes == 4) return __uint_as_float(half ? bits.y : bits.x);
        if (scales.bytes == 1) return scales.byte_value_in_line(bits.x >> (8 * half) & 0xffu);
        const auto narrow = uint16_t(half ? bits.x >> 16 : bits.x);
        return scales.element == Element::fp16 ? half_to_float(narrow) : bfloat_to_float(narrow);
    }
};

// int4, uint4, q4_0: a code less its zero point.
template <class Mma>
struct ScaledIntegers {
    static constexpr bool zero_points = true;
    using Pair = typename Magic<Mma>::Pair;
    struct Group : ScalePairs<Mma> {
        Pair bias[2];
        __device__ void set_zeros(uint32_t zeros) {
            bias[0] = Magic<Mma>::pair(int(zeros & 0xff));
            bias[1] = Magic<Mma>::pair(int(zeros >> 8));
        }
    };
    __device__ static void decode(uint32_t (&a)[4], uint32_t word, const Group& group) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const uint32_t code = ptx::mask_or(word >> (4 * j), 0x000f000fu, Magic<Mma>::bits);
            a[j] = PairsOf<Mma>::multiply(as_bits(__hsub2(as_pair<Pair>(code), group.bias[j % 2])), group.scale[j % 2]);
        }
    }
};

// nf4, fp4, iq4_nl: a level of a table.
template <class Mma, Element E>
struct ScaledLevels {
    static constexpr bool zero_points = false;
    using Levels = LevelNibbles<Mma, E>;
    using Group = ScalePairs<Mma>;
    __device__ static void decode(uint32_t (&a)[4], uint32_t word, const Group& group) {
        Levels::decode(a, word, {});
#pragma unroll
        for (int j = 0; j < 4; ++j) a[j] = PairsOf<Mma>::multiply(a[j], group.scale[j % 2]);
    }
};

}  // namespace lowbit::cuda
