// Where the weight's fragments come from. A source has a Copier, which brings one k block of a tile's rows into shared memory (all threads
// of the block, in parts, so that copies can be strewn between the steps of the block before), and loads the fragment of 16 rows and one
// step from there: `load` where it lies there as the tensor core wants it, or `keep` the codes of all steps and `decode` those of one.
//
// A k block is 128 bytes of a row of tokens: 64 values of 16 bits, 128 of 8, 1024 of 1. Rows of 128 bytes lie swizzled in shared memory:
// 16-byte chunk c of row r stands at chunk c ^ (r % 8), so that the eight rows of a matrix load fall into different banks.
#pragma once
#include "cuda/formats/matrix.cuh"
#include "cuda/gemm/group_scales.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared_memory.cuh"

namespace lowbit::cuda {

constexpr int block_bytes = 128, steps_per_block = 4;

__device__ inline int swizzled(int row, int chunk) { return row * block_bytes + (chunk ^ (row & 7)) * 16; }

// Plain rows of bytes, each aligned to 16 and of whole 16 bytes.
struct AlignedRows {
    const uint8_t* data = nullptr;
    int64_t stride = 0;  // bytes from row to row
    int64_t rows = 0, bytes = 0;
};

constexpr int copy_parts = steps_per_block - 1;  // one for every step but the last, before which the next stage is waited for

// Rows of a tile lie at most this far apart: offsets inside of a tile have 32 bits.
constexpr int64_t longest_row_bytes = INT32_MAX / 256;

// Copies `Rows` rows. A thread has one chunk of every Threads / 8-th row. What lies beyond the end of a row becomes 0; rows beyond the
// matrix are copies of the last one, since their products are never stored, and asking at every copy costs more than copying.
template <int Rows, int Threads>
class RowsCopier {
    static constexpr int rows_at_once = Threads / 8, count = (Rows + rows_at_once - 1) / rows_at_once;
    static_assert(rows_at_once % 8 == 0, "so that all rows of a thread are swizzled alike");

public:
    __device__ RowsCopier(const AlignedRows& matrix, int64_t first_row) : from_(matrix.data + first_row * matrix.stride) {
        const int row = threadIdx.x / 8, chunk = threadIdx.x % 8, last_row = int(smaller(matrix.rows - first_row, Rows)) - 1;
        blocks_ = int((matrix.bytes - chunk * 16 + block_bytes - 1) / block_bytes);
        if (count == 1 && row > last_row) blocks_ = 0;  // few tokens: all blocks would ask for the same row
        to_ = swizzled(row, chunk);
        ptx::hold(blocks_), ptx::hold(to_);
#pragma unroll
        for (int i = 0; i < count; ++i) {
            offsets_[i] = uint32_t(smaller(row + i * rows_at_once, last_row)) * uint32_t(matrix.stride) + uint32_t(chunk * 16);
            ptx::hold(offsets_[i]);
        }
    }

    __device__ void copy(uint8_t* stage, int block, int part) const {
        const uint8_t* from = from_ + int64_t(block) * block_bytes;
        ptx::hold(from);
        const bool inside = block < blocks_;
#pragma unroll
        for (int i = 0; i < count; ++i)
            if (i * copy_parts / count == part && (Rows % rows_at_once == 0 || threadIdx.x / 8 < Rows - i * rows_at_once))
                ptx::copy_16(stage + to_ + i * rows_at_once * block_bytes, from + offsets_[i], inside);
    }

private:
    const uint8_t* from_;
    uint32_t offsets_[count];
    int blocks_;  // k blocks in which this thread's chunk lies inside of the row
    int to_;
};

// Where a lane of a warp finds its row of the 16-row operand at step 0; `step_address` moves on from there. Steps are 32 bytes apart, and
// the swizzle of a row is the same for all of them: it only flips bits.
__device__ inline uint32_t first_fragment(int first_row) {
    const int lane = threadIdx.x % 32;
    return uint32_t(swizzled(first_row + lane % 16, lane / 16));
}
__device__ inline uint32_t step_address(uint32_t first, int step) { return first ^ uint32_t(step * 32); }

// Fragments in swizzled rows: loaded a step before they are multiplied.
struct FragmentsInRows {
    static constexpr bool decodes = false;
    struct Kept {};   // nothing is kept from step to step
    struct Group {};  // nor from group to group
    struct GroupBits {};

    __device__ static uint32_t first(int first_row) { return first_fragment(first_row); }
    __device__ static void keep(Kept&, uint32_t, uint32_t, int) {}
    __device__ static void load(uint32_t (&a)[4], uint32_t stage, uint32_t first, int fragment, int step) {
        ptx::load_matrices(a, stage + step_address(first, step) + fragment * 16 * block_bytes);
    }
};

struct RowsSource : FragmentsInRows {
    struct Args {
        AlignedRows rows;
    };
    template <int Rows>
    static constexpr int stage_bytes = Rows* block_bytes;

    template <int Rows, int Threads, class Mma>
    struct Copier : RowsCopier<Rows, Threads> {
        __device__ Copier(const Args& args, int64_t first_row) : RowsCopier<Rows, Threads>(args.rows, first_row) {}
    };
};

// Two numbers of the arithmetic's 16 bits in a word.
template <class Mma>
__device__ inline uint32_t narrow_pair(float low, float high) {
    if constexpr (std::is_same_v<Mma, ptx::MmaBf16>)
        return float_to_bfloat(low) | uint32_t(float_to_bfloat(high)) << 16;
    else
        return float_to_half(low) | uint32_t(float_to_half(high)) << 16;
}

// 16 values of any matrix in the arithmetic's type: 16 bytes of codes at `first`, or 32 bytes of numbers at `first` and `second`. A call of
// its own, not inlined: it holds the decoders of all formats, and compiling them anew into every kernel takes minutes.
template <class Mma>
__device__ __noinline__ void decode_run(const AnyMatrix& matrix, int64_t row, int64_t column, uint4* first, uint4* second) {
    if constexpr (std::is_same_v<Mma, ptx::MmaInt8>) {
        alignas(16) int8_t codes[16];
        load_codes(matrix, row, column, codes);
        *first = *reinterpret_cast<const uint4*>(codes);
    } else {
        float values[16];
        load_values(matrix, row, column, values);
        uint32_t words[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) words[i] = narrow_pair<Mma>(values[2 * i], values[2 * i + 1]);
        *first = make_uint4(words[0], words[1], words[2], words[3]);
        *second = make_uint4(words[4], words[5], words[6], words[7]);
    }
}

// Anything: decoded on the way into shared memory, to numbers of 16 bits or to signed bytes.
struct DecodedSource : FragmentsInRows {
    struct Args {
        AnyMatrix matrix;
    };
    template <int Rows>
    static constexpr int stage_bytes = Rows* block_bytes;

    template <int Rows, int Threads, class Mma>
    struct Copier {
        const Args& args;
        int64_t first_row;
        __device__ Copier(const Args& of, int64_t row) : args(of), first_row(row) {}

        __device__ void copy(uint8_t* stage, int block, int part) const {
            constexpr int values_per_block = Mma::values_per_step * steps_per_block, runs = values_per_block / 16, chunks = 8 / runs;
            if (part != 0) return;
            const bool inside = int64_t(block) * values_per_block < args.matrix.columns;
#pragma unroll 1
            for (int index = threadIdx.x; index < Rows * runs; index += Threads) {
                const int row = index / runs, chunk = index % runs * chunks;
                if (!inside) {  // a stage of several k blocks is multiplied to its end
                    for (int i = 0; i < chunks; ++i) *reinterpret_cast<uint4*>(stage + swizzled(row, chunk + i)) = make_uint4(0, 0, 0, 0);
                    continue;
                }
                decode_run<Mma>(args.matrix, smaller(first_row + row, args.matrix.rows - 1),
                                int64_t(block) * values_per_block + index % runs * 16,
                                reinterpret_cast<uint4*>(stage + swizzled(row, chunk)),
                                reinterpret_cast<uint4*>(stage + swizzled(row, chunk + chunks - 1)));
            }
        }
    };
};

// Packed tiles of 4-bit codes (core/packed.hpp): a lane's 16 bytes hold its fragments of four steps; Decoder turns a word into one.
template <class Decoder>
struct TilesSource {
    struct Args {
        const uint8_t* codes = nullptr;
        int64_t tiles = 0, atoms = 0;
    };
    template <int Rows>
    static constexpr int stage_bytes = Rows / 16 * core::tile_atom_bytes(4);
    static constexpr bool decodes = true;
    struct Kept {
        uint4 words;
    };
    using Group = typename Decoder::Group;
    using GroupBits = typename Decoder::GroupBits;
    using Pairs = typename Decoder::Pairs;

    template <int Rows, int Threads, class Mma>
    class Copier {
        static constexpr int chunks = Rows / 16 * 32, count = (chunks + Threads - 1) / Threads;

    public:
        __device__ Copier(const Args& args, int64_t first_row) : from_(args.codes + first_row / 16 * args.atoms * 512) {
            const int tile = threadIdx.x / 32, last_tile = int(smaller(args.tiles - first_row / 16, Rows / 16)) - 1;
            atoms_ = int(args.atoms);
#pragma unroll
            for (int i = 0; i < count; ++i) {
                offsets_[i] = uint32_t(smaller(tile + i * (Threads / 32), last_tile)) * uint32_t(args.atoms * 512) + threadIdx.x % 32 * 16;
                ptx::hold(offsets_[i]);
            }
        }
        __device__ void copy(uint8_t* stage, int block, int part) const {
            const uint8_t* from = from_ + int64_t(block) * 512;
            ptx::hold(from);
#pragma unroll
            for (int i = 0; i < count; ++i)
                if (i * copy_parts / count == part && (chunks % Threads == 0 || int(threadIdx.x) < chunks - i * Threads))
                    ptx::copy_16(stage + (i * Threads + threadIdx.x) * 16, from + offsets_[i], block < atoms_);
        }

    private:
        const uint8_t* from_;
        uint32_t offsets_[count];
        int atoms_;
    };
    // `offset`: of the fragment's scales (GroupScales::pair_offset).
    __device__ static GroupBits fetch_group(const GroupScales& scales, int64_t offset, int which) {
        return Decoder::fetch_group(scales, offset, which);
    }
    __device__ static void open_group(Group& group, GroupBits bits) { Decoder::open_group(group, bits); }
    __device__ static constexpr float code_unit(int half) { return cuda::code_unit<Decoder>(half); }
    __device__ static uint32_t first(int first_row) { return uint32_t(first_row / 16 * 512 + threadIdx.x % 32 * 16); }
    __device__ static void keep(Kept& kept, uint32_t stage, uint32_t first, int fragment) {
        kept.words = ptx::load_16(stage + first + fragment * 512);
    }
    static constexpr bool less_eight = Decoder::less_eight;
    __device__ static uint32_t word(const Kept& kept, int step) {
        return step == 0 ? kept.words.x : step == 1 ? kept.words.y : step == 2 ? kept.words.z : kept.words.w;
    }
    __device__ static void decode(uint32_t (&a)[4], const Kept& kept, const Group& group, int step) {
        Decoder::decode(a, word(kept, step), group);
    }
};

}  // namespace lowbit::cuda
