// From accumulators to the output. They hold the weight's rows as rows and tokens as columns; the output is token-major.
//
// Results of 16 bits with nothing but scales and a bias on their way are transposed by the matrix store into [token][64 rows], swizzled as
// the copy engine expects it (piece c of 16 bytes of token t lies at c ^ (t % 8)), and stored in boxes. All else goes, as it is, through
// the same shared memory, and eight rows at a time through the epilogue that every kernel has.
#pragma once
#include "cuda/formats/nibbles.cuh"
#include "cuda/hopper/pieces.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace lowbit::cuda {

// Boxes of 64 rows and this many tokens. Two leave at a time where there is room for four and more.
constexpr int store_pass_tokens = 32, store_box_bytes = store_pass_tokens * ptx::wgmma_row_bytes;
constexpr int boxes_at_once(int boxes) { return boxes >= 4 ? 2 : 1; }

// Word (token, row) of 64 rows lies where four lanes with neighbouring tokens hit different banks.
__device__ inline int staged(int token, int row) { return token * 64 + ((row / 8 ^ token / 2 % 4) * 8 + row % 8); }

// A warpgroup's staged sums of 64 rows and some tokens through the epilogue. A call of its own: a kernel stores in several passes, each of
// which would hold all of it.
template <class Sum>
__device__ __noinline__ void finish_pass(const HopperArgs& args, const Sum* staging, int64_t row, int64_t token, int tokens) {
    const int thread = threadIdx.x % 128, run = thread % 8;
    const int64_t first_row = row + run * 8;
    if (first_row >= args.rows) return;
    const RowTerms terms = load_row_terms(args.epilogue, first_row, args.rows);
#pragma unroll 1
    for (int t = thread / 8; t < tokens && token + t < args.token_count; t += 16) {
        alignas(16) Sum products[8];
        const auto* from = reinterpret_cast<const uint4*>(staging + staged(t, run * 8));
        *reinterpret_cast<uint4*>(products) = from[0], *reinterpret_cast<uint4*>(products + 4) = from[1];
        store_eight(args.epilogue, terms, token + t, first_row, args.rows, products);
    }
}

__device__ inline uint32_t pack_pair(bool bf16, float low, float high) {
    return bf16 ? as_bits(__floats2bfloat162_rn(low, high)) : as_bits(__floats2half2_rn(low, high));
}

// A warpgroup's share: Blocks x 64 rows, Tokens tokens. `Boxes` are under way at a time; a set of them leaves when all four warps have
// filled it. One warp sends it, another one for each set: the others go on to the next. They all meet only where a set is filled again.
template <class Sum, int Blocks, int Tokens, Correction Corrected, int Boxes>
class HopperStore {
    static constexpr bool corrected = Corrected != Correction::none;
    using Term = std::conditional_t<Corrected == Correction::bits, float, int32_t>;

public:
    static constexpr int pass_tokens = store_pass_tokens, passes = Tokens / pass_tokens, units_of_pass = 1;
    static constexpr int at_once = boxes_at_once(Boxes), sets = Boxes / at_once;
    static_assert(Tokens % pass_tokens == 0 && Boxes % at_once == 0 && sets > 1 && sets <= 4 && Blocks * passes % at_once == 0);
    static constexpr int names = 1 + sets;  // of barriers: all may fill, and a set is full
    struct Staging {
        alignas(1024) uint8_t boxes[Boxes][store_box_bytes];
    };

    // `warp`: of the warpgroup; the compiler must see that it is uniform. `name`: the first of `names`.
    __device__ HopperStore(Staging& staging, int warp, int name) : staging_(staging), warp_(warp), name_(name) {}

    // Units: of 64 rows and pass_tokens tokens; those that have a bit in `mine` are stored. `inside`: the first row's place in the tile.
    template <class Board>
    __device__ void store(const HopperArgs& args, Board& board, typename Board::At at, Sum (&sums)[Blocks][Tokens / 2], int row, int token,
                          int inside, uint32_t mine) {
        if (!args.store_boxes) return store_anything(args, sums, row, token, mine);
        const auto& terms = board.wait_for_terms(at);
        const bool bf16 = args.epilogue.y.element == Element::bf16;
        // Where stores take longer than products (bits), the two types of results have code of their own: in common code every pair is
        // packed twice, by instructions with a condition.
        if (Corrected == Correction::bits && bf16)
            store_boxes(args, terms, sums, row, token, inside, mine, true);
        else
            store_boxes(args, terms, sums, row, token, inside, mine, Corrected != Correction::bits && bf16);
        board.leave_terms(at);
    }

    // The last boxes must have left shared memory before the block ends.
    __device__ void finish() {
        if (threadIdx.x % 32 == 0) ptx::wait_for_stores();
    }

private:
    // What a thread has of the terms of its rows: two of each block.
    struct Rows {
        float factor[Blocks][2], bias[Blocks][2];
        Term term[corrected ? Blocks : 1][2];

        template <class Terms>
        __device__ Rows(const Terms& terms, int inside) {
            const int thread = threadIdx.x % 128;
#pragma unroll
            for (int i = 0; i < Blocks * 2; ++i) {
                const int row = inside + i / 2 * 64 + thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8;
                factor[i / 2][i % 2] = terms.row_factor[row], bias[i / 2][i % 2] = terms.row_bias[row];
                if constexpr (corrected) term[i / 2][i % 2] = terms.row_term[row];
            }
        }
    };

    template <class Terms>
    __device__ __forceinline__ void store_boxes(const HopperArgs& args, const Terms& terms, const Sum (&sums)[Blocks][Tokens / 2], int row,
                                                int token, int inside, uint32_t mine, bool bf16) {
        const int lane = threadIdx.x % 32;
        const Rows rows(terms, inside);
        // Each warp for the boxes that it sent: those of the tile before have long been read.
        if (lane == 0) ptx::wait_for_stores_to_read<0>();
        ptx::meet_warps(name_, 128);
        // This lane's row of the four 8 x 8 matrices: a token of 16, and a piece of eight rows.
        const int lane_token = lane / 16 * 8 + lane % 8;
        const uint32_t place = ptx::shared_address(staging_.boxes) +
                               uint32_t(lane_token * ptx::wgmma_row_bytes + ((2 * warp_ + lane / 8 % 2) ^ lane % 8) * 16);
#pragma unroll
        for (int round = 0; round < Blocks * passes / at_once; ++round) {
            const int pass = round * at_once, set = round % sets;
            const uint32_t these = mine >> pass & ((1u << at_once) - 1);
            if (!these) continue;
            if (round >= sets) {
                if (warp_ == set && lane == 0) ptx::wait_for_stores_to_read<0>();
                ptx::meet_warps(name_, 128);
            }
#pragma unroll
            for (int i = 0; i < at_once; ++i)
                if (these >> i & 1)
                    fill_box(terms, rows, sums[(pass + i) / passes], (pass + i) / passes, (pass + i) % passes * pass_tokens, bf16,
                             place + uint32_t((set * at_once + i) * store_box_bytes));
            ptx::show_to_copy_engine();
            if (warp_ == set) {
                ptx::meet_warps(name_ + 1 + set, 128);
                if (lane == 0) {
#pragma unroll
                    for (int i = 0; i < at_once; ++i)
                        if (these >> i & 1)
                            ptx::store_box(args.output, row + (pass + i) / passes * 64, token + (pass + i) % passes * pass_tokens,
                                           staging_.boxes[set * at_once + i]);
                    ptx::commit_stores();
                }
            } else {
                ptx::announce(name_ + 1 + set, 128);
            }
        }
    }

    // Sums of 64 rows and pass_tokens tokens from `first` on; `place`: where this lane's rows of the matrices begin.
    template <class Terms>
    __device__ static void fill_box(const Terms& terms, const Rows& rows, const Sum (&sums)[Tokens / 2], int block, int first, bool bf16,
                                    uint32_t place) {
        const TokenRun<float> factors(terms.token_factor, first);
        TokenRun<Term> token_terms;
        if constexpr (corrected) token_terms = TokenRun<Term>(terms.token_term, first);
#pragma unroll
        for (int t = 0; t < pass_tokens; t += 16) {
            uint32_t r[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int eight = t / 8 + i / 2, low = i % 2;
                float values[2];
#pragma unroll
                for (int j = 0; j < 2; ++j) {
                    const Sum sum = sums[(first + eight * 8) / 2 + low * 2 + j];
                    const float product = correct(sum, rows.term[corrected ? block : 0][low], token_terms.of[eight * 2 + j]);
                    values[j] = product * (factors.of[eight * 2 + j] * rows.factor[block][low]) + rows.bias[block][low];
                }
                r[i] = pack_pair(bf16, values[0], values[1]);
            }
            ptx::store_transposed(place + uint32_t(t * ptx::wgmma_row_bytes), r);
        }
    }

    // A thread's eight of the terms of 32 tokens.
    template <class Number>
    struct TokenRun {
        Number of[term_run / 4];

        TokenRun() = default;
        template <class Term>
        __device__ TokenRun(const Term* terms, int first) {
            struct alignas(sizeof(Term) * 8 < 16 ? sizeof(Term) * 8 : 16) Run {
                Term of[8];
            };
            const Run run = reinterpret_cast<const Run*>(terms + first)[threadIdx.x % 4];
#pragma unroll
            for (int i = 0; i < 8; ++i) of[i] = Number(run.of[i]);
        }
    };

    // without_zero_points, in a term of the row and one of the token.
    __device__ static float correct(Sum sum, Term row_term, Term token_term) {
        if constexpr (Corrected == Correction::bits) return product_of_signs(sum, row_term, token_term);
        if constexpr (Corrected == Correction::zero_points) return float(sum - row_term * token_term);
        return float(sum);
    }

    __device__ void store_anything(const HopperArgs& args, Sum (&sums)[Blocks][Tokens / 2], int row, int token, uint32_t mine) {
        const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
        auto* staging = reinterpret_cast<Sum*>(staging_.boxes);
        // Sums of 4 bytes: as many tokens as all boxes have room for, and a part of all.
        constexpr int held = Boxes / 2 < passes ? Boxes / 2 : passes, any_tokens = (passes % held == 0 ? held : 1) * pass_tokens;
        constexpr int any_passes = Tokens / any_tokens;
#pragma unroll
        for (int pass = 0; pass < Blocks * any_passes; ++pass) {
            const int block = pass / any_passes, first = pass % any_passes * any_tokens;
            ptx::meet_warps(name_, 128);  // the pass before has been read
#pragma unroll
            for (int i = 0; i < any_tokens / 2; ++i)
                staging[staged(i / 4 * 8 + lane % 4 * 2 + i % 2, warp * 16 + lane / 4 + i / 2 % 2 * 8)] = sums[block][first / 2 + i];
            ptx::meet_warps(name_, 128);
#pragma unroll 1
            for (int inside = 0; inside < any_tokens; inside += pass_tokens)
                if (mine >> (block * passes + (first + inside) / pass_tokens) & 1)
                    finish_pass<Sum>(args, staging + inside * 64, int64_t(row) + block * 64, int64_t(token) + first + inside, pass_tokens);
        }
    }

    Staging& staging_;
    int warp_, name_;
};

// The same for a warpgroup whose accumulators hold tokens as rows, Blocks x 64 of them, and 128 rows of the weight as columns.
template <int Blocks>
class TurnedStore {
    static constexpr int rows = 128, pass_rows = 64, pass_tokens = 64, passes = rows / pass_rows, sums_per_block = rows / 2;

public:
    struct Staging {
        alignas(1024) uint8_t box[pass_tokens * ptx::wgmma_row_bytes];
    };
    static constexpr int units_of_pass = pass_tokens * pass_rows / (64 * store_pass_tokens), names = 1;

    __device__ TurnedStore(Staging& staging, int, int name) : staging_(staging), name_(name) {}

    // Units: as many sums as above; those of a pass have the same bit in `mine`. `inside`: the first token's place in the tile.
    template <class Board>
    __device__ void store(const HopperArgs& args, Board& board, typename Board::At at, float (&sums)[1][Blocks * sums_per_block], int row,
                          int token, int inside, uint32_t mine) {
        const auto& terms = args.store_boxes ? board.wait_for_terms(at) : board.terms[0];
#pragma unroll
        for (int i = 0; i < Blocks * passes; ++i) {
            if (!(mine >> (i * units_of_pass) & 1)) continue;
            const int pass_row = i % passes * pass_rows, pass_token = i / passes * pass_tokens;
            const float* part = &sums[0][i * pass_rows / 2];
            args.store_boxes ? store_boxes(args, terms, part, pass_row, inside + pass_token, row + pass_row, token + pass_token)
                             : store_anything(args, part, row + pass_row, token + pass_token);
        }
        if (args.store_boxes) board.leave_terms(at);
    }
    __device__ void finish() {
        if (threadIdx.x % 128 == 0) ptx::wait_for_stores();
    }

private:
    template <class Terms>
    __device__ void store_boxes(const HopperArgs& args, const Terms& terms, const float* sums, int inside_row, int inside_token, int row,
                                int token) {
        const int thread = threadIdx.x % 128, lane = thread % 32, first_token = thread / 32 * 16;
        const bool bf16 = args.epilogue.y.element == Element::bf16;
        float by_token[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) by_token[i] = terms.token_factor[term_place(inside_token + first_token + lane / 4 + i * 8)];
        uint32_t r[pass_rows / 16][4];
#pragma unroll
        for (int i = 0; i < pass_rows / 4; ++i) {
            const int eight = i / 2, half = i % 2, place = inside_row + eight * 8 + lane % 4 * 2;
            const float2 factor = *reinterpret_cast<const float2*>(terms.row_factor + place);
            const float2 bias = *reinterpret_cast<const float2*>(terms.row_bias + place);
            const float* pair = &sums[eight * 4 + half * 2];
            r[i / 4][i % 4] =
                pack_pair(bf16, pair[0] * (by_token[half] * factor.x) + bias.x, pair[1] * (by_token[half] * factor.y) + bias.y);
        }
        // Only now: the copy engine reads the box of the pass before while this one's results are made.
        if (thread == 0) ptx::wait_for_stores_to_read<0>();
        ptx::meet_warps(name_, 128);
        // This lane's row of the four 8 x 8 matrices: a token of the warp's 16, and a piece of eight rows.
        const int inside = first_token + lane % 16;
#pragma unroll
        for (int piece = 0; piece < pass_rows / 8; piece += 2) {
            const int at = inside * ptx::wgmma_row_bytes + ((piece + lane / 16) ^ (inside % 8)) * 16;
            ptx::store_matrices(ptx::shared_address(staging_.box) + uint32_t(at), r[piece / 2]);
        }
        ptx::show_to_copy_engine();
        ptx::meet_warps(name_, 128);
        if (thread == 0) {
#pragma unroll
            for (int first = 0; first < pass_tokens; first += store_pass_tokens)
                ptx::store_box(args.output, row, token + first, staging_.box + first * ptx::wgmma_row_bytes);
            ptx::commit_stores();
        }
    }

    __device__ void store_anything(const HopperArgs& args, const float* sums, int row, int token) {
        // Sums of 4 bytes: half as many tokens, those of two warps, fit at a time.
        constexpr int tokens_held = sizeof(Staging::box) / (pass_rows * sizeof(float));
        const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
        auto* staging = reinterpret_cast<float*>(staging_.box);
#pragma unroll 1
        for (int first = 0; first < pass_tokens; first += tokens_held) {
            ptx::meet_warps(name_, 128);  // the pass before has been read
            if (warp * 16 / tokens_held == first / tokens_held)
#pragma unroll
                for (int i = 0; i < pass_rows / 2; ++i)
                    staging[staged(warp * 16 % tokens_held + lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2)] = sums[i];
            ptx::meet_warps(name_, 128);
            finish_pass<float>(args, staging, row, int64_t(token) + first, tokens_held);
        }
    }

    Staging& staging_;
    int name_;  // of the warpgroup's barrier
};

}  // namespace lowbit::cuda
