// 4-bit codes in the `tiles` layout: a unit is two atoms of a tile, 128 columns in 1024 neighbouring bytes.
#pragma once
#include "cuda/decode/config.cuh"
#include "cuda/decode/tiles_args.cuh"
#include "cuda/formats/small_numbers.cuh"

namespace lowbit::cuda {

// How all sources of nibbles are copied and held.
struct NibbleTiles {
    using Args = TilesArgs;
    using Terms = NoTerms;
    static constexpr int unit_values = 128, unit_bytes = 1024, atom_bytes = core::tile_atom_bytes(4);
    static constexpr bool minimums = false;
    static constexpr int table_bytes = 0;  // of shared memory

    struct Codes {
        uint4 atoms[atoms_per_unit];
        __device__ void load(uint32_t slot, int lane) {
#pragma unroll
            for (int i = 0; i < atoms_per_unit; ++i) atoms[i] = ptx::load_16(slot + lane * 16 + i * atom_bytes);
        }
        __device__ uint32_t word(int atom, int step) const {
            const uint4& four = atoms[atom];
            return step == 0 ? four.x : step == 1 ? four.y : step == 2 ? four.z : four.w;
        }
    };
    using Place = const uint8_t*;  // of this lane's 16 bytes in the unit to come
    __device__ static Place first(const Args& args, int64_t tile, int unit) {
        Place place = args.codes + tile * args.tile_bytes + int64_t(unit) * unit_bytes + threadIdx.x % 32 * 16;
        ptx::hold(place);
        return place;
    }
    // A whole warp, and on to the unit `step` further on; every lane brings what it will read. The last unit may be one atom, the other is
    // zeros then.
    __device__ static void copy(uint32_t slot, int lane, const Args& args, Place& from, int unit, int step) {
        const uint32_t to = slot + lane * 16;
        ptx::stream_16(to, from, true);
        ptx::stream_16(to + atom_bytes, from + atom_bytes, unit * atoms_per_unit + 1 < args.atoms);
        from += step * unit_bytes;
    }
};

// int4 and q4_0 (code less 8) or uint4 (less its zero point) x tokens of 16 bits.
template <class Mma_, bool Signed>
struct IntegerNibbles : NibbleTiles {
    using Mma = Mma_;
    static constexpr int steps_per_atom = 4, token_unit_bytes = 256, token_atom_bytes = 128;
    static constexpr bool natural_order = true, byte_tokens = false, token_terms = false, zero_points = !Signed;

    using Nibble = NibbleNumber<Mma>;
    // What the numbers of rows g and g + 8 count in.
    __device__ static constexpr float code_unit(int half) { return Nibble::unit(half); }
    // What is taken off the codes of rows g and g + 8 in a group, whose zero points are in two bytes of a word. Nibbles 0 and 2 of a half
    // word are of row g, 1 and 3 of row g + 8.
    struct Group {
        uint32_t offset[2];
        __device__ explicit Group(uint32_t zeros) {
#pragma unroll
            for (int half = 0; half < 2; ++half)
                offset[half] = Nibble::offset(half, Signed ? 8.0f : float(int(zeros >> (8 * half) & 0xff)));
        }
    };
    __device__ static void fragment(uint32_t (&a)[4], const Codes& codes, const Group& group, int atom, int step) {
        decode_nibbles<Mma>(a, codes.word(atom, step), group.offset);
    }
};

// int4 and q4_0 or uint4 x int8 and q8_1. The low nibbles of a word are four codes of row g, the high ones of row g + 8, and K is taken in
// their order, which the tokens are brought into beforehand (decode/integer_tokens.cuh).
template <bool Signed>
struct NibblesTimesInt8 : NibbleTiles {
    using Mma = ptx::MmaUint8Int8;
    static constexpr int steps_per_atom = 2, token_unit_bytes = unit_values, token_atom_bytes = 64;
    static constexpr bool natural_order = false, byte_tokens = false, token_terms = true, zero_points = !Signed;

    struct Group {
        int offset[2];
        __device__ explicit Group(uint32_t zeros) {
            offset[0] = Signed ? 8 : int(zeros & 0xff);
            offset[1] = Signed ? 8 : int(zeros >> 8);
        }
    };
    __device__ static void fragment(uint32_t (&a)[4], const Codes& codes, const Group&, int atom, int step) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const uint32_t word = codes.word(atom, 2 * step + i);
            a[2 * i] = word & 0x0f0f0f0fu;
            a[2 * i + 1] = word >> 4 & 0x0f0f0f0fu;
        }
    }
};

// fp4 x bf16: weights with their scales in (small_numbers.cuh), exactly: no table, and no part sums that have to be multiplied. (int4 would
// gain nothing by it, and lose bits.)
struct ScaledFp4 : NibbleTiles {
    using Mma = ptx::MmaBf16;
    using Group = SmallNumbers<Mma>::Fp4;
    static constexpr int steps_per_atom = 4, token_unit_bytes = 256, token_atom_bytes = 128;
    static constexpr bool natural_order = true, byte_tokens = false, token_terms = false, zero_points = false;
    static constexpr float product_unit = SmallNumbers<Mma>::product_unit;

    __device__ static void fragment(uint32_t (&a)[4], const Codes& codes, const Group& group, int atom, int step) {
        group.decode(a, codes.word(atom, step));
    }
};

// fp4 x fp16: the values / unit, which scales make up for.
struct Fp4TimesHalf : NibbleTiles {
    using Mma = ptx::MmaFp16;
    using Group = NoDecodeGroup;
    static constexpr int steps_per_atom = 4, token_unit_bytes = 256, token_atom_bytes = 128;
    static constexpr bool natural_order = true, byte_tokens = false, token_terms = false, zero_points = false;

    __device__ static constexpr float code_unit(int) { return Fp4Number<Mma>::unit; }
    __device__ static void fragment(uint32_t (&a)[4], const Codes& codes, const Group&, int atom, int step) {
        Fp4Number<Mma>::decode(a, codes.word(atom, step));
    }
};

// nf4, iq4_nl: the levels themselves, out of a table.
template <class Mma_, Element E>
struct LevelTiles : NibbleTiles {
    using Mma = Mma_;
    using Group = NoDecodeGroup;
    using Table = LevelTable<Mma, E>;
    static constexpr int steps_per_atom = 4, token_unit_bytes = 256, token_atom_bytes = 128;
    static constexpr bool natural_order = true, byte_tokens = false, token_terms = false, zero_points = false;

    static constexpr int table_bytes = Table::bytes;

    __device__ static uint8_t* table() {
        __shared__ __align__(128) uint8_t levels[table_bytes];
        return levels;
    }
    // A whole block.
    __device__ static void fill_table() { Table::fill(table(), int(threadIdx.x), int(blockDim.x)); }
    __device__ static void fragment(uint32_t (&a)[4], const Codes& codes, const Group&, int atom, int step) {
        Table::decode(a, codes.word(atom, step), ptx::shared_address(table()));
    }
};

}  // namespace lowbit::cuda
