// From accumulators to the output. They hold the weight's rows as rows and tokens as columns; the output is token-major.
//
// Results of 16 bits with nothing but scales and a bias on their way are transposed by the matrix store into [token][64 rows], swizzled as
// the copy engine expects it (piece c of 16 bytes of token t lies at c ^ (t % 8)), and stored in boxes. All else goes, as it is, through
// the same shared memory, and eight rows at a time through the epilogue that every kernel has.
#pragma once
#include "cuda/formats/nibbles.cuh"
#include "cuda/hopper/config.cuh"
#include "cuda/ptx/tensor_copy.cuh"
#include "cuda/ptx/wgmma.cuh"

namespace lowbit::cuda {

// What a box of integers needs besides scales, in the words of the epilogue: nothing; zero points of the tokens; or the sums of bits.
enum class Correction { none, zero_points, bits };

template <class Kind>
constexpr Correction correction_of = std::is_same_v<Kind, ptx::WgmmaInt8Uint8> ? Correction::zero_points
                                     : std::is_same_v<Kind, ptx::WgmmaInt1>    ? Correction::bits
                                                                               : Correction::none;

// Boxes of 64 rows and this many tokens; several are under way: one waits until that which had its place before has been read, and the copy
// engine takes longer for that, behind the stages that it fills, than a warpgroup for the next box. With room for four and more, half of
// them leave at a time: a warpgroup meets less often.
constexpr int store_pass_tokens = 32;
constexpr int token_term_bytes(Correction corrected) {
    return corrected == Correction::none ? 0 : corrected == Correction::zero_points ? 1 : 4;
}
constexpr int store_bytes_of(int boxes, int tokens, Correction corrected) {
    return boxes * store_pass_tokens * ptx::wgmma_row_bytes + tokens * (4 + token_term_bytes(corrected));
}

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

// A warpgroup's share: Blocks x 64 rows, Tokens tokens.
template <class Sum, int Blocks, int Tokens, Correction Corrected, int Boxes>
class HopperStore {
    static constexpr bool corrected = Corrected != Correction::none;
    using TokenTerm = std::conditional_t<Corrected == Correction::zero_points, uint8_t, int32_t>;  // where there is one
    struct alignas(2 * sizeof(TokenTerm)) TermPair {
        TokenTerm of[2];
    };

public:
    static constexpr int pass_tokens = store_pass_tokens, passes = Tokens / pass_tokens, units_of_pass = 1;
    static constexpr int buffers = Boxes, at_once = buffers / 2, sets = buffers / at_once;
    static_assert(Tokens % pass_tokens == 0 && buffers > 1 && Blocks * passes % at_once == 0);
    struct Staging {
        alignas(1024) uint8_t boxes[buffers][pass_tokens * ptx::wgmma_row_bytes];
    };
    struct Plain {
        alignas(16) float token_factor[Tokens];
    };
    struct WithTerms {
        alignas(16) float token_factor[Tokens];
        alignas(16) TokenTerm token_term[Tokens];
    };
    using Terms = std::conditional_t<corrected, WithTerms, Plain>;

    __device__ HopperStore(Staging& staging, Terms& terms, int group) : staging_(staging), terms_(terms), name_(group + 1) {}

    // Before the main loop, so that what is loaded is there when it is needed. Everything is asked for before the first of it is used: they
    // all take as long as one. Terms of rows would not find registers until the store, and come into the cache only.
    __device__ void prefetch(const HopperArgs& args, int row, int token) {
        if (!args.store_boxes) return;
        const EpilogueArgs& e = args.epilogue;
        const auto token_of = [&](int i) { return smaller(int64_t(token) + i * 128 + threadIdx.x % 128, args.token_count - 1); };
        float row_scale[2][Blocks * 2], token_scale[2][factors_per_thread];
        uint32_t bias[Blocks * 2]{};
#pragma unroll
        for (int k = 0; k < 2; ++k) {
#pragma unroll
            for (int i = 0; i < Blocks * 2; ++i) row_scale[k][i] = e.row_scale[k].data ? e.row_scale[k].at(row_of(args, row, i)) : 1.0f;
#pragma unroll
            for (int i = 0; i < factors_per_thread; ++i)
                token_scale[k][i] = e.token_scale[k].data ? e.token_scale[k].at(token_of(i)) : 1.0f;
        }
        if (e.bias.data)
#pragma unroll
            for (int i = 0; i < Blocks * 2; ++i)
                bias[i] = load_bits(e.bias.element, e.bias.data, row_of(args, row, i) * e.bias.column_stride);
        if constexpr (corrected) {
            if (e.row_sums)
#pragma unroll
                for (int i = 0; i < Blocks * 2; ++i) ptx::prefetch_line(e.row_sums + row_of(args, row, i));
#pragma unroll
            for (int i = 0; i < factors_per_thread; ++i) token_term_[i] = token_term(e, token_of(i));
        }
#pragma unroll
        for (int i = 0; i < Blocks * 2; ++i) {
            factor_[i / 2][i % 2] = row_scale[0][i] * row_scale[1][i];
            bias_[i / 2][i % 2] = number_from_bits(e.bias.element, bias[i]);
        }
#pragma unroll
        for (int i = 0; i < factors_per_thread; ++i) token_factor_[i] = e.scale * token_scale[0][i] * token_scale[1][i];
    }

    // Units: of 64 rows and pass_tokens tokens; those that have a bit in `mine` are stored.
    __device__ void store(const HopperArgs& args, Sum (&sums)[Blocks][Tokens / 2], int row, int token, uint32_t mine) {
        args.store_boxes ? store_boxes(args, sums, row, token, mine) : store_anything(args, sums, row, token, mine);
    }

    // The last boxes must have left shared memory before the block ends.
    __device__ void finish() {
        if (threadIdx.x % 128 == 0) ptx::wait_for_stores();
    }

private:
    static constexpr int factors_per_thread = (Tokens + 127) / 128;

    // Of a thread's i-th rows: two of each block.
    __device__ static int64_t row_of(const HopperArgs& args, int row, int i) {
        const int thread = threadIdx.x % 128;
        return smaller(int64_t(row) + i / 2 * 64 + thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8, args.rows - 1);
    }

    __device__ void store_boxes(const HopperArgs& args, Sum (&sums)[Blocks][Tokens / 2], int row, int token, uint32_t mine) {
        const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
        const bool bf16 = args.epilogue.y.element == Element::bf16;
        if constexpr (corrected)
#pragma unroll
            for (int i = 0; i < Blocks * 2; ++i) row_term_[i / 2][i % 2] = row_term(args.epilogue, row_of(args, row, i));
#pragma unroll
        for (int i = 0; i < factors_per_thread; ++i)
            if (i * 128 + thread < Tokens) {
                terms_.token_factor[i * 128 + thread] = token_factor_[i];
                if constexpr (corrected) terms_.token_term[i * 128 + thread] = token_term_[i];
            }
        ptx::meet_warpgroup(name_);
        // This lane's row of the four 8 x 8 matrices: a token of 16, and a piece of eight rows.
        const int inside = lane / 16 * 8 + lane % 8;
        const int offset = inside * ptx::wgmma_row_bytes + ((2 * warp + lane / 8 % 2) ^ (inside % 8)) * 16;
#pragma unroll
        for (int pass = 0; pass < Blocks * passes; pass += at_once) {
            const uint32_t these = mine >> pass & ((1u << at_once) - 1);
            if (!these) continue;
            auto* boxes = staging_.boxes + set_ * at_once;
#pragma unroll
            for (int i = 0; i < at_once; ++i)
                if (these >> i & 1)
                    fill_box(sums[(pass + i) / passes], (pass + i) / passes, (pass + i) % passes * pass_tokens, bf16,
                             ptx::shared_address(boxes[i]) + uint32_t(offset));
            ptx::show_to_copy_engine();
            // Once the boxes that stand where the next ones come have been read, all may write there after the barrier.
            if (thread == 0) ptx::wait_for_stores_to_read<(sets - 2) * at_once>();
            ptx::meet_warpgroup(name_);
            if (thread == 0)
#pragma unroll
                for (int i = 0; i < at_once; ++i)
                    if (these >> i & 1)
                        ptx::store_box(args.output, row + (pass + i) / passes * 64, token + (pass + i) % passes * pass_tokens, boxes[i]);
            set_ = set_ + 1 == sets ? 0 : set_ + 1;
        }
    }

    // Sums of 64 rows and pass_tokens tokens from `first` on; `place`: where this lane's rows of the matrices begin.
    __device__ void fill_box(const Sum (&sums)[Tokens / 2], int block, int first, bool bf16, uint32_t place) const {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int t = 0; t < pass_tokens; t += 16) {
            uint32_t r[4];
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int inside = first + t + half * 8 + lane % 4 * 2;
                const float2 by_token = *reinterpret_cast<const float2*>(terms_.token_factor + inside);
                TermPair term{};
                if constexpr (corrected) term = *reinterpret_cast<const TermPair*>(terms_.token_term + inside);
#pragma unroll
                for (int low = 0; low < 2; ++low) {
                    const Sum* pair = &sums[(first + t) / 2 + half * 4 + low * 2];
                    const float factor = factor_[block][low], bias = bias_[block][low];
                    r[half * 2 + low] = pack_pair(bf16, float(correct(pair[0], block, low, term.of[0])) * (by_token.x * factor) + bias,
                                                  float(correct(pair[1], block, low, term.of[1])) * (by_token.y * factor) + bias);
                }
            }
            ptx::store_transposed(place + uint32_t(t * ptx::wgmma_row_bytes), r);
        }
    }

    // without_zero_points, in a term of the row and one of the token.
    __device__ static int32_t row_term(const EpilogueArgs& e, int64_t row) {
        return Corrected == Correction::bits ? -2 * e.row_sums[row] : e.row_sums ? e.row_sums[row] : 0;
    }
    __device__ static TokenTerm token_term(const EpilogueArgs& e, int64_t token) {
        return TokenTerm(Corrected == Correction::bits ? e.depth - 2 * e.token_sums[token] : e.token_zero.at(token));
    }
    __device__ Sum correct(Sum sum, int block, int low, int32_t term) const {
        if constexpr (Corrected == Correction::bits) return 4 * sum + (row_term_[block][low] + term);
        if constexpr (Corrected == Correction::zero_points) return sum - row_term_[block][low] * term;
        return sum;
    }

    __device__ void store_anything(const HopperArgs& args, Sum (&sums)[Blocks][Tokens / 2], int row, int token, uint32_t mine) {
        const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
        auto* staging = reinterpret_cast<Sum*>(staging_.boxes);
        // Sums of 4 bytes: as many tokens as all buffers hold.
        constexpr int tokens_held = pass_tokens * buffers / 2, fit = tokens_held < Tokens ? tokens_held : Tokens;
        constexpr int any_tokens = fit / pass_tokens * pass_tokens, any_passes = Tokens / any_tokens;
        static_assert(Tokens % any_tokens == 0);
#pragma unroll
        for (int pass = 0; pass < Blocks * any_passes; ++pass) {
            const int block = pass / any_passes, first = pass % any_passes * any_tokens;
            ptx::meet_warpgroup(name_);  // the pass before has been read
#pragma unroll
            for (int i = 0; i < any_tokens / 2; ++i)
                staging[staged(i / 4 * 8 + lane % 4 * 2 + i % 2, warp * 16 + lane / 4 + i / 2 % 2 * 8)] = sums[block][first / 2 + i];
            ptx::meet_warpgroup(name_);
#pragma unroll 1
            for (int inside = 0; inside < any_tokens; inside += pass_tokens)
                if (mine >> (block * passes + (first + inside) / pass_tokens) & 1)
                    finish_pass<Sum>(args, staging + inside * 64, int64_t(row) + block * 64, int64_t(token) + first + inside, pass_tokens);
        }
    }

    Staging& staging_;
    Terms& terms_;
    int name_;  // of the warpgroup's barrier
    int set_ = 0;
    float factor_[Blocks][2], bias_[Blocks][2], token_factor_[factors_per_thread];
    int32_t row_term_[corrected ? Blocks : 1][2];
    TokenTerm token_term_[corrected ? factors_per_thread : 1];
};

// The same for a warpgroup whose accumulators hold tokens as rows, Blocks x 64 of them, and 128 rows of the weight as columns.
template <int Blocks>
class TurnedStore {
    static constexpr int rows = 128, pass_rows = 64, pass_tokens = 64, passes = rows / pass_rows, sums_per_block = rows / 2;

public:
    struct Staging {
        alignas(1024) uint8_t box[pass_tokens * ptx::wgmma_row_bytes];
    };
    struct Terms {
        alignas(16) float row_factor[rows], row_bias[rows];
    };
    static constexpr int bytes = sizeof(Staging) + sizeof(Terms);
    static constexpr int units_of_pass = pass_tokens * pass_rows / (64 * store_pass_tokens);

    __device__ TurnedStore(Staging& staging, Terms& terms, int group) : staging_(staging), terms_(terms), name_(group + 1) {}

    // What belongs to the rows, one for each thread.
    __device__ void prefetch(const HopperArgs& args, int row, int) {
        if (!args.store_boxes) return;
        const EpilogueArgs& e = args.epilogue;
        const int64_t my_row = smaller(int64_t(row) + threadIdx.x % 128, args.rows - 1);
        row_factor_ = e.scale, row_bias_ = e.bias.data ? load_number(e.bias.element, e.bias.data, my_row * e.bias.column_stride) : 0.0f;
#pragma unroll
        for (int k = 0; k < 2; ++k)
            if (e.row_scale[k].data) row_factor_ *= e.row_scale[k].at(my_row);
    }

    // Units: as many sums as above; those of a pass have the same bit in `mine`.
    __device__ void store(const HopperArgs& args, float (&sums)[1][Blocks * sums_per_block], int row, int token, uint32_t mine) {
        if (args.store_boxes) {
            // Nobody reads the terms of the tile before: all have met since.
            terms_.row_factor[threadIdx.x % 128] = row_factor_, terms_.row_bias[threadIdx.x % 128] = row_bias_;
        }
#pragma unroll
        for (int i = 0; i < Blocks * passes; ++i) {
            if (!(mine >> (i * units_of_pass) & 1)) continue;
            const int pass_row = row + i % passes * pass_rows, pass_token = token + i / passes * pass_tokens;
            const float* part = &sums[0][i * pass_rows / 2];
            args.store_boxes ? store_boxes(args, part, i % passes * pass_rows, pass_row, pass_token)
                             : store_anything(args, part, pass_row, pass_token);
        }
    }
    __device__ void finish() {
        if (threadIdx.x % 128 == 0) ptx::wait_for_stores();
    }

private:
    __device__ void store_boxes(const HopperArgs& args, const float* sums, int inside_row, int row, int token) {
        const int thread = threadIdx.x % 128, lane = thread % 32, first_token = thread / 32 * 16;
        const bool bf16 = args.epilogue.y.element == Element::bf16;
        if (thread == 0) ptx::wait_for_stores_to_read<0>();
        ptx::meet_warpgroup(name_);
        float by_token[2] = {1.0f, 1.0f};
#pragma unroll
        for (int i = 0; i < 4; ++i)
            if (args.epilogue.token_scale[i / 2].data)
                by_token[i % 2] *=
                    args.epilogue.token_scale[i / 2].at(smaller(int64_t(token) + first_token + lane / 4 + i % 2 * 8, args.token_count - 1));
        // This lane's row of the four 8 x 8 matrices: a token of the warp's 16, and a piece of eight rows.
        const int inside = first_token + lane % 16;
#pragma unroll
        for (int piece = 0; piece < pass_rows / 8; piece += 2) {
            uint32_t r[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int eight = piece + i / 2, half = i % 2, place = inside_row + eight * 8 + lane % 4 * 2;
                const float2 factor = *reinterpret_cast<const float2*>(terms_.row_factor + place);
                const float2 bias = *reinterpret_cast<const float2*>(terms_.row_bias + place);
                const float* pair = &sums[eight * 4 + half * 2];
                r[i] = pack_pair(bf16, pair[0] * (by_token[half] * factor.x) + bias.x, pair[1] * (by_token[half] * factor.y) + bias.y);
            }
            const int at = inside * ptx::wgmma_row_bytes + ((piece + lane / 16) ^ (inside % 8)) * 16;
            ptx::store_matrices(ptx::shared_address(staging_.box) + uint32_t(at), r);
        }
        ptx::show_to_copy_engine();
        ptx::meet_warpgroup(name_);
        if (thread == 0)
#pragma unroll
            for (int first = 0; first < pass_tokens; first += store_pass_tokens)
                ptx::store_box(args.output, row, token + first, staging_.box + first * ptx::wgmma_row_bytes);
    }

    __device__ void store_anything(const HopperArgs& args, const float* sums, int row, int token) {
        // Sums of 4 bytes: half as many tokens, those of two warps, fit at a time.
        constexpr int tokens_held = sizeof(Staging::box) / (pass_rows * sizeof(float));
        const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
        auto* staging = reinterpret_cast<float*>(staging_.box);
#pragma unroll 1
        for (int first = 0; first < pass_tokens; first += tokens_held) {
            ptx::meet_warpgroup(name_);  // the pass before has been read
            if (warp * 16 / tokens_held == first / tokens_held)
#pragma unroll
                for (int i = 0; i < pass_rows / 2; ++i)
                    staging[staged(warp * 16 % tokens_held + lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2)] = sums[i];
            ptx::meet_warpgroup(name_);
            finish_pass<float>(args, staging, row, int64_t(token) + first, tokens_held);
        }
    }

    Staging& staging_;
    Terms& terms_;
    int name_;  // of the warpgroup's barrier
    float row_factor_, row_bias_;
};

}  // namespace lowbit::cuda
