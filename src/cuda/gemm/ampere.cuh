// The main loop for tensor cores that a warp feeds by itself (mma.sync): sm_75 to sm_89, and correct on every later chip.
//
// A block multiplies a tile of weight rows with a tile of tokens, D = W . Xᵀ: the weight is the 16-row operand, so that few tokens need no
// padding beyond 8, and packed weights go from shared memory into registers in the order they lie in. Its warps form a grid
// rows x tokens x depth; those along depth take different k blocks, and their sums are added at the end in a fixed order.
//
//     copies (ring of stages)  ->  fragments of a step  ->  part sums  -- at the end of a group, times its scales -->  sums  ->  epilogue
//
// Group scales multiply fp32 part sums, not weights: what the tensor core sees are codes, which 16 bits hold exactly. Part sums take as
// many registers as sums, though; the widest tile of packed bf16 products has no room for them, and folds the scales into the decoded
// weight.
#pragma once
#include <cstdint>

#include "cuda/gemm/epilogue.cuh"
#include "cuda/gemm/sources.cuh"

namespace lowbit::cuda {

// What a block does: sizes, and how its warps share it.
// Chain: k blocks that a warp takes one after the other in a stage, so that a group of them needs its scales once.
template <int Rows_, int Tokens_, int WarpRows_, int WarpTokens_, int WarpDepth_, int Stages_, int BlocksPerMultiprocessor_, int Chain_ = 1>
struct Tile {
    static constexpr int Rows = Rows_, Tokens = Tokens_, WarpRows = WarpRows_, WarpTokens = WarpTokens_, WarpDepth = WarpDepth_;
    static constexpr int Stages = Stages_, BlocksPerMultiprocessor = BlocksPerMultiprocessor_, Chain = Chain_;
    static constexpr int blocks_per_stage = WarpDepth * Chain;
    static constexpr int threads = WarpRows * WarpTokens * WarpDepth * 32;
    static constexpr int rows_per_warp = Rows / WarpRows, tokens_per_warp = Tokens / WarpTokens;
    static constexpr int row_fragments = rows_per_warp / 16, token_fragments = tokens_per_warp / 8;
    static_assert(rows_per_warp % 16 == 0 && tokens_per_warp % 8 == 0);
};

struct AmpereArgs {
    AlignedRows tokens;
    int64_t rows = 0;                      // of the weight
    int64_t k_blocks = 0;                  // of all of K
    int splits = 1;                        // parts of K that different blocks take
    uint32_t* partials = nullptr;          // [split][token][row], when there are several
    GroupScales row_groups, token_groups;  // empty where a side's scale does not change along K
    EpilogueArgs epilogue;
};

// Whose scales change along K. `folded`: the rows', and they are multiplied into the decoded weight, which is rounded once more; groups are
// whole k blocks there.
enum class Groups { none, rows, rows_and_tokens, folded };

template <class Mma_, class Source_, class Tile_, Groups Groups_>
struct AmpereConfig {
    using Mma = Mma_;
    using Source = Source_;
    using Shape = Tile_;
    static constexpr bool TokensGrouped = Groups_ == Groups::rows_and_tokens, Grouped = TokensGrouped || Groups_ == Groups::rows;
    static constexpr bool Folded = Groups_ == Groups::folded;
    static_assert(!Folded || (Source_::decodes && Tile_::blocks_per_stage == 1));
    static constexpr int weight_bytes = Source::template stage_bytes<Shape::Rows>, token_bytes = Shape::Tokens * block_bytes;
    static constexpr int k_block_bytes = weight_bytes + token_bytes, stage_bytes = k_block_bytes * Shape::blocks_per_stage;
    static constexpr int pitch = Shape::Rows + 4;  // of the results in shared memory: lanes of a store fall into different banks
    static constexpr int result_bytes = Shape::Tokens * pitch * 4;
    static constexpr int shared_bytes = stage_bytes * Shape::Stages > result_bytes ? stage_bytes* Shape::Stages : result_bytes;
    // Part sums become sums when their group's scales are multiplied in.
    using Part = typename Mma::Accumulator;
    using Sum = std::conditional_t<Grouped, float, Part>;
};

// Which tile, and which k blocks, a block works on.
template <class C>
struct WorkItem {
    int64_t first_row, first_token;
    int first_stage, stages;

    __device__ explicit WorkItem(const AmpereArgs& args) {
        using Shape = typename C::Shape;
        // Bands of token tiles, so that blocks that run together share rows and tokens in the L2 cache. Packed rows are short.
        constexpr uint32_t band = C::Source::decodes || Shape::Tokens >= 256 ? 8 : 16;
        const uint32_t row_tiles = uint32_t((args.rows + Shape::Rows - 1) / Shape::Rows);
        const uint32_t token_tiles = uint32_t((args.tokens.rows + Shape::Tokens - 1) / Shape::Tokens);
        const uint32_t first = blockIdx.x / (band * row_tiles) * band, inside = blockIdx.x % (band * row_tiles);
        const uint32_t width = token_tiles - first < band ? token_tiles - first : band;
        first_row = int64_t(inside / width) * Shape::Rows;
        first_token = int64_t(first + inside % width) * Shape::Tokens;
        const int all = int(args.k_blocks + Shape::blocks_per_stage - 1) / Shape::blocks_per_stage,
                  each = (all + args.splits - 1) / args.splits;
        first_stage = each * int(blockIdx.y);
        stages = all - first_stage < each ? all - first_stage : each;
        if (stages < 0) stages = 0;
    }
};

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
                Source::decode(a, kept_[i], group_[i], step);
                if constexpr (C::Folded)
#pragma unroll
                    for (int j = 0; j < 4; ++j) a[j] = Source::Pairs::multiply(a[j], fold_[i][j % 2]);
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
#pragma unroll
            for (int half = 0; half < 2; ++half) fold_[i][half] = Source::Pairs::both(values[i][half]);
            Source::open_group(group_[i], fetched_[i]);
        }
    }

    // Steps beyond K belong to the last group: their tokens are 0.
    __device__ int end_of(int group_end) const { return group_end >= args_.epilogue.depth ? INT32_MAX : group_end; }

    __device__ void find_row_scales(float (&row_scales)[Shape::row_fragments][2]) const {
        if constexpr (Source::decodes) {
            args_.row_groups.pair_values(scales_, row_scales);
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
    uint32_t fold_[C::Folded ? Shape::row_fragments : 1][2];  // scales of rows g and g + 8, each twice in a word
};

// Brings a stage of both operands into shared memory.
template <class C>
class StageCopier {
    using Shape = typename C::Shape;

public:
    __device__ StageCopier(const AmpereArgs& args, const typename C::Source::Args& weight, const WorkItem<C>& work)
        : rows_(weight, work.first_row), tokens_(args.tokens, work.first_token) {}

    __device__ void copy(uint8_t* stage, int first_block, int part) const {
#pragma unroll
        for (int block = 0; block < Shape::blocks_per_stage; ++block) {
            uint8_t* place = stage + block * C::k_block_bytes;
            rows_.copy(place, first_block + block, part);
            tokens_.copy(place + C::weight_bytes, first_block + block, part);
        }
    }

private:
    typename C::Source::template Copier<Shape::Rows, Shape::threads, typename C::Mma> rows_;
    RowsCopier<Shape::Tokens, Shape::threads> tokens_;
};

// Results in shared memory to where they belong. A thread has eight neighbouring rows of the weight, the same for all its tokens.
template <class C>
class ResultStore {
    using Shape = typename C::Shape;
    static constexpr int runs = Shape::Rows / 8, tokens_at_once = Shape::threads / runs;
    static_assert(Shape::threads % runs == 0);

public:
    __device__ ResultStore(const AmpereArgs& args, int64_t first_row)
        : args_(args), row_(first_row + threadIdx.x % runs * 8), terms_(load_row_terms(args.epilogue, row_, args.rows)) {}

    __device__ void store(const typename C::Sum* results, int64_t first_token) const {
        if (row_ >= args_.rows) return;
        for (int index = threadIdx.x / runs; index < Shape::Tokens; index += tokens_at_once) {
            const int64_t token = first_token + index;
            if (token >= args_.tokens.rows) return;
            const auto* place = reinterpret_cast<const uint4*>(results + index * C::pitch + threadIdx.x % runs * 8);
            const uint4 low = place[0], high = place[1];
            const uint32_t bits[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
            args_.splits == 1 ? finish(token, bits) : keep_part(token, bits);
        }
    }

private:
    __device__ void finish(int64_t token, const uint32_t (&bits)[8]) const {
        typename C::Sum values[8];
#pragma unroll
        for (int i = 0; i < 8; ++i)
            if constexpr (std::is_same_v<typename C::Sum, float>)
                values[i] = __uint_as_float(bits[i]);
            else
                values[i] = int32_t(bits[i]);
        store_eight(args_.epilogue, terms_, token, row_, args_.rows, values);
    }
    __device__ void keep_part(int64_t token, const uint32_t (&bits)[8]) const {
        auto* place = args_.partials + (int64_t(blockIdx.y) * args_.tokens.rows + token) * args_.rows + row_;
#pragma unroll
        for (int i = 0; i < 8; ++i)
            if (row_ + i < args_.rows) place[i] = bits[i];
    }

    const AmpereArgs& args_;
    int64_t row_;
    RowTerms terms_;
};

// Whether the chip that code is being made for has the product at all, and the room for the tile. What could not run there takes long to
// compile.
constexpr int turing_shared_bytes = 64 << 10;
template <class C>
__device__ constexpr bool can_run() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    return !std::is_same_v<typename C::Mma, ptx::MmaFp8> && !std::is_same_v<typename C::Mma, ptx::MmaBf16> &&
           C::shared_bytes <= turing_shared_bytes;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
    return !std::is_same_v<typename C::Mma, ptx::MmaFp8>;
#else
    return true;
#endif
}

template <class C>
__device__ void multiply_tile(const AmpereArgs& args, const typename C::Source::Args& weight) {
    using Shape = typename C::Shape;
    extern __shared__ __align__(128) uint8_t shared[];
    const WorkItem<C> work(args);
    WarpSums<C> sums(args, work);
    const StageCopier<C> copier(args, weight, work);
    for (int i = 0; i < Shape::Stages - 1; ++i) {
#pragma unroll
        for (int part = 0; part < copy_parts; ++part)
            copier.copy(shared + i * C::stage_bytes, (work.first_stage + i) * Shape::blocks_per_stage, part);
        ptx::commit_copies();
    }
    const uint32_t ring = ptx::shared_address(shared);
    int stage = 0, free = Shape::Stages - 1;  // places in the ring: the one that is multiplied, the one that is filled
    const auto after = [](int place) { return place + 1 == Shape::Stages ? 0 : place + 1; };
    // Waits until the stage at `place` is there, and everybody has left the one before it.
    const auto arrived = [&](int place) {
        ptx::wait_for_copies<Shape::Stages - 2>();
        __syncthreads();
        return ring + place * C::stage_bytes;
    };
    sums.begin(arrived(0));
    for (int i = 0; i < work.stages; ++i) {
        // What lies beyond the last stage is filled with zeros, or with what another block needs; nobody multiplies it.
        const auto copy = [&](int part) {
            copier.copy(shared + free * C::stage_bytes, (work.first_stage + i + Shape::Stages - 1) * Shape::blocks_per_stage, part);
            if (part + 1 == copy_parts) ptx::commit_copies();
        };
        const auto next = [&] { return arrived(after(stage)); };
        const int first_block = (work.first_stage + i) * Shape::blocks_per_stage;
        if constexpr (Shape::blocks_per_stage > 1) {  // few tokens: the sooner the weight is asked for, the better
#pragma unroll
            for (int part = 0; part < copy_parts; ++part) copy(part);
            const auto nothing = [](int) {};
#pragma unroll
            for (int link = 0; link < Shape::Chain; ++link) {
                const uint32_t block = ring + stage * C::stage_bytes + link * C::k_block_bytes;
                const auto following = [&] { return link + 1 < Shape::Chain ? block + C::k_block_bytes : next(); };
                sums.multiply(block, first_block + link, nothing, following);
            }
        } else {
            sums.multiply(ring + stage * C::stage_bytes, first_block, copy, next);
        }
        stage = after(stage);
        free = after(free);
    }
    sums.close();
    ptx::wait_for_copies<0>();
    auto* results = reinterpret_cast<typename C::Sum*>(shared);
    const ResultStore<C> store(args, work.first_row);
    for (int depth = 0; depth < Shape::WarpDepth; ++depth) {
        __syncthreads();
        if (sums.warp_depth() == depth) sums.put(results, depth > 0);
    }
    __syncthreads();
    store.store(results, work.first_token);
}

template <class C>
__global__ void __launch_bounds__(C::Shape::threads, C::Shape::BlocksPerMultiprocessor)
    ampere(const __grid_constant__ AmpereArgs args, const __grid_constant__ typename C::Source::Args weight) {
    if constexpr (can_run<C>()) multiply_tile<C>(args, weight);
}

}  // namespace lowbit::cuda
