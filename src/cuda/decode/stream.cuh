// Products of few tokens: the weight streams through the chip once, at the speed of memory.
//
// A block owns some tiles of 16 rows and all of K. Its warps form a grid rows x depth: a warp has `RowTiles` tiles and every depth_warps-th
// unit of K (128 values of 4 bits, or 128 bytes of a row), and a ring of its own through which codes and scales come, so that warps wait
// for memory and for nobody else. The tokens come in phases, stretches of K that all warps share, through a few buffers.
//
//     codes, scales:  memory -> ring of the warp -> registers, decoded -> tensor core -> part sums -- times scales --> sums
//     tokens:         memory -> phase buffer -> fragments
//     sums of the warps along depth, added in their order -> epilogue
//
// How tiles, K and warps are split depends on the weight alone, never on the number of tokens: a token's result is the same bits whatever
// its company.
#pragma once
#include <cstdint>

#include "cuda/gemm/epilogue.cuh"
#include "cuda/gemm/group_scales.cuh"
#include "cuda/ptx/async_copy.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/quantize/division.cuh"

namespace lowbit::cuda {

constexpr int rows_per_tile = 16, most_decode_warps = 16, atoms_per_unit = 2;
constexpr int warp_ring_bytes = 8192;  // of codes: what 16 warps have under way is several times what the speed of memory needs
constexpr int most_phase_buffers = 4;

// How a weight is spread over the chip (decode/split.cu).
struct DecodeSplit {
    int tiles_per_block = 1;
    int row_tiles = 1;  // of a warp
    int row_warps = 1, depth_warps = 1;
    int units = 0;                     // of K
    int ring_slots = 1;                // of a warp; fewer than the kernel's where a warp has fewer units
    int phase_rounds = 1, phases = 1;  // a round: one unit for every warp along depth
    int buffers = 1, token_pitch = 0;  // of phases; bytes from token to token in one
    int buffer_bytes = 0, shared_bytes = 0;
    IndexDivisor span, depth_warp_divisor;  // segments of K that share a scale; depth_warps

    __host__ __device__ int warps() const { return row_warps * depth_warps; }
};

struct DecodeArgs {
    DecodeSplit split;
    int64_t rows = 0;  // of the weight
    int tiles = 0;
    const uint8_t* tokens = nullptr;  // rows of whole units, zeros beyond K
    int64_t token_stride = 0;         // bytes
    int token_count = 0;
    GroupScales scales;  // group 0: none
    int groups = 0;      // of a row
    EpilogueArgs epilogue;
};

// How the scales along K are kept: what changes the inner loop is a matter of the kernel. In the order of tiles, `halves` (fp16 or bf16) or
// `others` (fp32 or bytes), they come through the ring; in `rows` of any type, straight into registers, a round ahead.
enum class DecodeScales { none, halves, others, rows };

// Sources that need nothing of a group.
struct NoDecodeGroup {
    __device__ explicit NoDecodeGroup(uint32_t) {}
};

template <class Source_, int TokenTiles_, int RowTiles_, int Segments_, DecodeScales Scales_>
struct DecodeConfig {
    static constexpr DecodeScales Scales = Scales_;
    static constexpr bool zero_points = Source_::zero_points;
    using Source = Source_;
    using Mma = typename Source::Mma;
    static constexpr int TokenTiles = TokenTiles_, RowTiles = RowTiles_;
    static constexpr int Segments = Segments_;  // groups of a unit; 0: no scales along K
    static constexpr int steps_per_unit = atoms_per_unit * Source::steps_per_atom;
    static constexpr int steps_per_segment = steps_per_unit / (Segments > 0 ? Segments : 1);
    static constexpr int slots = warp_ring_bytes / (RowTiles * Source::unit_bytes);
    // A slot: the codes of the tiles, then their scales (up to 4 bytes each), then their zero points.
    static constexpr int scale_room =
        Scales == DecodeScales::rows ? 0 : Segments * rows_per_tile * (Scales == DecodeScales::halves ? 2 : 4);
    static constexpr int scales_at = RowTiles * Source::unit_bytes;
    static constexpr int zeros_at = scales_at + RowTiles * scale_room, zero_room = Segments * rows_per_tile;
    static constexpr int slot_bytes = zeros_at + (zero_points ? RowTiles * zero_room : 0);
    using Part = typename Mma::Accumulator;
    using Sum = std::conditional_t<(Segments > 0), float, Part>;
};

// What a warp keeps of a unit from its slot.
template <class C>
struct UnitInRegisters {
    static constexpr int segments = C::Segments > 0 ? C::Segments : 1;
    typename C::Source::Codes codes[C::RowTiles];
    uint32_t scales[C::RowTiles][segments];  // of rows g and g + 8, as they lie in memory
    uint32_t second_scales[C::RowTiles][C::Scales == DecodeScales::halves ? 1 : segments];
    uint32_t zeros[C::RowTiles][segments];

    __device__ void load(uint32_t slot, int lane, const DecodeArgs& args) {
#pragma unroll
        for (int r = 0; r < C::RowTiles; ++r) {
            codes[r].load(slot + r * C::Source::unit_bytes, lane);
            const uint32_t at = slot + C::scales_at + r * C::scale_room, g = uint32_t(lane / 4);
#pragma unroll
            for (int s = 0; s < C::Segments; ++s) {
                if constexpr (C::Scales == DecodeScales::rows) {
                } else if constexpr (C::Scales == DecodeScales::halves) {
                    scales[r][s] = ptx::load_4(at + s * 32 + g * 4);
                } else if (args.scales.bytes == 4) {
                    const uint2 pair = ptx::load_8(at + s * 64 + g * 8);
                    scales[r][s] = pair.x, second_scales[r][s] = pair.y;
                } else {
                    scales[r][s] = ptx::load_2(at + s * 16 + g * 2);
                }
                if constexpr (C::zero_points) zeros[r][s] = ptx::load_2(slot + C::zeros_at + r * C::zero_room + s * 16 + g * 2);
            }
        }
    }
    __device__ float scale(int r, int s, int half, const DecodeArgs& args) const {
        if constexpr (C::Scales == DecodeScales::halves) {
            const uint32_t bits = half ? scales[r][s] >> 16 : scales[r][s] & 0xffffu;
            return args.scales.element == Element::fp16 ? half_to_float(uint16_t(bits)) : bfloat_to_float(uint16_t(bits));
        } else if constexpr (C::Scales == DecodeScales::rows) {
            return args.scales.value(half ? second_scales[r][s] : scales[r][s]);
        } else {
            if (args.scales.bytes == 4) return __uint_as_float(half ? second_scales[r][s] : scales[r][s]);
            return args.scales.byte_value_in_line(scales[r][s] >> (8 * half) & 0xffu);
        }
    }
    __device__ typename C::Source::Group group(int r, int s) const { return typename C::Source::Group(C::zero_points ? zeros[r][s] : 0); }
};

// Brings one unit after the other into the ring of a warp: every depth_warps-th of its tiles.
template <class C>
class UnitStream {
    using Source = typename C::Source;

public:
    __device__ UnitStream(const DecodeArgs& args, const typename Source::Args& weight, int first_tile, int depth_warp)
        : args_(args), weight_(weight), unit_(depth_warp) {
#pragma unroll
        for (int r = 0; r < C::RowTiles; ++r) {
            // Tiles that do not exist: the last one will do, its products are not stored.
            codes_[r] = Source::first(weight, smaller(first_tile + r, args.tiles - 1), depth_warp);
        }
        if constexpr (C::Scales == DecodeScales::rows) {
            first_row_ = int64_t(first_tile) * rows_per_tile + threadIdx.x % 32 / 4;
            ahead_unit_ = depth_warp;
            load_ahead();
        } else if constexpr (C::Segments > 0) {
            // 16 bytes of scales per lane: the lower half of the warp for the first tile, the upper for the second.
            const int lane = threadIdx.x % 32, r = lane / 16, chunk = lane % 16;
            const int64_t tile = smaller(first_tile + r, args.tiles - 1);
            const GroupScales& scales = args.scales;
            const int bytes = C::Scales == DecodeScales::halves ? 2 : scales.bytes;  // chunks of a group, too
            const int segment = bytes == 2 ? chunk / 2 : bytes == 4 ? chunk / 4 : chunk;
            scale_segment_ = r < C::RowTiles && segment < C::Segments ? segment : none;
            scales_ = scales.data + tile * scales.row_step + (chunk - segment * bytes) * 16;
            scale_place_ = C::scales_at + r * C::scale_room + chunk * 16;
            ptx::hold(scales_), ptx::hold(scale_segment_), ptx::hold(scale_place_);
            if constexpr (C::zero_points) {
                zero_segment_ = r < C::RowTiles && chunk < C::Segments ? chunk : none;
                zeros_ = scales.zero_points + tile * scales.row_step / scales.bytes;
                zero_place_ = C::zeros_at + r * C::zero_room + chunk * 16;
                ptx::hold(zeros_), ptx::hold(zero_segment_), ptx::hold(zero_place_);
            }
        }
    }

    __device__ void fetch(uint32_t slot, int lane) {
        if (unit_ < args_.split.units) {
#pragma unroll
            for (int r = 0; r < C::RowTiles; ++r)
                Source::copy(slot + r * Source::unit_bytes, lane, weight_, codes_[r], unit_, args_.split.depth_warps);
            if constexpr (C::Segments > 0 && C::Scales != DecodeScales::rows) {
                const auto group_of = [&](int segment) { return int(args_.split.span.quotient(uint32_t(unit_ * C::Segments + segment))); };
                if (scale_segment_ != none) {
                    const int group = group_of(scale_segment_);
                    ptx::copy_16(slot + scale_place_, scales_ + group * args_.scales.group_step, group < args_.groups);
                }
                if constexpr (C::zero_points)
                    if (zero_segment_ != none) {
                        const int group = group_of(zero_segment_);
                        ptx::copy_16(slot + zero_place_, zeros_ + group * 16, group < args_.groups);
                    }
            }
            unit_ += args_.split.depth_warps;
        }
        ptx::commit_copies();
    }

    // Scales in rows: those of the unit in hand, and on to the next.
    __device__ void take_scales(UnitInRegisters<C>& unit) {
        if constexpr (C::Scales == DecodeScales::rows) {
#pragma unroll
            for (int r = 0; r < C::RowTiles; ++r)
#pragma unroll
                for (int s = 0; s < C::Segments; ++s) unit.scales[r][s] = ahead_[r][s][0], unit.second_scales[r][s] = ahead_[r][s][1];
            ahead_unit_ += args_.split.depth_warps;
            load_ahead();
        }
    }

private:
    __device__ void load_ahead() {
#pragma unroll
        for (int s = 0; s < C::Segments; ++s) {
            const int group = smaller(int(args_.split.span.quotient(uint32_t(ahead_unit_ * C::Segments + s))), args_.groups - 1);
#pragma unroll
            for (int r = 0; r < C::RowTiles; ++r)
#pragma unroll
                for (int half = 0; half < 2; ++half)
                    ahead_[r][s][half] = args_.scales.bits_at(smaller(first_row_ + rows_per_tile * r + 8 * half, args_.rows - 1), group);
        }
    }

    const DecodeArgs& args_;
    const typename Source::Args& weight_;
    int unit_;
    int ahead_unit_ = 0;
    int64_t first_row_ = 0;
    uint32_t ahead_[C::RowTiles][C::Scales == DecodeScales::rows ? C::Segments : 1][2];
    typename Source::Place codes_[C::RowTiles];
    const uint8_t* scales_ = nullptr;
    const uint8_t* zeros_ = nullptr;
    int scale_place_ = 0, zero_place_ = 0;
    static constexpr int none = -1;
    int scale_segment_ = none, zero_segment_ = none;  // whose scales and zero points this lane brings
};

// The barriers of the phase buffers: `full` counts the bytes of the tokens, `empty` the warps that have left.
struct PhaseBarriers {
    ptx::Barrier full[most_phase_buffers], empty[most_phase_buffers];
};

// The work of one more warp: phase after phase of tokens, one run of bytes for each token.
template <class C>
__device__ inline void copy_tokens(const DecodeArgs& args, uint8_t* buffers, PhaseBarriers& barriers) {
    const DecodeSplit& split = args.split;
    const int per_phase = split.phase_rounds * split.depth_warps * C::Source::token_unit_bytes, lane = threadIdx.x % 32;
    int left = split.units * C::Source::token_unit_bytes, buffer = 0;
    uint32_t parity = 1;
    const uint8_t* from = args.tokens + lane * args.token_stride;
    for (int phase = 0; phase < split.phases; ++phase) {
        if (phase >= split.buffers) ptx::wait_for(barriers.empty + buffer, parity);
        const int bytes = left < per_phase ? left : per_phase;
        if (lane == 0) ptx::expect_bytes(barriers.full + buffer, uint32_t(bytes * args.token_count));
        __syncwarp();
        if (lane < args.token_count)
            ptx::copy_run(buffers + buffer * split.buffer_bytes + lane * split.token_pitch, from, uint32_t(bytes), barriers.full + buffer);
        from += per_phase, left -= per_phase;
        if (++buffer == split.buffers) buffer = 0, parity ^= 1;
    }
}

// The tokens' fragments of an atom: words 2s and 2s + 1 belong to step s.
template <class C>
struct TokenFragments {
    static constexpr int words = 2 * C::Source::steps_per_atom;
    uint32_t b[C::TokenTiles][words];

    static constexpr int loaded_words = C::Source::byte_tokens ? words / 2 : words;

    // Where a lane finds its part of a unit. Tokens that do not exist repeat the last one: their results are not stored.
    __device__ static int offset(int tile, const DecodeArgs& args) {
        const int lane = threadIdx.x % 32, last = args.token_count - 1;
        const int token = 8 * tile + (C::Source::natural_order ? lane % 8 : lane / 4);
        const int inside = C::Source::natural_order ? lane / 8 * 16 : lane % 4 * (loaded_words * 4);
        return (token < last ? token : last) * args.split.token_pitch + inside;
    }
    __device__ void load(const uint32_t (&tokens)[C::TokenTiles], int at) {
#pragma unroll
        for (int tile = 0; tile < C::TokenTiles; ++tile)
#pragma unroll
            for (int i = 0; i < loaded_words; i += 4) {
                uint32_t four[4];
                if constexpr (C::Source::natural_order) {
                    ptx::load_matrices(four, tokens[tile] + at + 16 * i);
                } else {
                    const uint4 loaded = ptx::load_16(tokens[tile] + at + 4 * i);
                    four[0] = loaded.x, four[1] = loaded.y, four[2] = loaded.z, four[3] = loaded.w;
                }
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    if constexpr (C::Source::byte_tokens) {
                        b[tile][2 * (i + k)] = C::Source::widen_token(four[k] & 0xffffu);
                        b[tile][2 * (i + k) + 1] = C::Source::widen_token(four[k] >> 16);
                    } else {
                        b[tile][i + k] = four[k];
                    }
                }
            }
    }
    __device__ void step(int tile, int s, uint32_t (&pair)[2]) const { pair[0] = b[tile][2 * s], pair[1] = b[tile][2 * s + 1]; }
};

// Integer tokens: behind the codes of a unit stand a scale (fp32) and the sum of the codes, for each quarter of it or for all of it.
template <class C>
struct TokenTerms {
    uint32_t place[C::TokenTiles][2];  // of the two tokens of this lane's results

    __device__ void set(const DecodeArgs& args, uint32_t unit) {
        if constexpr (C::Source::token_terms)
#pragma unroll
            for (int tile = 0; tile < C::TokenTiles; ++tile)
#pragma unroll
                for (int column = 0; column < 2; ++column) {
                    const int token = 8 * tile + 2 * (int(threadIdx.x) % 4) + column, last = args.token_count - 1;
                    place[tile][column] = unit + uint32_t((token < last ? token : last) * args.split.token_pitch + C::Source::unit_values);
                }
    }
    __device__ void advance(uint32_t bytes) {
        if constexpr (C::Source::token_terms)
#pragma unroll
            for (int tile = 0; tile < C::TokenTiles; ++tile) place[tile][0] += bytes, place[tile][1] += bytes;
    }
    __device__ uint2 at(int tile, int column, int segment) const { return ptx::load_8(place[tile][column] + 8 * segment); }
};

template <class C>
class DecodeSums {
    using Source = typename C::Source;
    using Mma = typename C::Mma;

public:
    // A unit in registers, its tokens (by lane) in a phase buffer.
    __device__ void multiply(const UnitInRegisters<C>& unit, const uint32_t (&tokens)[C::TokenTiles], const TokenTerms<C>& terms,
                             const DecodeArgs& args) {
        TokenFragments<C> x;
#pragma unroll
        for (int step = 0; step < C::steps_per_unit; ++step) {
            const int atom = step / Source::steps_per_atom, inside = step % Source::steps_per_atom, segment = step / C::steps_per_segment;
            if (inside == 0) x.load(tokens, atom * (Source::token_atom_bytes));
#pragma unroll
            for (int r = 0; r < C::RowTiles; ++r) {
                uint32_t a[4], b[2];
                Source::fragment(a, unit.codes[r], unit.group(r, segment), atom, inside);
#pragma unroll
                for (int t = 0; t < C::TokenTiles; ++t) {
                    x.step(t, inside, b);
                    Mma::multiply(parts_[r][t][step % chains], a, b);
                }
            }
            if constexpr (C::Segments > 0)
                if ((step + 1) % C::steps_per_segment == 0) close_segment(unit, segment, terms, args);
        }
    }

    // Into [token][row] of this depth; `pitch` rows.
    __device__ void put(typename C::Sum* to, int pitch) const {
        const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
        for (int r = 0; r < C::RowTiles; ++r)
#pragma unroll
            for (int tile = 0; tile < C::TokenTiles; ++tile)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    to[(8 * tile + 2 * t + e % 2) * pitch + r * rows_per_tile + g + e / 2 * 8] = final_sum(r, tile, e);
    }

private:
    __device__ typename C::Sum final_sum(int r, int tile, int e) const {
        if constexpr (C::Segments > 0)
            return sums_[r][tile][e];
        else
            return whole_part(r, tile, e);
    }
    __device__ typename C::Part whole_part(int r, int tile, int e) const {
        typename C::Part sum = parts_[r][tile][0][e];
#pragma unroll
        for (int chain = 1; chain < chains; ++chain) sum += parts_[r][tile][chain][e];
        return sum;
    }

    __device__ void close_segment(const UnitInRegisters<C>& unit, int segment, const TokenTerms<C>& terms, const DecodeArgs& args) {
        if constexpr (Source::token_terms)
            close_integers(unit, segment, terms, args);
        else
            close_numbers(unit, segment, args);
    }

    __device__ void close_numbers(const UnitInRegisters<C>& unit, int segment, const DecodeArgs& args) {
#pragma unroll
        for (int r = 0; r < C::RowTiles; ++r)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float scale = unit.scale(r, segment, half, args);
#pragma unroll
                for (int tile = 0; tile < C::TokenTiles; ++tile)
#pragma unroll
                    for (int e = 2 * half; e < 2 * half + 2; ++e) {
                        sums_[r][tile][e] += scale * float(whole_part(r, tile, e));
#pragma unroll
                        for (int chain = 0; chain < chains; ++chain) parts_[r][tile][chain][e] = 0;
                    }
            }
    }

    // Integer products of codes that still have their offset on: what it is times the sum of the token's codes comes off, exactly.
    __device__ void close_integers(const UnitInRegisters<C>& unit, int segment, const TokenTerms<C>& terms, const DecodeArgs& args) {
#pragma unroll
        for (int tile = 0; tile < C::TokenTiles; ++tile)
#pragma unroll
            for (int column = 0; column < 2; ++column) {
                const uint2 term = terms.at(tile, column, segment);
                const float token_scale = __uint_as_float(term.x);
                const int token_sum = int(term.y);
#pragma unroll
                for (int r = 0; r < C::RowTiles; ++r)
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        const int e = 2 * half + column;
                        const int product = int(whole_part(r, tile, e)) - unit.group(r, segment).offset[half] * token_sum;
                        sums_[r][tile][e] += unit.scale(r, segment, half, args) * token_scale * float(product);
#pragma unroll
                        for (int chain = 0; chain < chains; ++chain) parts_[r][tile][chain][e] = 0;
                    }
            }
    }

    // Products follow each other in two chains: one alone would mostly wait for its own last one. (The same for any number of tokens.)
    static constexpr int chains = C::steps_per_segment > 2 ? 2 : 1;
    typename C::Part parts_[C::RowTiles][C::TokenTiles][chains][4] = {};
    float sums_[C::Segments > 0 ? C::RowTiles : 1][C::Segments > 0 ? C::TokenTiles : 1][4] = {};
};

// Reads one word of every line of the epilogue's arguments: at the end of a kernel the first use of each would wait for memory.
__device__ inline void touch(const EpilogueArgs& epilogue) {
    const auto* words = reinterpret_cast<const uint32_t*>(&epilogue);
#pragma unroll
    for (size_t i = 0; i < sizeof(EpilogueArgs) / 4; i += 16) asm volatile("" ::"r"(words[i]));
}

// The sums over depth, in its order, and what the epilogue makes of them. A thread keeps to a row.
template <class C>
__device__ inline void finish_decode(const DecodeArgs& args, const typename C::Sum* results, int pitch) {
    const DecodeSplit& split = args.split;
    constexpr int most_tokens = 8 * C::TokenTiles;
    const int block_rows = split.row_warps * C::RowTiles * rows_per_tile, threads = split.depth_warps * 32 / (C::RowTiles * rows_per_tile);
    const int group = int(split.depth_warp_divisor.quotient(threadIdx.x / 32));  // its threads have the rows of a row warp
    const int inside = int(threadIdx.x) - group * split.depth_warps * 32, row_here = inside % (C::RowTiles * rows_per_tile);
    const int row_in_block = group * C::RowTiles * rows_per_tile + row_here;
    const int64_t row = int64_t(blockIdx.x) * split.tiles_per_block * rows_per_tile + row_in_block;
    if (row_in_block >= block_rows || row_in_block >= split.tiles_per_block * rows_per_tile || row >= args.rows) return;
    const EpilogueArgs& e = args.epilogue;
    const RowTerm term = load_row_term(e, row);
    for (int token = inside / (C::RowTiles * rows_per_tile); token < args.token_count; token += threads) {
        typename C::Sum sum = 0;
        for (int depth = 0; depth < split.depth_warps; ++depth) sum += results[(depth * most_tokens + token) * pitch + row_in_block];
        store_bits(e.y, token * e.y.row_stride + row * e.y.column_stride, finish_one(e, term, token, row, sum));
    }
}

// One warp more than multiply: it brings the tokens.
template <class C>
__global__ void __launch_bounds__((most_decode_warps + 1) * 32, 1)
    decode_stream(const __grid_constant__ DecodeArgs args, const __grid_constant__ typename C::Source::Args weight) {
#if LOWBIT_HOPPER
    using Source = typename C::Source;
    extern __shared__ __align__(128) uint8_t shared[];
    __shared__ PhaseBarriers barriers;
    const DecodeSplit& split = args.split;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    ptx::hold(warp), ptx::hold(lane);
    uint8_t* buffers = shared + split.warps() * split.ring_slots * C::slot_bytes;
    const int pitch = split.row_warps * C::RowTiles * rows_per_tile + 4;  // of the results
    auto* results = reinterpret_cast<typename C::Sum*>(shared);
    if (warp == split.warps()) {
        if (lane < split.buffers) ptx::init_barrier(barriers.full + lane, 1), ptx::init_barrier(barriers.empty + lane, split.warps());
        ptx::publish_barriers();
        ptx::meet(int(blockDim.x));
        ptx::wait_for_previous_launch();  // the weight is nobody's result, but the tokens may be that of the launch before
        copy_tokens<C>(args, buffers, barriers);
        ptx::meet(int(blockDim.x));
        ptx::meet(int(blockDim.x));
        return;
    }
    const int row_warp = int(split.depth_warp_divisor.quotient(uint32_t(warp))), depth_warp = warp - row_warp * split.depth_warps;
    uint32_t ring = ptx::shared_address(shared) + uint32_t(warp * split.ring_slots * C::slot_bytes);
    uint32_t ring_end = ring + uint32_t(split.ring_slots * C::slot_bytes);
    ptx::hold(ring), ptx::hold(ring_end);
    UnitStream<C> stream(args, weight, blockIdx.x * split.tiles_per_block + row_warp * C::RowTiles, depth_warp);
    // A group of copies for each of the kernel's slots, empty where a warp has no more units.
#pragma unroll
    for (int slot = 0; slot < C::slots; ++slot) stream.fetch(ring + slot * C::slot_bytes, lane);
    ptx::meet(int(blockDim.x));
    ptx::let_dependents_begin();
    touch(args.epilogue);

    DecodeSums<C> sums;
    uint32_t slot = ring, token_offsets[C::TokenTiles];
#pragma unroll
    for (int t = 0; t < C::TokenTiles; ++t) token_offsets[t] = uint32_t(TokenFragments<C>::offset(t, args));
    int left = (split.units - depth_warp + split.depth_warps - 1) / split.depth_warps;  // units of this warp
    int buffer = 0;
    uint32_t parity = 0;
    for (int phase = 0; phase < split.phases; ++phase) {
        ptx::wait_for(barriers.full + buffer, parity);
        uint32_t tokens[C::TokenTiles];
        TokenTerms<C> terms;
        terms.set(args, ptx::shared_address(buffers) + uint32_t(buffer * split.buffer_bytes + depth_warp * Source::token_unit_bytes));
#pragma unroll
        for (int t = 0; t < C::TokenTiles; ++t)
            tokens[t] = ptx::shared_address(buffers) + uint32_t(buffer * split.buffer_bytes + depth_warp * Source::token_unit_bytes) +
                        token_offsets[t];
        for (int round = 0; round < split.phase_rounds && left > 0; ++round, --left) {
            ptx::wait_for_copies<C::slots - 1>();
            __syncwarp();
            UnitInRegisters<C> unit;
            unit.load(slot, lane, args);
            stream.take_scales(unit);
            __syncwarp();
            stream.fetch(slot, lane);
            slot = slot + C::slot_bytes == ring_end ? ring : slot + C::slot_bytes;
            sums.multiply(unit, tokens, terms, args);
            terms.advance(uint32_t(split.depth_warps * Source::token_unit_bytes));
#pragma unroll
            for (int t = 0; t < C::TokenTiles; ++t) tokens[t] += uint32_t(split.depth_warps * Source::token_unit_bytes);
        }
        __syncwarp();
        if (lane == 0) ptx::arrive(barriers.empty + buffer);
        if (++buffer == split.buffers) buffer = 0, parity ^= 1;
    }
    ptx::wait_for_copies<0>();
    ptx::meet(int(blockDim.x));
    sums.put(results + depth_warp * 8 * C::TokenTiles * pitch + row_warp * C::RowTiles * rows_per_tile, pitch);
    ptx::meet(int(blockDim.x));
    finish_decode<C>(args, results, pitch);
#endif
}

}  // namespace lowbit::cuda
