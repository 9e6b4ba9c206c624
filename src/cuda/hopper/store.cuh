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
// Where the sides of the product have changed places: boxes of 16 tokens (those of a warp) and 32 rows.
constexpr int exchanged_pass_rows = 32, exchanged_pass_tokens = 16, exchanged_box_bytes = 64;  // of a token
constexpr int boxes_at_once(int boxes) { return boxes >= 4 ? 2 : 1; }

// Word (token, row) of so many rows lies where four lanes with neighbouring tokens hit different banks.
template <int Rows = 64>
__device__ inline int staged(int token, int row) {
    return token * Rows + ((row / 8 ^ token / 2 % 4) * 8 + row % 8);
}

// A warpgroup's staged sums of some rows and tokens through the epilogue. A call of its own: a kernel stores in several passes, each of
// which would hold all of it.
template <class Sum, int Rows = 64>
__device__ __noinline__ void finish_pass(const HopperArgs& args, const Sum* staging, int64_t row, int64_t token, int tokens) {
    constexpr int runs = Rows / 8;
    const int thread = threadIdx.x % 128, run = thread % runs;
    const int64_t first_row = row + run * 8;
    if (first_row >= args.rows) return;
    const RowTerms terms = load_row_terms(args.epilogue, first_row, args.rows);
#pragma unroll 1
    for (int t = thread / runs; t < tokens && token + t < args.token_count; t += 128 / runs) {
        alignas(16) Sum products[8];
        const auto* from = reinterpret_cast<const uint4*>(staging + staged<Rows>(t, run * 8));
        *reinterpret_cast<uint4*>(products) = from[0], *reinterpret_cast<uint4*>(products + 4) = from[1];
        store_eight(args.epilogue, terms, token + t, first_row, args.rows, products);
    }
}

__device__ inline uint32_t pack_pair(bool bf16, float low, float high) {
    return bf16 ? as_bits(__floats2bfloat162_rn(low, high)) : as_bits(__floats2half2_rn(low, high));
}

// without_zero_points, in a term of the row and one of the token.
template <Correction Corrected>
using CorrectionTerm = std::conditional_t<Corrected == Correction::bits, float, int32_t>;
template <Correction Corrected, class Sum>
__device__ inline float without_terms(Sum sum, CorrectionTerm<Corrected> row_term, CorrectionTerm<Corrected> token_term) {
    if constexpr (Corrected == Correction::bits) return product_of_signs(sum, row_term, token_term);
    if constexpr (Corrected == Correction::zero_points) return float(sum - row_term * token_term);
    return float(sum);
}

// A warpgroup's share: Blocks x 64 rows, Tokens tokens. `Boxes` are under way at a time; a set of them leaves when all four warps have
// filled it. One warp sends it, another one for each set: the others go on to the next. They all meet only where a set is filled again.
template <class Sum, int Blocks, int Tokens, Correction Corrected, int Boxes>
class HopperStore {
    static constexpr bool corrected = Corrected != Correction::none;
    using Term = CorrectionTerm<Corrected>;

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
                if constexpr (corrected) term[i / 2][i % 2] = terms.row_terms.at(row);
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
        // Terms of tokens are asked for a box ahead: beside the tensor core shared memory takes a hundred clocks to answer.
        TokenTerms now(terms, 0), next = now;
        const auto ask_behind = [&](int step) {
            if (step + 1 < steps && pass_of(step + 1) != pass_of(step)) next = TokenTerms(terms, pass_of(step + 1) * pass_tokens);
        };
#pragma unroll
        for (int round = 0; round < steps / at_once; ++round) {
            const int first = round * at_once, set = round % sets;
            const auto is_mine = [&](int step) { return mine >> unit_of(step) & 1; };
            bool any = false;
#pragma unroll
            for (int i = 0; i < at_once; ++i) any |= is_mine(first + i) != 0;
            if (!any) {
                ask_behind(first + at_once - 1);
                now = next;
                continue;
            }
            if (round >= sets) {
                if (warp_ == set && lane == 0) ptx::wait_for_stores_to_read<0>();
                ptx::meet_warps(name_, 128);
            }
#pragma unroll
            for (int i = 0; i < at_once; ++i) {
                const int step = first + i;
                ask_behind(step);
                if (is_mine(step))
                    fill_box(now, rows, sums[block_of(step)], block_of(step), pass_of(step) * pass_tokens, bf16,
                             place + uint32_t((set * at_once + i) * store_box_bytes));
                now = next;
            }
            ptx::show_to_copy_engine();
            if (warp_ == set) {
                ptx::meet_warps(name_ + 1 + set, 128);
                if (lane == 0) {
#pragma unroll
                    for (int i = 0; i < at_once; ++i)
                        if (is_mine(first + i))
                            ptx::store_box(args.output, row + block_of(first + i) * 64, token + pass_of(first + i) * pass_tokens,
                                           staging_.boxes[set * at_once + i]);
                    ptx::commit_stores();
                }
            } else {
                ptx::announce(name_ + 1 + set, 128);
            }
        }
    }

    // Boxes in the order in which they are filled: all of some tokens, one after the other.
    static constexpr int steps = Blocks * passes;
    __device__ static constexpr int pass_of(int step) { return step / Blocks; }
    __device__ static constexpr int block_of(int step) { return step % Blocks; }
    __device__ static constexpr int unit_of(int step) { return block_of(step) * passes + pass_of(step); }

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
    struct TokenTerms {
        TokenRun<float> factors;
        TokenRun<Term> terms;  // of a correction

        template <class Terms>
        __device__ TokenTerms(const Terms& from, int first) : factors(from.token_factor, first) {
            if constexpr (corrected) terms = TokenRun<Term>(from.token_term, first);
        }
    };

    // Sums of 64 rows and pass_tokens tokens from `first` on; `place`: where this lane's rows of the matrices begin.
    __device__ static void fill_box(const TokenTerms& tokens, const Rows& rows, const Sum (&sums)[Tokens / 2], int block, int first,
                                    bool bf16, uint32_t place) {
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
                    const float product =
                        without_terms<Corrected>(sum, rows.term[corrected ? block : 0][low], tokens.terms.of[eight * 2 + j]);
                    values[j] = product * (tokens.factors.of[eight * 2 + j] * rows.factor[block][low]) + rows.bias[block][low];
                }
                r[i] = pack_pair(bf16, values[0], values[1]);
            }
            ptx::store_transposed(place + uint32_t(t * ptx::wgmma_row_bytes), r);
        }
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

// For sides that have changed places: accumulators hold tokens as rows, Blocks x 64 of them, and Rows rows of the weight as columns. A warp
// stores its 16 tokens by itself, 32 rows at a time; `Boxes` of the warpgroup are under way.
template <class Sum, int Blocks, int Rows, Correction Corrected, int Boxes>
class ExchangedStore {
    static_assert(Corrected != Correction::bits);

public:
    static constexpr int pass_rows = exchanged_pass_rows, pass_tokens = exchanged_pass_tokens;
    static constexpr int passes = Rows / pass_rows, units_of_pass = 1, names = 1;
    static_assert(Rows % pass_rows == 0 && Boxes >= 2);
    struct Staging {
        alignas(1024) uint8_t boxes[Boxes][4][pass_tokens * exchanged_box_bytes];  // of each warp
    };

    __device__ ExchangedStore(Staging& staging, int warp, int name) : staging_(staging), warp_(warp), name_(name) {}

    // Units: of 64 tokens and pass_rows rows; those that have a bit in `mine` are stored. `inside`: the first token's place in the tile.
    template <class Board>
    __device__ void store(const HopperArgs& args, Board& board, typename Board::At at, const Sum (&sums)[Blocks][Rows / 2], int token,
                          int row, int inside, uint32_t mine) {
        if (!args.store_boxes) return store_anything(args, sums, row, token, mine);
        const auto& terms = board.wait_for_terms(at);
        const int lane = threadIdx.x % 32;
        // Those of the tile before have long been read.
        if (lane == 0) ptx::wait_for_stores_to_read<0>();
        __syncwarp();
#pragma unroll
        for (int unit = 0; unit < Blocks * passes; ++unit) {
            if (!(mine >> unit & 1)) continue;
            const int block = unit / passes, first_row = unit % passes * pass_rows, first_token = block * 64 + warp_ * pass_tokens;
            if (unit >= Boxes) {
                if (lane == 0) ptx::wait_for_stores_to_read<0>();
                __syncwarp();
            }
            uint8_t* box = staging_.boxes[unit % Boxes][warp_];
            fill_box(args, terms, &sums[block][first_row / 2], first_row, inside + first_token, box);
            ptx::show_to_copy_engine();
            __syncwarp();
            if (lane == 0) {
                ptx::store_box(args.output, row + first_row, token + first_token, box);
                ptx::commit_stores();
            }
        }
        board.leave_terms(at);
    }
    __device__ void finish() {
        if (threadIdx.x % 32 == 0) ptx::wait_for_stores();
    }

private:
    // Pieces of 16 bytes (eight rows) of a token lie as the copy engine swizzles runs of 64 bytes: piece p of token t at p ^ (t / 2 % 4).
    template <class Terms>
    __device__ static void fill_box(const HopperArgs& args, const Terms& terms, const Sum* sums, int inside_row, int inside_token,
                                    uint8_t* box) {
        const int lane = threadIdx.x % 32, token = lane % 16;
        const bool bf16 = args.epilogue.y.element == Element::bf16;
        float by_token[2];
        int32_t token_term[2] = {};
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int place = term_place(inside_token + lane / 4 + i * 8);
            by_token[i] = terms.token_factor[place];
            if constexpr (Corrected != Correction::none) token_term[i] = terms.token_term[place];
        }
#pragma unroll
        for (int piece = 0; piece < pass_rows / 8; piece += 2) {
            uint32_t r[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int eight = piece + i / 2, half = i % 2, place = inside_row + eight * 8 + lane % 4 * 2;
                const float2 factor = *reinterpret_cast<const float2*>(terms.row_factor + place);
                const float2 bias = *reinterpret_cast<const float2*>(terms.row_bias + place);
                int2 row_term = {};
                if constexpr (Corrected != Correction::none) row_term = terms.row_terms.two_at(place);
                const Sum* pair = sums + eight * 4 + half * 2;
                r[i] =
                    pack_pair(bf16, without_terms<Corrected>(pair[0], row_term.x, token_term[half]) * (by_token[half] * factor.x) + bias.x,
                              without_terms<Corrected>(pair[1], row_term.y, token_term[half]) * (by_token[half] * factor.y) + bias.y);
            }
            // This lane's row of the four 8 x 8 matrices: a token of 16, and a piece of eight rows.
            const int at = token * exchanged_box_bytes + ((piece + lane / 16) ^ token / 2 % 4) * 16;
            ptx::store_matrices(ptx::shared_address(box) + uint32_t(at), r);
        }
    }

    __device__ void store_anything(const HopperArgs& args, const Sum (&sums)[Blocks][Rows / 2], int row, int token, uint32_t mine) {
        const int lane = threadIdx.x % 32;
        auto* staging = reinterpret_cast<Sum*>(staging_.boxes);  // sums of 4 bytes: two boxes hold a unit
#pragma unroll
        for (int unit = 0; unit < Blocks * passes; ++unit) {
            if (!(mine >> unit & 1)) continue;
            const int block = unit / passes, first_row = unit % passes * pass_rows;
            ptx::meet_warps(name_, 128);  // the unit before has been read
#pragma unroll
            for (int i = 0; i < pass_rows / 2; ++i)
                staging[staged<pass_rows>(warp_ * pass_tokens + lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2)] =
                    sums[block][first_row / 2 + i];
            ptx::meet_warps(name_, 128);
            finish_pass<Sum, pass_rows>(args, staging, int64_t(row) + first_row, int64_t(token) + block * 64, 64);
        }
    }

    Staging& staging_;
    int warp_, name_;  // of the warpgroup's barrier
};

}  // namespace lowbit::cuda
