// Plain rows of 8 or 16 bits, as they lie in memory: a unit is 128 bytes of the 16 rows of a tile.
//
// A lane copies 16 bytes of rows g and g + 8 at a time, and multiplies what it copied: lane t of a row has bytes 16 t .. 16 t + 15 of each
// half of a unit. That is not the order of K in which the tensor core's fragments are drawn, but K may be taken in any order that the
// tokens follow, too: they are read in runs of 16 bytes (or 32) just so.
#pragma once
#include "cuda/decode/config.cuh"
#include "cuda/formats/small_numbers.cuh"

namespace lowbit::cuda {

struct ByteRowsArgs {
    const uint8_t* data = nullptr;
    int64_t stride = 0;  // bytes, a multiple of 16
    int64_t rows = 0;
    int bytes = 0;  // of a row, a multiple of 16
};

struct ByteRows {
    using Args = ByteRowsArgs;
    using Group = NoDecodeGroup;
    using Terms = NoTerms;
    static constexpr int unit_bytes = 2048, half_bytes = 64;
    static constexpr bool natural_order = false, token_terms = false, zero_points = false, minimums = false;
    static constexpr int table_bytes = 0;

    struct Place {
        const uint8_t* rows[2];  // g and g + 8
        int left;                // bytes of the row from this lane's first one on
    };
    struct Codes {
        uint4 runs[atoms_per_unit][2];
        __device__ void load(uint32_t slot, int lane) {
#pragma unroll
            for (int i = 0; i < 2 * atoms_per_unit; ++i) runs[i / 2][i % 2] = ptx::load_16(slot + lane * 16 + i * 512);
        }
        __device__ uint32_t word(int atom, int row, int i) const {
            const uint4& run = runs[atom][row];
            return i == 0 ? run.x : i == 1 ? run.y : i == 2 ? run.z : run.w;
        }
    };

    __device__ static Place first(const Args& args, int64_t tile, int unit) {
        const int lane = threadIdx.x % 32, first_byte = unit * 2 * half_bytes + lane % 4 * 16;
        Place place;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            place.rows[i] = args.data + smaller(tile * rows_per_tile + lane / 4 + 8 * i, args.rows - 1) * args.stride + first_byte;
            ptx::hold(place.rows[i]);
        }
        place.left = args.bytes - first_byte;
        return place;
    }
    __device__ static void copy(uint32_t slot, int lane, const Args&, Place& place, int, int step) {
#pragma unroll
        for (int i = 0; i < 2 * atoms_per_unit; ++i)
            ptx::stream_16(slot + lane * 16 + i * 512, place.rows[i % 2] + i / 2 * half_bytes, place.left > i / 2 * half_bytes);
        const int bytes = step * 2 * half_bytes;
        place.rows[0] += bytes, place.rows[1] += bytes, place.left -= bytes;
    }
};

// 16 bits x 16 bits.
template <class Mma_>
struct NumberRows : ByteRows {
    using Mma = Mma_;
    static constexpr int unit_values = 64, steps_per_atom = 2, token_unit_bytes = 128, token_atom_bytes = 64;
    static constexpr bool byte_tokens = false;

    __device__ static void fragment(uint32_t (&a)[4], const Codes& codes, const Group&, int atom, int step) {
#pragma unroll
        for (int j = 0; j < 4; ++j) a[j] = codes.word(atom, j % 2, 2 * step + j / 2);
    }
};

// int8 x int8.
struct Int8Rows : NumberRows<ptx::MmaInt8> {
    static constexpr int unit_values = 128;
};

// 8 bits x numbers of 16, or x fp8 (e4m3) that becomes fp16.
template <class Mma_, Element E, bool ByteTokens>
struct WideningRows : ByteRows {
    using Mma = Mma_;
    static constexpr int unit_values = 128, steps_per_atom = 4, token_unit_bytes = ByteTokens ? 128 : 256,
                         token_atom_bytes = token_unit_bytes / 2;
    static constexpr bool byte_tokens = ByteTokens;
    static constexpr bool small_numbers = E == Element::int8 && SmallNumbers<Mma>::possible;

    LOWBIT_HOST_DEVICE static constexpr float code_unit(int) {
        if constexpr (small_numbers)
            return SmallNumbers<Mma>::byte_unit;
        else
            return 1.0f;
    }

    __device__ static uint32_t widen_token(uint32_t two_bytes) { return fp8_pair_to_half<Element::fp8_e4m3>(two_bytes); }
    __device__ static void fragment(uint32_t (&a)[4], const Codes& codes, const Group&, int atom, int step) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
            uint32_t pairs[2];
            if constexpr (small_numbers)
                SmallNumbers<Mma>::bytes(codes.word(atom, row, step), pairs);
            else
                widen_bytes<Mma, E>(codes.word(atom, row, step), pairs);
            a[row] = pairs[0], a[2 + row] = pairs[1];
        }
    }
};

}  // namespace lowbit::cuda
