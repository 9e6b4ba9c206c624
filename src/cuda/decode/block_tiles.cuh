// GGML types in the `tiles` layout: a unit is two atoms of a tile, 128 columns in 256 neighbouring bytes for each bit of a code, and their
// terms: fp16 scales (and minimums) of 32 values, or those of 256 and the bytes that they multiply.
//
// The tensor core multiplies exact integers. Minimums come in with the sum of the token's values over a group: sums += minimum * sum.
#pragma once
#include "cuda/decode/config.cuh"
#include "cuda/decode/tiles_args.cuh"
#include "cuda/formats/bytes.cuh"
#include "cuda/formats/tile_codes.cuh"

namespace lowbit::cuda {

// The scales and minimums of a unit for rows g and g + 8, as they lie in memory.
template <Element E>
struct BlockTerms {
    static constexpr core::TileBlock block = core::tile_block(E);
    static constexpr bool is_super = block.is_super();
    static constexpr int segments = 128 / block.group, halves = block.halves();
    static constexpr int half_bytes = block.half_bytes(), block_bytes = block.term_bytes();
    static constexpr int blocks = is_super ? 1 : segments;  // that a unit has, or is half of
    static constexpr int bytes = is_super ? half_bytes + 128 : segments * block_bytes;

    uint32_t numbers[blocks][halves];
    uint32_t integers[4];

    __device__ void load(uint32_t slot, int lane) {
        const uint32_t g = uint32_t(lane / 4);
#pragma unroll
        for (int i = 0; i < blocks; ++i) {
            if constexpr (halves == 2) {
                const uint2 pair = ptx::load_8(slot + i * half_bytes + g * 8);
                numbers[i][0] = pair.x, numbers[i][1] = pair.y;
            } else {
                numbers[i][0] = ptx::load_4(slot + i * half_bytes + g * 4);
            }
        }
        if constexpr (is_super) {
            const uint4 four = ptx::load_16(slot + half_bytes + g * 16);
            integers[0] = four.x, integers[1] = four.y, integers[2] = four.z, integers[3] = four.w;
        }
    }
    __device__ float scale(int segment, int half) const {
        if constexpr (is_super)
            return times_integer(number(0, 0, half), segment, 0, half);
        else
            return number(segment, 0, half);
    }
    __device__ float minimum(int segment, int half) const {
        if constexpr (is_super)
            return times_integer(-number(0, 1, half), segment, 1, half);
        else
            return number(segment, 1, half);
    }

    // A lane brings 16 bytes of the terms of a unit into the ring: where they stand, from the tile's first on, and whether they exist.
    __device__ static int offset(int unit, int chunk) {
        if constexpr (is_super)
            return unit / 2 * block_bytes + (chunk * 16 >= half_bytes ? unit % 2 * 128 : 0) + chunk * 16;
        else
            return unit * bytes + chunk * 16;
    }
    __device__ static bool exists(int unit, int chunk, int block_count) {
        return is_super || unit * segments + chunk * 16 / block_bytes < block_count;
    }

private:
    __device__ float number(int i, int which, int half) const {
        const uint32_t pair = numbers[i][which];
        return half_to_float(uint16_t(half ? pair >> 16 : pair & 0xffffu));
    }
    // Exact: 11 bits times 8.
    __device__ float times_integer(float factor, int segment, int which, int half) const {
        const int at = block.integers == 2 ? (2 * segment + which) * 2 + half : 2 * segment + half;
        const uint32_t byte = integers[at / 4] >> (at % 4 * 8) & 0xffu;
        if constexpr (!block.minimums)
            return factor * float(int8_t(byte));
        else if constexpr (block.integers == 1)  // both numbers in a byte
            return factor * float(byte >> (4 * which) & 15);
        else
            return factor * float(byte);
    }
};

// How all sources of GGML types are copied and held.
template <Element E>
struct BlockTiles {
    using Args = TilesArgs;
    using Terms = BlockTerms<E>;
    static constexpr core::TileBlock block = core::tile_block(E);
    static constexpr int unit_values = 128, atom_bytes = core::tile_atom_bytes(block.bits), unit_bytes = atoms_per_unit * atom_bytes;
    static constexpr bool byte_tokens = false, zero_points = false, minimums = block.minimums;
    static constexpr int table_bytes = 0;

    struct Codes {
        AtomCodes<block.bits> atoms[atoms_per_unit];

        __device__ void load(uint32_t slot, int lane) {
#pragma unroll
            for (int atom = 0; atom < atoms_per_unit; ++atom) atoms[atom].load(slot + atom * atom_bytes, lane);
        }
    };

    using Place = const uint8_t*;  // of this lane's first 16 bytes in the unit to come
    __device__ static Place first(const Args& args, int64_t tile, int unit) {
        Place place = args.codes + tile * args.tile_bytes + int64_t(unit) * unit_bytes + threadIdx.x % 32 * 16;
        ptx::hold(place);
        return place;
    }
    // A whole warp, and on to the unit `step` further on. The last unit may be one atom, the other is zeros then.
    __device__ static void copy(uint32_t slot, int lane, const Args& args, Place& from, int unit, int step) {
        const bool whole = unit * atoms_per_unit + 1 < args.atoms;
#pragma unroll
        for (int at = 0; at < unit_bytes; at += 512)
            if (at + 512 <= unit_bytes || lane * 16 < unit_bytes - at)
                ptx::stream_16(slot + at + lane * 16, from + at, whole || at + lane * 16 < atom_bytes);
        from += step * unit_bytes;
    }
};

// x tokens of 16 bits.
template <class Mma_, Element E>
struct BlocksTimesNumbers : BlockTiles<E> {
    using Mma = Mma_;
    using Group = NoDecodeGroup;
    using Base = BlockTiles<E>;
    using Pair = typename Magic<Mma>::Pair;
    static constexpr int steps_per_atom = 4, token_unit_bytes = 256, token_atom_bytes = 128;
    static constexpr bool natural_order = true, token_terms = false;

    static constexpr bool nibbles = Base::block.bits == 4;

    __device__ static uint32_t ones() { return PairsOf<Mma>::both(1.0f); }
    // What the numbers of rows g and g + 8 count in.
    __device__ static constexpr float code_unit(int half) { return nibbles ? NibbleNumber<Mma>::unit(half) : 1.0f; }

    // Registers j = 0..3 have rows g, g + 8, g, g + 8 and columns 2t, 2t, 2t + 8, 2t + 8.
    __device__ static void fragment(uint32_t (&a)[4], const typename Base::Codes& codes, const Group&, int atom, int step) {
        if constexpr (nibbles) {
            constexpr auto zero = float(Base::block.zero);
            const uint32_t offset[2] = {NibbleNumber<Mma>::offset(0, zero), NibbleNumber<Mma>::offset(1, zero)};
            decode_nibbles<Mma>(a, codes.atoms[atom].low_words[step], offset);
        } else {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int slot = 2 * step + j % 2;
                if constexpr (Base::block.bits == 8)
                    a[j] = widen_alternate_bytes<Mma>(codes.atoms[atom].low_words[slot], j / 2);
                else
                    a[j] = as_bits(__hsub2(as_pair<Pair>(codes.atoms[atom].fields(slot, j / 2, 0x00010001u, Magic<Mma>::bits)),
                                           Magic<Mma>::pair(Base::block.zero)));
            }
        }
    }
};

// x int8 and q8_1, whose codes are brought into the order of the tiles beforehand (decode/integer_tokens.cuh). Groups of 16 take a product
// half as deep.
template <Element E>
struct BlocksTimesInt8 : BlockTiles<E> {
    using Base = BlockTiles<E>;
    static constexpr bool bytes = Base::block.bits == 8;
    using Mma =
        std::conditional_t<bytes, ptx::MmaInt8, std::conditional_t<Base::block.group == 16, ptx::MmaUint8Int8Short, ptx::MmaUint8Int8>>;
    static constexpr int words_per_step = Mma::values_per_step / 16, steps_per_atom = 4 / words_per_step;
    static constexpr int token_unit_bytes = Base::unit_values, token_atom_bytes = 64;
    static constexpr bool natural_order = false, token_terms = true;

    struct Group {
        int offset[2] = {Base::block.zero, Base::block.zero};
        __device__ explicit Group(uint32_t) {}
    };
    __device__ static void fragment(uint32_t (&a)[4], const typename Base::Codes& codes, const Group&, int atom, int step) {
#pragma unroll
        for (int i = 0; i < 2 * words_per_step; ++i) {
            const int slot = 2 * words_per_step * step + i;
            a[i] = bytes ? codes.atoms[atom].low_words[slot] : codes.atoms[atom].fields(slot, 0, 0x01010101u, 0);
        }
    }
};

}  // namespace lowbit::cuda
