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

// A warpgroup's share: Blocks x 64 rows, Tokens tokens.
template <class Sum, int Blocks, int Tokens>
class HopperStore {
public:
    static constexpr int pass_tokens = Tokens < 64 ? Tokens : 64;
    struct Shared {
        alignas(1024) uint8_t staging[2][pass_tokens * ptx::wgmma_row_bytes];
        alignas(16) float token_factor[Tokens];
    };

    __device__ HopperStore(Shared& shared, int group) : shared_(shared), name_(group + 1) {}

    // Before the main loop, so that what is loaded is there when it is needed.
    __device__ void prefetch(const HopperArgs& args, int row, int token) {
        if (!args.store_boxes) return;
        const int thread = threadIdx.x % 128;
#pragma unroll
        for (int i = 0; i < Blocks * 2; ++i) {
            const int64_t r = row + i / 2 * 64 + thread / 32 * 16 + thread % 32 / 4 + i % 2 * 8;
            const RowTerm term = load_row_term(args.epilogue, r < args.rows ? r : args.rows - 1);
            factor_[i / 2][i % 2] = term.factor, bias_[i / 2][i % 2] = term.bias;
        }
#pragma unroll
        for (int i = 0; i < factors_per_thread; ++i) {
            const int t = i * 128 + thread;
            const int64_t index = int64_t(token) + t;
            token_factor_[i] = t < Tokens ? token_factor(args.epilogue, index < args.token_count ? index : args.token_count - 1) : 0.0f;
        }
    }

    __device__ void store(const HopperArgs& args, Sum (&sums)[Blocks][Tokens / 2], int row, int token) {
        args.store_boxes ? store_boxes(args, sums, row, token) : store_anything(args, sums, row, token);
    }

    // The last boxes must have left shared memory before the block ends.
    __device__ void finish() {
        if (threadIdx.x % 128 == 0) ptx::wait_for_stores();
    }

private:
    static constexpr int factors_per_thread = (Tokens + 127) / 128, passes = Tokens / pass_tokens;

    __device__ void store_boxes(const HopperArgs& args, Sum (&sums)[Blocks][Tokens / 2], int row, int token) {
        const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
        const bool bf16 = args.epilogue.y.element == Element::bf16;
#pragma unroll
        for (int i = 0; i < factors_per_thread; ++i)
            if (i * 128 + thread < Tokens) shared_.token_factor[i * 128 + thread] = token_factor_[i];
        ptx::meet_warpgroup(name_);
        // This lane's row of the four 8 x 8 matrices: a token of 16, and a piece of eight rows.
        const int inside = lane / 16 * 8 + lane % 8;
        const int offset = inside * ptx::wgmma_row_bytes + ((2 * warp + lane / 8 % 2) ^ (inside % 8)) * 16;
#pragma unroll
        for (int pass = 0; pass < Blocks * passes; ++pass) {
            const int block = pass / passes, first = pass % passes * pass_tokens;
            uint8_t* staging = shared_.staging[buffer_];
#pragma unroll
            for (int t = 0; t < pass_tokens; t += 16) {
                uint32_t r[4];
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const float2 by_token = *reinterpret_cast<const float2*>(shared_.token_factor + first + t + half * 8 + lane % 4 * 2);
#pragma unroll
                    for (int low = 0; low < 2; ++low) {
                        const Sum* pair = &sums[block][(first + t) / 2 + half * 4 + low * 2];
                        const float factor = factor_[block][low], bias = bias_[block][low];
                        r[half * 2 + low] =
                            pack(bf16, float(pair[0]) * (by_token.x * factor) + bias, float(pair[1]) * (by_token.y * factor) + bias);
                    }
                }
                ptx::store_transposed(ptx::shared_address(staging) + uint32_t(t * ptx::wgmma_row_bytes + offset), r);
            }
            ptx::show_to_copy_engine();
            // The other buffer's box was stored a pass ago; once it has been read, all may write there after the barrier.
            if (thread == 0) ptx::wait_for_stores_to_read();
            ptx::meet_warpgroup(name_);
            if (thread == 0) ptx::store_box(args.output, row + block * 64, token + first, staging);
            buffer_ ^= 1;
        }
    }

    __device__ static uint32_t pack(bool bf16, float low, float high) {
        return bf16 ? as_bits(__floats2bfloat162_rn(low, high)) : as_bits(__floats2half2_rn(low, high));
    }

    // Word (token, row) of 64 rows lies where four lanes with neighbouring tokens hit different banks.
    __device__ static int staged(int token, int row) { return token * 64 + ((row / 8 ^ token / 2 % 4) * 8 + row % 8); }

    __device__ void store_anything(const HopperArgs& args, Sum (&sums)[Blocks][Tokens / 2], int row, int token) {
        const int thread = threadIdx.x % 128, lane = thread % 32, warp = thread / 32;
        auto* staging = reinterpret_cast<Sum*>(shared_.staging);
#pragma unroll
        for (int pass = 0; pass < Blocks * passes; ++pass) {
            const int block = pass / passes, first = pass % passes * pass_tokens;
            ptx::meet_warpgroup(name_);  // the pass before has been read
#pragma unroll
            for (int i = 0; i < pass_tokens / 2; ++i)
                staging[staged(i / 4 * 8 + lane % 4 * 2 + i % 2, warp * 16 + lane / 4 + i / 2 % 2 * 8)] = sums[block][first / 2 + i];
            ptx::meet_warpgroup(name_);
            const int run = thread % 8;
            const int64_t first_row = int64_t(row) + block * 64 + run * 8;
            if (first_row >= args.rows) continue;
            const RowTerms terms = load_row_terms(args.epilogue, first_row, args.rows);
#pragma unroll 1
            for (int t = thread / 8; t < pass_tokens && token + first + t < args.token_count; t += 16) {
                alignas(16) Sum products[8];
                const auto* from = reinterpret_cast<const uint4*>(staging + staged(t, run * 8));
                *reinterpret_cast<uint4*>(products) = from[0], *reinterpret_cast<uint4*>(products + 4) = from[1];
                store_eight(args.epilogue, terms, int64_t(token) + first + t, first_row, args.rows, products);
            }
        }
    }

    Shared& shared_;
    int name_;  // of the warpgroup's barrier
    int buffer_ = 0;
    float factor_[Blocks][2], bias_[Blocks][2], token_factor_[factors_per_thread];
};

}  // namespace lowbit::cuda
