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
#include "cuda/gemm/warp_sums.cuh"

namespace lowbit::cuda {

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
