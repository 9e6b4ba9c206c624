// Weights of 8-bit products whose scales change along K, and 4-bit codes that are multiplied as int8.
#pragma once
#include "cuda/hopper/weight.cuh"

namespace lowbit::cuda {

// What is added to a thread's sums: parts times the scales of its rows (g and g + 8) and, from shared memory, of its tokens.
template <int Blocks, int Tokens>
__device__ inline void add_parts(float (&sums)[Blocks][Tokens / 2], const float (&parts)[Blocks][Tokens / 2],
                                 const float (&scales)[Blocks][2], const float* token_scales) {
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < Tokens / 8; ++i) {
        const float2 by_token = *reinterpret_cast<const float2*>(token_scales + 8 * i + 2 * t);
#pragma unroll
        for (int block = 0; block < Blocks; ++block)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                sums[block][4 * i + e] += parts[block][4 * i + e] * (scales[block][e / 2] * (e % 2 ? by_token.y : by_token.x));
    }
}

// Where 64 tokens are the rows of the product, a thread has tokens g and g + 8 of its warp's 16: two scales, times that of the weight.
struct TurnedScales {
    float of[2];
    __device__ static int first_token() { return threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4; }
    // address: in shared memory, of the scale of this thread's first token.
    __device__ TurnedScales(uint32_t address, float row_scale) {
        of[0] = __uint_as_float(ptx::load_4(address)) * row_scale,
        of[1] = __uint_as_float(ptx::load_4(address + 8 * sizeof(float))) * row_scale;
    }
};

// fp8 with a scale for 128 values of a token, and for 128 columns of a row or of a block of rows: a k block.
struct Fp8Blocks : SourceDefaults {
    using Kind = ptx::WgmmaE4m3;
    static constexpr bool promoted = true, token_groups = true;
    template <int Rows, int Blocks>
    struct Tile : PlainRows<Kind>::Tile<Rows, Blocks> {
        using Plain = PlainRows<Kind>::Tile<Rows, Blocks>;
        using Fragment = typename Plain::Fragment;
        struct Raw {
            Fragment fragment;
            float scales[Blocks][2];
        };
        // The scales of a thread's rows. Asked for two k blocks before they are used: a warpgroup that waits for memory issues no product.
        struct RowScales {
            const float* first[Blocks][2];
            float ahead[2][Blocks][2];
            __device__ RowScales(const HopperArgs& args, int row, int k_block) {
                const int thread = threadIdx.x % 128;
#pragma unroll
                for (int i = 0; i < 2 * Blocks; ++i) {
                    const int64_t r = row + i / 2 * 64 + thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8;
                    const GroupScales& scales = args.group_scales;
                    first[i / 2][i % 2] = reinterpret_cast<const float*>(scales.data + scales.offset(smaller(r, args.rows - 1), 0));
                    ptx::hold(first[i / 2][i % 2]);
                }
                ask(ahead[0], args, k_block), ask(ahead[1], args, k_block + 1);
            }
            __device__ void ask(float (&scales)[Blocks][2], const HopperArgs& args, int k_block) const {
                const int which = smaller(k_block, args.last_group);
#pragma unroll
                for (int i = 0; i < 2 * Blocks; ++i) scales[i / 2][i % 2] = first[i / 2][i % 2][which];
            }
        };
        __device__ static void fetch(Raw& raw, const uint8_t* stage, int first_block, RowScales& rows, int k_block,
                                     const HopperArgs& args) {
            Plain::fetch(raw.fragment, stage, first_block, 0, k_block, args);
#pragma unroll
            for (int i = 0; i < 2 * Blocks; ++i) {
                raw.scales[i / 2][i % 2] = rows.ahead[0][i / 2][i % 2];
                rows.ahead[0][i / 2][i % 2] = rows.ahead[1][i / 2][i % 2];
            }
            rows.ask(rows.ahead[1], args, k_block + 2);
        }
        __device__ static void decode(Fragment& fragment, const Raw& raw, const HopperArgs&) { fragment = raw.fragment; }
        __device__ static void read_scales(float (&scales)[Blocks][2], const Raw& raw, const HopperArgs&) {
#pragma unroll
            for (int i = 0; i < 2 * Blocks; ++i) scales[i / 2][i % 2] = raw.scales[i / 2][i % 2];
        }
    };
};

// The same where all rows of a tile lie in one block and have one scale.
struct TurnedFp8Blocks : Fp8Blocks {
    static constexpr bool turned = true;
};

// How four codes of int4 become four bytes that the tensor core multiplies with 8-bit tokens: `unit` times the code each.
template <class Kind>
struct NibbleBytes;
// Less 8 is the upper bit turned over, in the upper half of a signed byte.
template <>
struct NibbleBytes<ptx::WgmmaInt8> {
    static constexpr float unit = 16.0f;
    __device__ static uint32_t low(uint32_t word) { return high(word << 4); }
    __device__ static uint32_t high(uint32_t word) { return ptx::mask_xor(word, 0xf0f0f0f0u, 0x80808080u); }
};
// The smallest numbers of e4m3 count evenly, in steps of 2^-9: up to 15 the bits of an integer are integer * 2^-9. How far a code is from
// 8, and a sign where its upper bit is not set.
template <>
struct NibbleBytes<ptx::WgmmaE4m3> {
    static constexpr float unit = 0x1p-9f;
    __device__ static uint32_t low(uint32_t word) { return bytes(word & 0x0f0f0f0fu, word << 4); }
    __device__ static uint32_t high(uint32_t word) { return bytes(word >> 4 & 0x0f0f0f0fu, word); }

private:
    // `upper`: the codes' upper bits in the upper bits of the bytes.
    __device__ static uint32_t bytes(uint32_t codes, uint32_t upper) { return __vabsdiffu4(codes, 0x08080808u) | (~upper & 0x80808080u); }
};

// int4 in tiles x int8 or fp8. A k block is 128 values, two atoms. A fragment of bytes has four neighbouring columns where words of nibbles
// have two pairs, eight columns apart: a thread reads the words of two lanes and takes half of each, and the tokens are as they are.
// Grouped: a scale for every 128 (and more) values; else for a row, and sums of int8 are exact.
template <class Kind_, bool Grouped, TileScales Scales>
struct NibblesTimesBytes : SourceDefaults {
    using Kind = Kind_;
    using Bytes = NibbleBytes<Kind>;
    static constexpr bool promoted = Grouped, row_scales_in_tiles = !Grouped;
    static constexpr float product_unit = 1.0f / Bytes::unit;
    static constexpr double decode_cost = 1.0;
    static constexpr int atoms = 2, tile_bytes = atoms * core::tile_atom_bytes(4), scale_bytes = tile_scale_bytes(Scales);
    struct Lane {
        uint32_t words, scales;  // where they lie, from those of a warpgroup on
        uint32_t taken;          // of two words: the bytes of columns 4t to 4t + 3
    };
    __device__ static Lane lane_of(int thread) {
        const int lane = thread % 32, warp = thread / 32;
        Lane found{uint32_t(warp * tile_bytes + (lane / 4 * 4 + lane % 2 * 2) * 16), uint32_t((warp * 16 + lane / 4 * 2) * scale_bytes),
                   lane & 2 ? 0x7531u : 0x6420u};
        ptx::hold(found.words), ptx::hold(found.scales), ptx::hold(found.taken);
        return found;
    }
    template <int Rows, int Blocks>
    struct Tile : RegisterFragments<Kind, Blocks> {
        static constexpr int tiles = Rows / 16, scales_at = tiles * tile_bytes;
        static constexpr int stage_bytes = scales_at + (Grouped ? tiles * 16 * scale_bytes : 0);
        __device__ static void copy(uint8_t* stage, const HopperArgs& args, int row, int k_block, ptx::Barrier* full) {
            ptx::copy_box(stage, args.weight, 0, k_block * atoms, row / 16, full);
            if constexpr (Grouped) ptx::copy_box(stage + scales_at, args.scales, 0, args.group_of_block(k_block), row / 16, full);
        }
        __device__ static uint32_t copied_bytes(const HopperArgs&, int) { return uint32_t(stage_bytes); }
        struct Raw {
            uint4 codes[Blocks][atoms][2];
            uint32_t taken;
            uint2 scale_bits[Blocks];  // of rows g and g + 8, as they lie there: what they stand for is found after they were waited for
        };
        struct RowScales {
            Lane lane = lane_of(threadIdx.x % 128);
            __device__ RowScales(const HopperArgs&, int, int) {}
        };
        __device__ static void fetch(Raw& raw, const uint8_t* stage, int first_block, RowScales& rows, int, const HopperArgs& args) {
            fetch(raw, stage, first_block, rows.lane, 0, args);
        }
        __device__ static void fetch(Raw& raw, const uint8_t* stage, int first_block, const Lane& lane, int, const HopperArgs&) {
            const uint32_t base = ptx::shared_address(stage);
            raw.taken = lane.taken;
#pragma unroll
            for (int block = 0; block < Blocks; ++block) {
                const uint32_t words = base + lane.words + uint32_t((first_block + block) * 4 * tile_bytes);
#pragma unroll
                for (int i = 0; i < atoms * 2; ++i)
                    raw.codes[block][i / 2][i % 2] = ptx::load_16(words + uint32_t(i / 2 * core::tile_atom_bytes(4) + i % 2 * 16));
                if constexpr (Grouped) {
                    const uint32_t scales = base + scales_at + lane.scales + uint32_t((first_block + block) * 64 * scale_bytes);
                    if constexpr (scale_bytes == 2)
                        raw.scale_bits[block].x = ptx::load_4(scales);
                    else
                        raw.scale_bits[block] = ptx::load_8(scales);
                }
            }
        }
        __device__ static void read_scales(float (&scales)[Blocks][2], const Raw& raw, const HopperArgs& args) {
            const bool half = args.group_scales.element == Element::fp16;
#pragma unroll
            for (int block = 0; block < Blocks; ++block) {
                const uint2 bits = raw.scale_bits[block];
                float2 pair = make_float2(__uint_as_float(bits.x), __uint_as_float(bits.y));
                if constexpr (scale_bytes == 2) {
                    const float2 as_half = __half22float2(as_pair<__half2>(bits.x));
                    pair.x = half ? as_half.x : __uint_as_float(bits.x << 16);
                    pair.y = half ? as_half.y : __uint_as_float(bits.x & 0xffff0000u);
                }
                scales[block][0] = pair.x, scales[block][1] = pair.y;
            }
        }
        __device__ static void decode(typename Tile::Fragment& fragment, const Raw& raw, const HopperArgs&) {
#pragma unroll
            for (int block = 0; block < Blocks; ++block)
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const auto word_of = [&](const uint4& four) {
                        return i % 4 == 0 ? four.x : i % 4 == 1 ? four.y : i % 4 == 2 ? four.z : four.w;
                    };
                    const uint32_t word = __byte_perm(word_of(raw.codes[block][i / 4][0]), word_of(raw.codes[block][i / 4][1]), raw.taken);
                    fragment.a[block][i / 2][i % 2 * 2] = Bytes::low(word);
                    fragment.a[block][i / 2][i % 2 * 2 + 1] = Bytes::high(word);
                }
        }
    };
};

// What a k block with scales of its own needs until its parts are added. Count: blocks of 64 rows of a warpgroup.
template <class Weight, class At, int Count>
struct OpenBlock {
    typename Weight::Fragment fragment;
    float scales[Count][2];
    At place;
};

// The k blocks of a piece, one after the other. Where weights are decoded, the codes of the next one are asked for when this one is: to
// wait for them then would be a part of the time from products to the next ones.
template <class Weight, class At, class Shared, int Count>
class OpenBlocks {
public:
    __device__ OpenBlocks(const HopperArgs& args, Shared& shared, At& at, int row, int first_block, int k_first, int k_count)
        : args_(args),
          shared_(shared),
          at_(at),
          first_block_(first_block),
          k_(k_first),
          end_(k_first + k_count),
          rows_(args, row, k_first) {
        if (Weight::in_registers) fetch(0);
    }
    // The d-th of its stage.
    __device__ void decode(OpenBlock<Weight, At, Count>& block, int d) {
        if (!Weight::in_registers) fetch(d);
        Weight::decode(block.fragment, raw_, args_);
        Weight::read_scales(block.scales, raw_, args_);
        block.place = place_;
        constexpr int last = Shared::depth - 1;
        if (Weight::in_registers && (d < last || k_ < end_)) fetch(last - d);
    }

private:
    __device__ void fetch(int d) {
        if (d == 0) shared_.ring.wait_full(at_);
        Weight::fetch(raw_, shared_.weight[at_.stage][d], first_block_, rows_, k_++, args_);
        place_ = at_;
        if (d == Shared::depth - 1) at_.advance();
    }

    const HopperArgs& args_;
    Shared& shared_;
    At& at_;
    int first_block_, k_, end_;
    typename Weight::RowScales rows_;
    typename Weight::Raw raw_;
    At place_;
};

}  // namespace lowbit::cuda
