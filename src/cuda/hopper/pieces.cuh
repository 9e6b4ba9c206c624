// What a block works at, piece by piece: tiles, or parts of their K. Which ones everybody knows; where they lie takes divisions. Two warps
// of those that do not multiply find that out, and what the epilogue needs for a piece's rows and tokens, while the warpgroups still
// multiply the piece before. (When they did so themselves, the tensor core waited 1,400 clocks for it between two tiles.)
#pragma once
#include "cuda/hopper/config.cuh"
#include "cuda/hopper/ring.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace lowbit::cuda {

struct Piece {
    int tile;              // its number in the schedule
    int k_first, k_count;  // in stages
    bool half;             // of a last tile whose K two blocks share out
};

// The first row and token of a tile.
struct alignas(8) Corner {
    int row, token;
};

// What an integer product needs besides scales, in the words of the epilogue: nothing; zero points of the tokens; or the sums of bits.
enum class Correction { none, zero_points, bits };

template <class Kind>
constexpr Correction correction_of = std::is_base_of_v<ptx::WgmmaInt8Uint8, Kind> ? Correction::zero_points
                                     : std::is_same_v<Kind, ptx::WgmmaInt1>       ? Correction::bits
                                                                                  : Correction::none;

// Terms of tokens lie in the order in which a thread of the store reads them: of every 32 tokens, those that one thread has (two of each
// eight) are neighbours.
constexpr int term_run = 32;
__host__ __device__ constexpr int term_place(int token) {
    return token / term_run * term_run + token % 8 / 2 * 8 + token % term_run / 8 * 2 + token % 2;
}

template <int Rows, int Tokens>
struct PlainTerms {
    alignas(16) float token_factor[Tokens];
    float row_factor[Rows], row_bias[Rows];
};
// A product is corrected by a term of its row and one of its token.
template <int Rows, int Tokens, template <int> class RowTerms, class TokenTerm>
struct CorrectedTerms {
    alignas(16) float token_factor[Tokens];
    alignas(16) TokenTerm token_term[Tokens];
    float row_factor[Rows], row_bias[Rows];
    RowTerms<Rows> row_terms;
};
template <int Rows>
struct BitTerms {
    float of[Rows];

    __device__ void set(int row, float term) { of[row] = term; }
    __device__ float at(int row) const { return of[row]; }
};
// Sums of int8 rows of up to this many columns, in three bytes: with four the tile 192x128 would have no room for its fifth stage.
constexpr int64_t most_columns_of_row_sums = int64_t(1) << 16;
template <int Rows>
struct RowSums {
    alignas(4) uint16_t low[Rows];
    alignas(2) int8_t high[Rows];

    __device__ void set(int row, int32_t sum) { low[row] = uint16_t(sum), high[row] = int8_t(sum >> 16); }
    __device__ int32_t at(int row) const { return high[row] * 0x10000 + low[row]; }
    // Of an even row and the next one.
    __device__ int2 two_at(int row) const {
        const auto lows = *reinterpret_cast<const ushort2*>(low + row);
        const auto highs = *reinterpret_cast<const char2*>(high + row);
        return {highs.x * 0x10000 + lows.x, highs.y * 0x10000 + lows.y};
    }
};
template <int Rows, int Tokens, Correction Corrected>
using PieceTerms =
    std::conditional_t<Corrected == Correction::none, PlainTerms<Rows, Tokens>,
                       std::conditional_t<Corrected == Correction::zero_points, CorrectedTerms<Rows, Tokens, RowSums, uint8_t>,
                                          CorrectedTerms<Rows, Tokens, BitTerms, float>>>;

// A count of bits is an fp32 number as it stands, count * 2^-149: those around the smallest normal one count evenly. Two multiply-adds with
// powers of two make the product of signs of it, 4 * count + row_term + token_term, exactly up to this many bits; beside the tensor core
// they take less time than integers and a conversion.
constexpr int64_t most_bits_as_floats = int64_t(1) << 22;
constexpr float bits_row_unit = 0x1p-24f;
__device__ inline float product_of_signs(int count, float row_term, float token_term) {
    return __fmaf_rn(__fmaf_rn(__int_as_float(count), 0x1p127f, row_term), 1.0f / bits_row_unit, token_term);
}

// Some terms that a lane brings at once: everything is asked for before the first of it is used, so that they all take as long as one.
template <int Count>
struct TermBatch {
    int64_t index[Count];
    float scales[2][Count];

    // Every 32nd from `first` on; behind the last one, the last.
    __device__ TermBatch(int64_t first, int64_t count) {
#pragma unroll
        for (int i = 0; i < Count; ++i) index[i] = smaller(first + i * 32, count - 1);
    }
    __device__ void ask(const ScaleVector (&given)[2]) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
#pragma unroll
            for (int i = 0; i < Count; ++i) scales[k][i] = 1.0f;
            if (given[k].data)
#pragma unroll
                for (int i = 0; i < Count; ++i) scales[k][i] = given[k].at(index[i]);
        }
    }
};
template <int Terms>
constexpr int terms_at_once = Terms % 128 == 0  ? 4
                              : Terms % 64 == 0 ? 2
                                                : 1;

// By a whole warp, for the tile at this corner.
template <int Rows, int Tokens, Correction Corrected>
__device__ inline void bring_token_terms(const HopperArgs& args, Corner corner, PieceTerms<Rows, Tokens, Corrected>& terms) {
    constexpr int count = terms_at_once<Tokens>;
    const EpilogueArgs& e = args.epilogue;
#pragma unroll 1
    for (int first = threadIdx.x % 32; first < Tokens; first += count * 32) {
        TermBatch<count> batch(int64_t(corner.token) + first, args.token_count);
        batch.ask(e.token_scale);
        int corrections[count];
        if constexpr (Corrected != Correction::none)
#pragma unroll
            for (int i = 0; i < count; ++i)
                corrections[i] =
                    Corrected == Correction::bits ? e.depth - 2 * e.token_sums[batch.index[i]] : e.token_zero.at(batch.index[i]);
#pragma unroll
        for (int i = 0; i < count; ++i) {
            const int place = term_place(first + i * 32);
            terms.token_factor[place] = e.scale * batch.scales[0][i] * batch.scales[1][i];
            if constexpr (Corrected == Correction::bits) terms.token_term[place] = float(corrections[i]);
            if constexpr (Corrected == Correction::zero_points) terms.token_term[place] = uint8_t(corrections[i]);
        }
    }
}
// InTiles: the weight's own scales, one for each row, stand in the order of packed tiles.
template <int Rows, int Tokens, Correction Corrected, bool InTiles>
__device__ inline void bring_row_terms(const HopperArgs& args, Corner corner, PieceTerms<Rows, Tokens, Corrected>& terms) {
    constexpr int count = terms_at_once<Rows>;
    const EpilogueArgs& e = args.epilogue;
#pragma unroll 1
    for (int first = threadIdx.x % 32; first < Rows; first += count * 32) {
        TermBatch<count> batch(int64_t(corner.row) + first, args.rows);
        batch.ask(e.row_scale);
        uint32_t own[count], bias[count]{};
        if constexpr (InTiles)
#pragma unroll
            for (int i = 0; i < count; ++i) own[i] = args.group_scales.bits_at(batch.index[i], 0);
        if (e.bias.data)
#pragma unroll
            for (int i = 0; i < count; ++i) bias[i] = load_bits(e.bias.element, e.bias.data, batch.index[i] * e.bias.column_stride);
        int32_t sums[count]{};
        if (Corrected != Correction::none && e.row_sums)
#pragma unroll
            for (int i = 0; i < count; ++i) sums[i] = e.row_sums[batch.index[i]];
#pragma unroll
        for (int i = 0; i < count; ++i) {
            const int row = first + i * 32;
            terms.row_factor[row] = batch.scales[0][i] * batch.scales[1][i];
            if constexpr (InTiles) terms.row_factor[row] *= number_from_bits(args.group_scales.element, own[i]);
            terms.row_bias[row] = number_from_bits(e.bias.element, bias[i]);
            if constexpr (Corrected == Correction::bits) terms.row_terms.set(row, float(-2 * sums[i]) * bits_row_unit);
            if constexpr (Corrected == Correction::zero_points) terms.row_terms.set(row, sums[i]);
        }
    }
}

// The corner of a block's piece i stands in corners[i % 2], its terms in terms[i % Sets].
// told[i % 2]: an arrival of the thread that wrote it. terms_there[i % 2]: of every lane of the two warps that bring terms. heard,
// terms_read: of every warp that works at the piece.
template <class Terms, int Sets>
struct PieceBoard {
    using At = RingPlace<2>;
    Corner corners[2];
    ptx::Barrier told[2], heard[2], terms_there[2], terms_read[2];
    Terms terms[Sets];

    __device__ void initialise(int listening) {
        for (int i = 0; i < 2; ++i) {
            ptx::init_barrier(told + i, 1), ptx::init_barrier(terms_there + i, 2 * 32);
            ptx::init_barrier(heard + i, listening), ptx::init_barrier(terms_read + i, listening);
        }
    }

    // By a whole warp.
    __device__ void tell(At at, Corner corner) {
        ptx::wait_for(heard + at.stage, at.parity ^ 1);
        if (threadIdx.x % 32 == 0) {
            corners[at.stage] = corner;
            ptx::arrive(told + at.stage);
        }
        __syncwarp();
    }
    __device__ Corner hear(At at) {
        ptx::wait_for(told + at.stage, at.parity);
        const Corner corner = corners[at.stage];
        leave(heard + at.stage);
        return {__shfl_sync(~0u, corner.row, 0), __shfl_sync(~0u, corner.token, 0)};  // tells the compiler that they are uniform
    }

    // A warp that brings terms waits until those which stand there have been read, by whoever works at the piece `Sets` before this one.
    __device__ Terms& terms_to_bring(At at) {
        if constexpr (Sets == 2)
            ptx::wait_for(terms_read + at.stage, at.parity ^ 1);
        else if (at.stage == 1)
            ptx::wait_for(terms_read, at.parity);
        else
            ptx::wait_for(terms_read + 1, at.parity ^ 1);
        return terms[Sets == 2 ? at.stage : 0];
    }
    // By every lane, for what it wrote itself. (One lane for all, after __syncwarp, orders the same; but where the compiler sees a
    // converged warp nothing is left of that, and racecheck reported hazards, presumably for that reason.)
    __device__ void terms_are_there(At at) { ptx::arrive(terms_there + at.stage); }
    __device__ const Terms& wait_for_terms(At at) {
        ptx::wait_for(terms_there + at.stage, at.parity);
        return terms[Sets == 2 ? at.stage : 0];
    }
    __device__ void leave_terms(At at) { leave(terms_read + at.stage); }

private:
    __device__ static void leave(ptx::Barrier* barrier) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) ptx::arrive(barrier);
    }
};

}  // namespace lowbit::cuda
