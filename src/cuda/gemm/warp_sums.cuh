// What a warp of the Ampere main loop (ampere.cuh) multiplies: fragments into part sums, and those, times the scales of their groups, into
// sums.
#pragma once
#include "cuda/gemm/ampere_config.cuh"

namespace lowbit::cuda {

// The sums of one warp, the group they are in, and the fragments it multiplies next.
template <class C>
class WarpSums {
    using Shape = typename C::Shape;
    using Mma = typename C::Mma;
    using Source = typename C::Source;

public:
    __device__ WarpSums(const AmpereArgs& args, const WorkItem<C>& work) : args_(args) {
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        warp_row_ = warp % Shape::WarpRows;
        warp_token_ = warp / Shape::WarpRows % Shape::WarpTokens;
        warp_depth_ = warp / (Shape::WarpRows * Shape::WarpTokens);
        first_row_ = work.first_row + warp_row_ * Shape::rows_per_warp;
        first_token_ = work.first_token + warp_token_ * Shape::tokens_per_warp;
        constexpr int pair = Shape::token_fragments % 2 == 0;  // one load brings the fragments of 16 tokens
        const int token = warp_token_ * Shape::tokens_per_warp + lane % 8 + (pair ? lane / 16 * 8 : 0);
        const uint32_t place = uint32_t(warp_depth_ * Shape::Chain * C::k_block_bytes);
        rows_at_ = place + Source::first(warp_row_ * Shape::rows_per_warp);
        tokens_at_ = place + C::weight_bytes + uint32_t(swizzled(token, lane / 8 % 2));
        ptx::hold(rows_at_), ptx::hold(tokens_at_);
        if constexpr ((C::Grouped || C::Folded) && Source::decodes)
#pragma unroll
            for (int i = 0; i < Shape::row_fragments; ++i) {
                // Tiles beyond the matrix: the last one's scales will do, their products are never stored.
                scales_at_[i] = args.row_groups.pair_offset(smaller(first_row_ / 16 + i, (args.rows - 1) / 16), lane / 4);
                ptx::hold(scales_at_[i]);
            }
        if constexpr (C::Folded) {
            group_ahead_ = args.row_groups.group_of(work.first_stage * block_values);
            fetch_group();
        }
    }
    __device__ int warp_depth() const { return warp_depth_; }

    // The fragments of the first step of a stage.
    __device__ void begin(uint32_t stage) {
        load(operands_[0], stage, 0);
#pragma unroll
        for (int i = 0; i < Shape::row_fragments; ++i) Source::keep(kept_[i], stage, rows_at_, i);
    }

    // Multiplies the k block of this warp in a stage, whose first step is loaded already. Fragments are loaded a step ahead: those of a
    // step while the one before is multiplied, and before the last one `next` waits for the next stage and says where it lies. `meanwhile`
    // is called copy_parts times, for copies to be strewn between the steps.
    template <class Meanwhile, class Next>
    __device__ void multiply(uint32_t stage, int first_block, const Meanwhile& meanwhile, const Next& next) {
        const int block = first_block + warp_depth_ * Shape::Chain, first = block * block_values;
        bool whole = true;  // no group ends inside of the block: nearly always
        if constexpr (C::Grouped)
            if (Shape::blocks_per_stage == 1 || block < args_.k_blocks) {  // what lies beyond is 0 times 0, of any group
                enter_group(first);
                whole = group_end_ >= first + block_values;
            }
        if constexpr (C::Folded)
            if (first >= group_end_) {
                open_fetched_group();
                group_end_ = end_of(++group_ahead_ * args_.row_groups.group);
                fetch_group();
            }
        if constexpr (Shape::WarpDepth == 1)
            if (!whole) {  // all warps of the block alike, so that the rest has no branches
#pragma unroll
                for (int part = 0; part < copy_parts; ++part) meanwhile(part);
                multiply_short_groups(stage, first);
                return begin(next());
            }
        constexpr int last = steps_per_block - 1;
        if (whole) {
#pragma unroll
            for (int step = 0; step < last; ++step) {
                // Plain rows are asked for at once. Packed ones between the steps, before their loads: decoding leaves room there.
                if constexpr (Source::decodes) meanwhile(step);
                load(operands_[(step + 1) % 2], stage, step + 1);
                if constexpr (!Source::decodes)
                    if (step == 0)
#pragma unroll
                        for (int part = 0; part < copy_parts; ++part) meanwhile(part);
                multiply_step(operands_[step % 2], step);
            }
        } else {
#pragma unroll
            for (int part = 0; part < copy_parts; ++part) meanwhile(part);
            multiply_short_groups(stage, first);
        }
        // One barrier for all warps of the block, whichever way they came.
        const uint32_t after = next();
        load(operands_[0], after, 0);
        typename Source::Kept following[Shape::row_fragments];
#pragma unroll
        for (int i = 0; i < Shape::row_fragments; ++i) Source::keep(following[i], after, rows_at_, i);
        if (whole) multiply_step(operands_[last % 2], last);
#pragma unroll
        for (int i = 0; i < Shape::row_fragments; ++i) kept_[i] = following[i];
    }

    // After the last step.
    __device__ void close() {
        if constexpr (C::Grouped)
            if (group_begin_ >= 0) close_group();  // a warp may have had nothing to do
    }

    // Into [token][row] of the results; those of several depths one after the other.
    __device__ void put(typename C::Sum* results, bool add) const {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int i = 0; i < Shape::row_fragments; ++i)
#pragma unroll
            for (int j = 0; j < Shape::token_fragments; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int row = warp_row_ * Shape::rows_per_warp + 16 * i + g + e / 2 * 8;
                    const int token = warp_token_ * Shape::tokens_per_warp + 8 * j + 2 * t + e % 2;
                    typename C::Sum& place = results[token * C::pitch + row];
                    const typename C::Sum sum = final_sum(i, j, e);
                    place = add ? place + sum : sum;
                }
    }

private:
    static constexpr int block_values = steps_per_block * Mma::values_per_step;

    struct Operands {
        uint32_t a[Source::decodes ? 1 : Shape::row_fragments][4], b[Shape::token_fragments][2];
    };

    __device__ void load(Operands& operands, uint32_t stage, int step) const {
        const uint32_t tokens = stage + step_address(tokens_at_, step);
        if constexpr (Shape::token_fragments % 2 == 0) {
#pragma unroll
            for (int j = 0; j < Shape::token_fragments; j += 2) {
                uint32_t pair[4];
                ptx::load_matrices(pair, tokens + 8 * j * block_bytes);
                operands.b[j][0] = pair[0], operands.b[j][1] = pair[1], operands.b[j + 1][0] = pair[2], operands.b[j + 1][1] = pair[3];
            }
        } else {
#pragma unroll
            for (int j = 0; j < Shape::token_fragments; ++j) ptx::load_matrices(operands.b[j], tokens + 8 * j * block_bytes);
        }
        if constexpr (!Source::decodes)
#pragma unroll
            for (int i = 0; i < Shape::row_fragments; ++i) Source::load(operands.a[i], stage, rows_at_, i, step);
    }

    __device__ void multiply_step(const Operands& operands, int step) {
#pragma unroll
        for (int i = 0; i < Shape::row_fragments; ++i) {
            if constexpr (Source::decodes) {
                uint32_t a[4];
                if constexpr (C::SmallFolded) {
                    fold_[i].decode(a, Source::word(kept_[i], step));
                } else {
                    Source::decode(a, kept_[i], group_[i], step);
                    if constexpr (C::Folded)
#pragma unroll
                        for (int j = 0; j < 4; ++j) a[j] = Source::Pairs::multiply(a[j], fold_[i].scale[j % 2]);
                }
#pragma unroll
                for (int j = 0; j < Shape::token_fragments; ++j) Mma::multiply(parts_[i][j], a, operands.b[j]);
            } else {
#pragma unroll
                for (int j = 0; j < Shape::token_fragments; ++j) Mma::multiply(parts_[i][j], operands.a[i], operands.b[j]);
            }
        }
    }

    // A block in which groups end.
    __device__ void multiply_short_groups(uint32_t stage, int first) {
        for (int step = 0; step < steps_per_block;) {
            enter_group(first + step * Mma::values_per_step);
            const int left = group_end_ - first;
            const int end = left >= steps_per_block * Mma::values_per_step ? steps_per_block : left / Mma::values_per_step;
#pragma unroll
            for (int s = 0; s < steps_per_block; ++s) {
                if (s < step || s >= end) continue;
                load(operands_[0], stage, s);
                multiply_step(operands_[0], s);
            }
            step = end;
        }
    }

    __device__ typename C::Sum final_sum(int i, int j, int e) const {
        if constexpr (C::Grouped)
            return sums_[i][j][e];
        else
            return parts_[i][j][e];
    }

    // Before the step at column k: closes the group that ended, and opens the one that k lies in.
    __device__ void enter_group(int k) {
        if (k < group_end_) return;
        if (group_begin_ >= 0) close_group();
        group_begin_ = k;
        if constexpr (Source::decodes) {
            const int which = args_.row_groups.group_of(k);
            group_end_ = end_of((which + 1) * args_.row_groups.group);
            args_.row_groups.pairs_at(scales_at_, which, scales_);
#pragma unroll
            for (int i = 0; i < Shape::row_fragments; ++i)
                Source::open_group(group_[i], Source::fetch_group(args_.row_groups, scales_at_[i], which));
        } else {
            int length = args_.row_groups.group;
            if constexpr (C::TokensGrouped)
                if (!length || (args_.token_groups.group && args_.token_groups.group < length)) length = args_.token_groups.group;
            group_end_ = end_of((k / length + 1) * length);
            if (!args_.row_groups.group) return;
            const int which = args_.row_groups.group_of(k);
#pragma unroll
            for (int i = 0; i < Shape::row_fragments; ++i) {
                // Rows beyond the matrix: the last one's scale will do, their products are never stored.
                const int64_t row = first_row_ + 16 * i + threadIdx.x % 32 / 4;
                scales_[i].x = args_.row_groups.bits_at(smaller(row, args_.rows - 1), which);
                scales_[i].y = args_.row_groups.bits_at(smaller(row + 8, args_.rows - 1), which);
            }
        }
    }

    // Folded groups: scales are asked for a group ahead.
    __device__ void fetch_group() {
        const int which = smaller(group_ahead_, args_.row_groups.group_of(args_.epilogue.depth - 1));
        args_.row_groups.pairs_at(scales_at_, which, scales_);
#pragma unroll
        for (int i = 0; i < Shape::row_fragments; ++i) fetched_[i] = Source::fetch_group(args_.row_groups, scales_at_[i], which);
    }
    __device__ void open_fetched_group() {
        float values[Shape::row_fragments][2];
        args_.row_groups.pair_values(scales_, values);
#pragma unroll
        for (int i = 0; i < Shape::row_fragments; ++i) {
            if constexpr (C::SmallFolded)
                fold_[i].set(as_bits(__floats2bfloat162_rn(values[i][0], values[i][1])));
            else
#pragma unroll
                for (int half = 0; half < 2; ++half) fold_[i].scale[half] = Source::Pairs::both(values[i][half] * code_unit<Source>(half));
            Source::open_group(group_[i], fetched_[i]);
        }
    }

    // Steps beyond K belong to the last group: their tokens are 0.
    __device__ int end_of(int group_end) const { return group_end >= args_.epilogue.depth ? INT32_MAX : group_end; }

    __device__ void find_row_scales(float (&row_scales)[Shape::row_fragments][2]) const {
        if constexpr (Source::decodes) {
            args_.row_groups.pair_values(scales_, row_scales);
#pragma unroll
            for (int i = 0; i < Shape::row_fragments; ++i)
#pragma unroll
                for (int half = 0; half < 2; ++half) row_scales[i][half] *= code_unit<Source>(half);
        } else {
#pragma unroll
            for (int i = 0; i < Shape::row_fragments; ++i)
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    row_scales[i][half] = args_.row_groups.group ? args_.row_groups.value(half ? scales_[i].y : scales_[i].x) : 1.0f;
        }
    }

    __device__ void close_group() {
        float row_scales[Shape::row_fragments][2];
        find_row_scales(row_scales);
        if (C::TokensGrouped && args_.token_groups.group) {
            const int which = group_begin_ / args_.token_groups.group;
#pragma unroll
            for (int j = 0; j < Shape::token_fragments; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const int64_t token = first_token_ + 8 * j + 2 * (threadIdx.x % 4) + e;
                    add_parts(j, e, row_scales, args_.token_groups.at(smaller(token, args_.tokens.rows - 1), which));
                }
        } else {
#pragma unroll
            for (int j = 0; j < Shape::token_fragments; ++j)
#pragma unroll
                for (int e = 0; e < 2; ++e) add_parts(j, e, row_scales, 1.0f);
        }
    }

    // The parts of one token (column e of fragment j), times the scales of their rows and its own.
    __device__ void add_parts(int j, int e, const float (&row_scales)[Shape::row_fragments][2], float token_scale) {
#pragma unroll
        for (int i = 0; i < Shape::row_fragments; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                typename C::Part& part = parts_[i][j][2 * half + e];
                sums_[i][j][2 * half + e] += float(part) * (row_scales[i][half] * token_scale);
                part = 0;
            }
    }

    const AmpereArgs& args_;
    int warp_row_, warp_token_, warp_depth_;
    int64_t first_row_, first_token_;
    uint32_t rows_at_, tokens_at_;  // this lane's places in a stage
    Operands operands_[2];
    typename Source::Kept kept_[Shape::row_fragments];
    int group_begin_ = -1, group_end_ = 0, group_ahead_ = 0;
    typename C::Part parts_[Shape::row_fragments][Shape::token_fragments][4] = {};
    float sums_[C::Grouped ? Shape::row_fragments : 1][C::Grouped ? Shape::token_fragments : 1][4] = {};
    int64_t scales_at_[(C::Grouped || C::Folded) && Source::decodes ? Shape::row_fragments : 1];
    uint2 scales_[C::Grouped || C::Folded ? Shape::row_fragments : 1] = {};  // of rows g and g + 8, as they lie in memory
    typename Source::Group group_[Shape::row_fragments];
    typename Source::GroupBits fetched_[Shape::row_fragments];
    struct Scales {
        uint32_t scale[2];  // of rows g and g + 8, each twice in a word
    };
    static auto folded() {
        if constexpr (C::SmallFolded)
            return typename SmallNumbers<Mma>::SignedNibbles{};
        else
            return Scales{};
    }
    decltype(folded()) fold_[C::Folded ? Shape::row_fragments : 1];
};

}  // namespace lowbit::cuda
