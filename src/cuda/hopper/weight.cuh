// The 64-row operand: the weight's rows. Either they lie in shared memory as the tensor core takes them, or they are decoded into
// registers. The main loop sees the same names in both:
//     stage_bytes                of the weight in a k block
//     copy, copied_bytes         bring a k block of the tile from this row on (one thread), and how much that is
//     Lane, lane_of              what a thread of a warpgroup knows of its place, found out once: its number, or more
//     Raw, fetch                 what it reads of a k block from shared memory, before the tensor core is waited for; from the warpgroup's
//                                first block of the tile on
//     Fragment, decode, keep     what it makes of that, after; `keep`: the registers belong to the tensor core up to here
//     multiply                   one step, all of a warpgroup's blocks of 64 rows
// Sources that are `promoted` have scales that change from k block to k block: its products are parts of their own, which the main loop
// adds to the sums. The epilogue multiplies all products by `product_unit`. With `token_groups` the tokens have such scales, too, which
// come with the stage. `turned`: the tokens are the 64-row operand. A thread has two of them and many rows, and where those have one scale
// it needs two numbers in place of many. `exchanged`: the sides of the product have changed places. What this loop takes for the weight are
// the problem's tokens, and the other way round; only the epilogue's terms and the store know.
#pragma once
#include "cuda/formats/bytes.cuh"
#include "cuda/formats/small_numbers.cuh"
#include "cuda/hopper/config.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace lowbit::cuda {

struct SourceDefaults {
    using Lane = int;
    __device__ static Lane lane_of(int thread) {
        ptx::hold(thread);  // to ask for it anew in every k block takes longer
        return thread;
    }
    static constexpr bool promoted = false, token_groups = false, turned = false, exchanged = false;
    static constexpr bool row_scales_in_tiles = false;  // the epilogue has them in the order of packed tiles
    static constexpr int few_groups = 2;
    static constexpr bool hides_decoding = false;  // behind a tile of 128 x 128, nearly all of it
    static constexpr float product_unit = 1.0f;
    static constexpr int table_bytes = 0;  // what decoding looks up, at the beginning of the block's shared memory
};

// Weights in registers.
template <class Kind, int Blocks>
struct RegisterFragments {
    static constexpr bool in_registers = true;
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
struct PlainRows : SourceDefaults {
    using Kind = Kind_;
    template <int Rows, int Blocks>
    struct Tile {
        static constexpr bool in_registers = false;
        static constexpr int stage_bytes = Rows * ptx::wgmma_row_bytes;
        struct Fragment {
            uint64_t tile;
        };
        __device__ static void copy(uint8_t* stage, const HopperArgs& args, int row, int k_block, ptx::Barrier* full) {
            const int count = rows_copied(args, row);
            if (count > 0)
                ptx::copy_box(stage, count == Rows ? args.weight : args.last_weight, k_block * (ptx::wgmma_row_bytes / Kind::bytes), row,
                              full);
        }
        __device__ static uint32_t copied_bytes(const HopperArgs& args, int row) {
            return uint32_t(rows_copied(args, row) * ptx::wgmma_row_bytes);
        }
        // The last ones in a box of just their size.
        __device__ static int rows_copied(const HopperArgs& args, int row) {
            const int64_t left = args.weight_rows - row;
            return left >= Rows ? Rows : left > 0 ? args.last_weight_box : 0;
        }
        using Raw = Fragment;
        __device__ static void fetch(Raw& raw, const uint8_t* stage, int first_block, int, int, const HopperArgs&) {
            raw.tile = ptx::wgmma_tile(stage + first_block * 64 * ptx::wgmma_row_bytes);
        }
        __device__ static void decode(Fragment& fragment, const Raw& raw, const HopperArgs&) { fragment = raw; }
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

template <class Kind>
using ExchangedKind = std::conditional_t<std::is_same_v<Kind, ptx::WgmmaInt8Uint8>, ptx::WgmmaUint8Int8, Kind>;
template <class Kind>
struct ExchangedRows : PlainRows<ExchangedKind<Kind>> {
    static constexpr bool exchanged = true;
};

// Plain rows of 8 bits that become numbers of 16 in registers, exactly; their scales are the epilogue's. A k block is 64 bytes of a row.
template <class Kind_, class Mma, Element E>
struct WidenedRows : SourceDefaults {
    using Kind = Kind_;
    static constexpr bool small = E == Element::int8 && SmallNumbers<Mma>::possible;
    static constexpr float product_unit = small ? SmallNumbers<Mma>::product_unit : 1.0f;
    static constexpr double decode_cost = 1.0;
    template <int Rows, int Blocks>
    struct Tile : RegisterFragments<Kind, Blocks> {
        static constexpr int row_bytes = 64, stage_bytes = Rows * row_bytes;
        __device__ static void copy(uint8_t* stage, const HopperArgs& args, int row, int k_block, ptx::Barrier* full) {
            ptx::copy_box(stage, args.weight, k_block * row_bytes, row, full);
        }
        __device__ static uint32_t copied_bytes(const HopperArgs&, int) { return stage_bytes; }
        struct Raw {
            // Rows g and g + 8: columns 2t, 2t + 1, 2t + 8, 2t + 9 of a step; int8 as 2t, 2t + 8, 2t + 1, 2t + 9.
            uint32_t words[Blocks][ptx::wgmma_steps_per_row][2];
        };
        __device__ static void fetch(Raw& raw, const uint8_t* stage, int first_block, int thread, int, const HopperArgs&) {
            const int lane = thread % 32, warp = thread / 32, g = lane / 4, t = lane % 4;
            const uint32_t base = ptx::shared_address(stage) + uint32_t((first_block * 64 + warp * 16 + g) * row_bytes + 2 * t);
#pragma unroll
            for (int i = 0; i < Blocks * ptx::wgmma_steps_per_row * 2; ++i) {
                const int block = i / (2 * ptx::wgmma_steps_per_row), step = i / 2 % ptx::wgmma_steps_per_row, half = i % 2;
                // The copy engine's swizzle of rows of 64 bytes.
                const uint32_t place = base + uint32_t((block * 64 + half * 8) * row_bytes + (step ^ g / 2 % 4) * 16);
                raw.words[block][step][half] =
                    __byte_perm(ptx::load_2(place), ptx::load_2(place + 8), E == Element::int8 ? 0x5140 : 0x5410);
            }
        }
        __device__ static void decode(typename Tile::Fragment& fragment, const Raw& raw, const HopperArgs&) {
#pragma unroll
            for (int i = 0; i < Blocks * ptx::wgmma_steps_per_row * 2; ++i) {
                const int block = i / (2 * ptx::wgmma_steps_per_row), step = i / 2 % ptx::wgmma_steps_per_row, half = i % 2;
                const uint32_t word = raw.words[block][step][half];
                uint32_t pairs[2];
                if constexpr (small)
                    widen_small(pairs, word);
                else if constexpr (E == Element::int8)
                    pairs[0] = widen_alternate_bytes<Mma>(word, 0), pairs[1] = widen_alternate_bytes<Mma>(word, 1);
                else
                    widen_bytes<Mma, E>(word, pairs);
                fragment.a[block][step][half] = pairs[0], fragment.a[block][step][2 + half] = pairs[1];
            }
        }
    };

private:
    // Bytes 0 and 2, and 1 and 3: code + 128, less 128.
    __device__ static void widen_small(uint32_t (&pairs)[2], uint32_t word) {
        using Small = SmallNumbers<Mma>;
        const uint32_t one = PairsOf<Mma>::both(1.0f);
#pragma unroll
        for (int i = 0; i < 2; ++i)
            pairs[i] =
                Small::weight(ptx::mask_xor(word >> (8 * i), 0x00ff00ffu, 0x00800080u), Small::factor(one, 0), Small::offset(one, 128.0f));
    }
};

// How the scales of tiles are kept: what changes the inner loop is a matter of the kernel.
enum class TileScales { halves, fp32, e8m0, e4m3 };
constexpr int tile_scale_bytes(TileScales scales) { return scales == TileScales::halves ? 2 : scales == TileScales::fp32 ? 4 : 1; }

// Codes in the `tiles` layout, decoded and multiplied by their scales: one rounding of the scale to 16 bits and one of the product.
// Groups: of a k block of 64 values.
template <class Kind_, class Decoder, int Groups, TileScales Scales>
struct ScaledTiles : SourceDefaults {
    using Kind = Kind_;
    static constexpr double decode_cost = Decoder::cost;
    static constexpr int few_groups = 4;
    static constexpr bool alternates = Decoder::alternates, hides_decoding = alternates && Groups == 1;
    static constexpr float product_unit = Decoder::product_unit;
    static constexpr int table_bytes = Decoder::table_bytes;
    __device__ static void fill_table(uint8_t* table, int thread, int threads) { Decoder::Table::fill(table, thread, threads); }
    template <int Rows, int Blocks>
    struct Tile : RegisterFragments<Kind, Blocks> {
        static constexpr int tiles = Rows / 16, atom_bytes = core::tile_atom_bytes(4);
        static constexpr int scales_at = tiles * atom_bytes, zeros_at = scales_at + tiles * Groups * 16 * tile_scale_bytes(Scales);
        static constexpr int stage_bytes = (zeros_at + (Decoder::zero_points ? tiles * Groups * 16 : 0) + 127) / 128 * 128;

        __device__ static void copy(uint8_t* stage, const HopperArgs& args, int row, int k_block, ptx::Barrier* full) {
            ptx::copy_box(stage, args.weight, 0, k_block, row / 16, full);
            const int group = Groups > 1 ? k_block * Groups : args.group_of_block(k_block);
            ptx::copy_box(stage + scales_at, args.scales, 0, group, row / 16, full);
            if (Decoder::zero_points && args.zero_bytes) ptx::copy_box(stage + zeros_at, args.integers, 0, group, row / 16, full);
        }
        __device__ static uint32_t copied_bytes(const HopperArgs& args, int) {
            return uint32_t(tiles * atom_bytes + args.scale_bytes + args.zero_bytes);
        }

        struct Raw {
            uint4 codes[Blocks];
            typename Decoder::Group groups[Blocks][Groups];
        };
        __device__ static void fetch(Raw& raw, const uint8_t* stage, int first_block, int thread, int, const HopperArgs& args) {
            const int lane = thread % 32, warp = thread / 32;
            const uint32_t base = ptx::shared_address(stage);
#pragma unroll
            for (int block = 0; block < Blocks; ++block) {
                const int tile = (first_block + block) * 4 + warp;
                raw.codes[block] = ptx::load_16(base + uint32_t(tile * atom_bytes + lane * 16));
#pragma unroll
                for (int group = 0; group < Groups; ++group) {
                    // Of rows g and g + 8.
                    const auto place = uint32_t((tile * Groups + group) * 16 + lane / 4 * 2);
                    raw.groups[block][group].template set_scales<Scales>(args.group_scales, base + scales_at, place);
                    if constexpr (Decoder::zero_points)
                        raw.groups[block][group].set_zeros(args.zero_bytes ? ptx::load_2(base + zeros_at + place) : 0x0808u);
                }
            }
        }
        __device__ static void decode(typename Tile::Fragment& fragment, const Raw& raw, const HopperArgs&) {
#pragma unroll
            for (int block = 0; block < Blocks; ++block) {
                const uint4& codes = raw.codes[block];
                const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
                for (int step = 0; step < ptx::wgmma_steps_per_row; ++step)
                    Decoder::decode(fragment.a[block][step], words[step], raw.groups[block][step * Groups / ptx::wgmma_steps_per_row]);
            }
        }
    };
};

// The scales of rows g and g + 8 as two 16-bit numbers.
template <class Mma>
struct ScalePair {
    uint32_t scales;

    // One of them, twice in a word.
    __device__ uint32_t scale(int half) const { return PairsOf<Mma>::twice(scales, half); }

    template <TileScales Scales>
    __device__ void set_scales(const GroupScales& group_scales, uint32_t base, uint32_t place) {
        if constexpr (Scales == TileScales::halves) {
            const uint32_t both = ptx::load_4(base + place * 2);
            if constexpr (bf16)
                scales = halves_to_bfloat(both, group_scales.element == Element::fp16);
            else
                scales =
                    group_scales.element == Element::fp16 ? both : pack(__uint_as_float(both << 16), __uint_as_float(both & 0xffff0000u));
        } else if constexpr (Scales == TileScales::fp32) {
            const uint2 bits = ptx::load_8(base + place * 4);
            scales = pack(__uint_as_float(bits.x), __uint_as_float(bits.y));
        } else if constexpr (Scales == TileScales::e4m3) {
            const float2 numbers = __half22float2(as_pair<__half2>(fp8_pair_to_half<Element::fp8_e4m3>(ptx::load_2(base + place))));
            scales = pack(numbers.x * *group_scales.unit_at, numbers.y * *group_scales.unit_at);
        } else {
            // 0 is 2^-127, a subnormal, and 255 is NaN.
            const auto number = [](uint32_t code) { return __uint_as_float(code == 255 ? 0x7fffffffu : code ? code << 23 : 0x00400000u); };
            const uint32_t both = ptx::load_2(base + place);
            scales = pack(number(both & 0xffu), number(both >> 8));
        }
    }

private:
    static constexpr bool bf16 = std::is_same_v<Mma, ptx::MmaBf16>;
    __device__ static uint32_t pack(float low, float high) {
        return bf16 ? as_bits(__floats2bfloat162_rn(low, high)) : as_bits(__floats2half2_rn(low, high));
    }
};

struct DecoderDefaults {
    static constexpr bool zero_points = false;
    static constexpr bool alternates = false;  // compiled for tiles with alternating warpgroups, too
    static constexpr float product_unit = 1.0f;
    static constexpr int table_bytes = 0;
};

// int4, uint4, q4_0: a code less its zero point, or less 8.
template <class Mma>
struct ScaledIntegers : DecoderDefaults {
    static constexpr bool zero_points = true;
    static constexpr double cost = 1.0;
    struct Group : ScalePair<Mma> {
        uint32_t offset[2];
        // Zero points of rows g and g + 8 in two bytes. Scales make up for what the numbers count in.
        __device__ void set_zeros(uint32_t zeros) {
            NibbleNumber<Mma>::set_offsets(offset, zeros);
            if constexpr (std::is_same_v<Mma, ptx::MmaBf16>) {
                static_assert(NibbleNumber<Mma>::unit(0) == 1.0f && NibbleNumber<Mma>::unit(1) == 4.0f);
                this->scales = PairsOf<Mma>::multiply(this->scales, 0x40803f80u);
            }
        }
    };
    __device__ static void decode(uint32_t (&a)[4], uint32_t word, const Group& group) {
        decode_nibbles<Mma>(a, word, group.offset);
#pragma unroll
        for (int j = 0; j < 4; ++j) a[j] = PairsOf<Mma>::multiply(a[j], group.scale(j % 2));
    }
};

// fp4 x fp16.
struct ScaledFp4Halves : DecoderDefaults {
    using Mma = ptx::MmaFp16;
    static constexpr double cost = 1.12;
    using Group = ScalePair<Mma>;
    __device__ static void decode(uint32_t (&a)[4], uint32_t word, const Group& group) {
        Fp4Nibbles<Mma>::decode(a, word, {});
#pragma unroll
        for (int j = 0; j < 4; ++j) a[j] = PairsOf<Mma>::multiply(a[j], group.scale(j % 2));
    }
};

// nf4, iq4_nl: a level of a table.
template <class Mma, Element E>
struct ScaledLevels : DecoderDefaults {
    using Table = LevelTable<Mma, E>;
    static constexpr int table_bytes = Table::bytes;
    static constexpr double cost = 1.12;
    using Group = ScalePair<Mma>;
    __device__ static void decode(uint32_t (&a)[4], uint32_t word, const Group& group) {
        extern __shared__ __align__(1024) uint8_t memory[];
        Table::decode(a, word, ptx::shared_address(memory));
#pragma unroll
        for (int j = 0; j < 4; ++j) a[j] = PairsOf<Mma>::multiply(a[j], group.scale(j % 2));
    }
};

// Codes that are bf16 numbers where they stand (small_numbers.cuh), and what of a group makes weights of them.
template <class Group_>
struct SmallCodes : DecoderDefaults {
    static constexpr bool alternates = Group_::alternates;
    using Group = Group_;
    static constexpr float product_unit = SmallNumbers<ptx::MmaBf16>::product_unit;
    static constexpr double cost = Group::cost;
    __device__ static void decode(uint32_t (&a)[4], uint32_t word, const Group& group) { group.decode(a, word); }
};

// int4, q4_0: codes less 8.
struct SmallIntegers : SmallNumbers<ptx::MmaBf16>::SignedNibbles {
    static constexpr double cost = 1.0;
    static constexpr bool alternates = true;
    template <TileScales Scales>
    __device__ void set_scales(const GroupScales& group_scales, uint32_t base, uint32_t place) {
        ScalePair<ptx::MmaBf16> pair{};
        pair.set_scales<Scales>(group_scales, base, place);
        set(pair.scales);
    }
};

// fp4.
struct SmallFloats : SmallNumbers<ptx::MmaBf16>::Fp4 {
    static constexpr double cost = 1.12;
    static constexpr bool alternates = false;
    template <TileScales Scales>
    __device__ void set_scales(const GroupScales& group_scales, uint32_t base, uint32_t place) {
        const uint32_t both = ptx::load_2(base + place);
        if constexpr (Scales == TileScales::e8m0)
            set_e8m0(both);
        else
            set_e4m3(both, *group_scales.unit_at);
    }
};

}  // namespace lowbit::cuda
