// Products of few tokens: the weight streams through the chip once, at the speed of memory.
//
// A block owns some tiles of 16 rows and all of K. Its warps form a grid rows x depth (some rows one deeper, where warps are left over): a
// warp has `RowTiles` tiles and every depth_warps-th unit of K (128 values of 4 bits, or 128 bytes of a row), and a ring of its own through
// which codes and scales come, so that warps wait for memory and for nobody else. The tokens come in phases, stretches of K that all warps
// share, through a few buffers.
//
//     codes, scales:  memory -> ring of the warp -> registers, decoded -> tensor core -> part sums -- times scales --> sums
//     tokens:         memory -> phase buffer -> fragments
//     sums of the warps along depth, added in their order -> epilogue
//
// How tiles, K and warps are split depends on the weight alone, never on the number of tokens: a token's result is the same bits whatever
// its company.
#pragma once
#include "cuda/decode/integer_tokens.cuh"
#include "cuda/decode/tokens.cuh"
#include "cuda/decode/units.cuh"

namespace lowbit::cuda {

template <class C>
class DecodeSums {
    using Source = typename C::Source;
    using Mma = typename C::Mma;

public:
    // A unit in registers, its tokens (by lane) in a phase buffer.
    __device__ void multiply(const UnitInRegisters<C>& unit, uint32_t tokens, uint32_t second_tile, const TokenTerms<C>& terms,
                             const DecodeArgs& args) {
        TokenFragments<C> x;
#pragma unroll
        for (int step = 0; step < C::steps_per_unit; ++step) {
            const int atom = step / Source::steps_per_atom, inside = step % Source::steps_per_atom, segment = step / C::steps_per_segment;
            if (inside == 0) x.load(tokens, second_tile, atom * Source::token_atom_bytes, args);
            if constexpr (sums_tokens) add_tokens(x, inside);
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
            if constexpr (C::scales_sums)
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
    // Numbers of 16 bits x codes with minimums: the sum of a token's values over a group is its product with a row of ones.
    static constexpr bool sums_tokens = Source::minimums && !Source::token_terms;
    __device__ void add_tokens(const TokenFragments<C>& x, int step) {
        const uint32_t one = Source::ones(), ones[4] = {one, one, one, one};
#pragma unroll
        for (int t = 0; t < C::TokenTiles; ++t) {
            uint32_t b[2];
            x.step(t, step, b);
            Mma::multiply(token_sums_[t], ones, b);
        }
    }

    __device__ typename C::Sum final_sum(int r, int tile, int e) const {
        if constexpr (C::scales_sums)
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
                const float scale = unit.scale(r, segment, half, args) * code_unit<Source>(half);
#pragma unroll
                for (int tile = 0; tile < C::TokenTiles; ++tile)
#pragma unroll
                    for (int e = 2 * half; e < 2 * half + 2; ++e) {
                        sums_[r][tile][e] += scale * float(whole_part(r, tile, e));
                        if constexpr (sums_tokens) sums_[r][tile][e] += unit.terms[r].minimum(segment, half) * token_sums_[tile][e % 2];
#pragma unroll
                        for (int chain = 0; chain < chains; ++chain) parts_[r][tile][chain][e] = 0;
                    }
            }
        if constexpr (sums_tokens)
#pragma unroll
            for (int tile = 0; tile < C::TokenTiles; ++tile)
#pragma unroll
                for (int e = 0; e < 4; ++e) token_sums_[tile][e] = 0;
    }

    // Integer products of codes that still have their offset on: what it is times the sum of the token's codes comes off, exactly.
    __device__ void close_integers(const UnitInRegisters<C>& unit, int segment, const TokenTerms<C>& terms, const DecodeArgs& args) {
#pragma unroll
        for (int tile = 0; tile < C::TokenTiles; ++tile)
#pragma unroll
            for (int column = 0; column < 2; ++column) {
                const TokenTerm term = terms.at(tile, column, segment);
#pragma unroll
                for (int r = 0; r < C::RowTiles; ++r)
#pragma unroll
                    for (int half = 0; half < 2; ++half) {
                        const int e = 2 * half + column;
                        const int product = int(whole_part(r, tile, e)) - unit.group(r, segment).offset[half] * term.sum;
                        sums_[r][tile][e] += unit.scale(r, segment, half, args) * term.scale * float(product);
                        if constexpr (Source::minimums)
                            sums_[r][tile][e] += unit.terms[r].minimum(segment, half) * term.scale * float(term.sum);
#pragma unroll
                        for (int chain = 0; chain < chains; ++chain) parts_[r][tile][chain][e] = 0;
                    }
            }
    }

    // Products follow each other in two chains: one alone would mostly wait for its own last one. (The same for any number of tokens.)
    static constexpr int chains = (!C::scales_sums || C::steps_per_segment > 2) && C::RowTiles == 1 ? 2 : 1;
    typename C::Part parts_[C::RowTiles][C::TokenTiles][chains][4] = {};
    typename C::Part token_sums_[sums_tokens ? C::TokenTiles : 1][4] = {};
    float sums_[C::scales_sums ? C::RowTiles : 1][C::scales_sums ? C::TokenTiles : 1][4] = {};
};

// Reads one word of every line of the epilogue's arguments: at the end of a kernel the first use of each would wait for memory.
__device__ inline void touch(const EpilogueArgs& epilogue) {
    const auto* words = reinterpret_cast<const uint32_t*>(&epilogue);
#pragma unroll
    for (size_t i = 0; i < sizeof(EpilogueArgs) / 4; i += 16) asm volatile("" ::"r"(words[i]));
}

// Sums of a block in shared memory: [depth][token][row of the block].
template <class Sum>
struct DepthSums {
    const Sum* sums;
    int tokens, pitch, warp_rows;

    __device__ const Sum* first(int token, int row) const { return sums + token * pitch + row; }
    __device__ int step() const { return tokens * pitch; }
    __device__ int depth(const DecodeSplit& split, int row) const { return split.depth_warps + (row / warp_rows < split.deep_rows); }
    __device__ Sum of(const DecodeSplit& split, int token, int row) const {
        const Sum* place = first(token, row);
        Sum sum = 0;
        for (int depth = this->depth(split, row); depth > 0; --depth, place += step()) sum += *place;
        return sum;
    }
};

// The sums over depth, in its order, and what the epilogue makes of them: eight neighbouring rows of a token at a time.
template <class Sum>
__device__ inline void finish_rows(const DecodeArgs& args, const DepthSums<Sum>& sums, uint32_t thread) {
    const DecodeSplit& split = args.split;
    const uint32_t runs = uint32_t(split.tiles_per_block) * (rows_per_tile / 8), count = runs * uint32_t(args.token_count);
    for (uint32_t index = thread; index < count; index += uint32_t(split.warps()) * 32) {
        const int token = int(index / runs), row_in_block = int(index % runs) * 8;
        const int64_t row = int64_t(blockIdx.x) * split.tiles_per_block * rows_per_tile + row_in_block;
        if (row >= args.rows) continue;
        Sum eight[8] = {};
        const Sum* place = sums.first(token, row_in_block);
        for (int depth = sums.depth(split, row_in_block); depth > 0; --depth, place += sums.step()) {
            const auto* words = reinterpret_cast<const uint4*>(place);
            const uint4 low = words[0], high = words[1];
            const uint32_t bits[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
            for (int i = 0; i < 8; ++i)
                if constexpr (std::is_same_v<Sum, float>)
                    eight[i] += __uint_as_float(bits[i]);
                else
                    eight[i] += int32_t(bits[i]);
        }
        store_eight(args.epilogue, load_row_terms(args.epilogue, row, args.rows), token, row, args.rows, eight);
    }
}

// The same with a gate: pairs of tiles stand side by side, and a thread has a row of both.
template <class Sum>
__device__ inline void finish_gate(const DecodeArgs& args, const DepthSums<Sum>& sums, uint32_t thread) {
    const DecodeSplit& split = args.split;
    const EpilogueArgs& e = args.epilogue;
    const uint32_t rows = uint32_t(split.tiles_per_block) / 2 * rows_per_tile, count = rows * uint32_t(args.token_count);
    for (uint32_t index = thread; index < count; index += uint32_t(split.warps()) * 32) {
        const int token = int(index / rows), inside = int(index % rows);
        const int first = inside / rows_per_tile * 2, row_in_block = first * rows_per_tile + inside % rows_per_tile;
        const int place = blockIdx.x * split.tiles_per_block + first;
        const int64_t row = int64_t(args.tile(place)) * rows_per_tile + inside % rows_per_tile;
        if (place >= args.tiles || row >= args.rows) continue;
        const RowTerm term = load_row_term(e, row), second = load_row_term(e, row + int64_t(args.half_tiles) * rows_per_tile);
        const float gate = activate(e.activation, scale_and_bias(e, term, token, sums.of(split, token, row_in_block)));
        const float up = scale_and_bias(e, second, token, sums.of(split, token, row_in_block + rows_per_tile));
        store_value(e, token, row, gate * up);
    }
}

template <class C>
__device__ inline bool orders_tokens(const DecodeArgs& args) {
    return C::Source::token_terms && args.orders_tokens;
}

// The units of a warp, phase after phase of their tokens.
template <class C>
__device__ inline void multiply_units(const DecodeArgs& args, PhaseBarriers& barriers, const uint8_t* buffers, UnitStream<C>& stream,
                                      DecodeSums<C>& sums, uint32_t ring, uint32_t ring_end, const DecodeSplit::Place& at, int lane) {
    using Source = typename C::Source;
    const DecodeSplit& split = args.split;
    uint32_t slot = ring;
    const uint32_t token_offset = TokenFragments<C>::offset(args), second_tile = TokenFragments<C>::second_tile(args);
    const int unit_bytes = split.row_bytes * (Source::token_unit_bytes / token_run_bytes);  // of all tokens
    const auto token_step = uint32_t(at.depth_warps * unit_bytes);
    int unit_number = at.depth_warp, buffer = 0;
    uint32_t parity = 0;
    for (int phase = 0; phase < split.phases; ++phase) {
        if (!orders_tokens<C>(args)) ptx::wait_for(barriers.full + buffer, parity);
        TokenTerms<C> terms;
        const int first = phase * split.phase_units, end = smaller(first + split.phase_units, split.units);
        const uint32_t start = ptx::shared_address(buffers) + uint32_t(buffer * split.buffer_bytes);
        uint32_t tokens = start + uint32_t((unit_number - first) * unit_bytes) + token_offset;
        terms.set(args, start, unit_number - first);
        for (; unit_number < end; unit_number += at.depth_warps) {
            ptx::wait_for_copies<C::slots - 1>();
            __syncwarp();
            UnitInRegisters<C> unit;
            unit.load(slot, lane);
            stream.take_scales(unit);
            __syncwarp();
            stream.fetch(slot, lane);
            slot = slot + C::slot_bytes == ring_end ? ring : slot + C::slot_bytes;
            sums.multiply(unit, tokens, second_tile, terms, args);
            terms.advance(args, at.depth_warps);
            tokens += token_step;
        }
        __syncwarp();
        if (lane == 0) ptx::arrive(barriers.empty + buffer);
        if (++buffer == split.buffers) buffer = 0, parity ^= 1;
    }
    ptx::wait_for_copies<0>();
}

// The warps that multiply, and those that bring the tokens: one of them does, but registers change hands by the four.
template <class C>
__global__ void __launch_bounds__(C::most_threads, 1)
    decode_stream(const __grid_constant__ DecodeArgs args, const __grid_constant__ typename C::Source::Args weight,
                  const __grid_constant__ TokenMaps maps) {
#if LOWBIT_HOPPER
    extern __shared__ __align__(1024) uint8_t shared[];
    __shared__ PhaseBarriers barriers;
    const DecodeSplit& split = args.split;
    int warp = int(threadIdx.x / 32) - C::helping_warps, lane = threadIdx.x % 32;  // negative: helps
    ptx::hold(warp), ptx::hold(lane);
    const int warps = split.warps();
    const bool brings_tokens = threadIdx.x < 32;
    if (brings_tokens) {
        if (lane < split.buffers) {
            ptx::init_barrier(barriers.full + lane, 1), ptx::init_barrier(barriers.empty + lane, warps);
            ptx::publish_barriers();
        }
        __syncwarp();
        // The weight is nobody's result, but the tokens may be that of the launch before.
        ptx::wait_for_previous_launch();
        if (!orders_tokens<C>(args)) copy_tokens<C, true>(args, maps, shared, barriers);
        // Not before: where the next launch begins, all before this one have ended. Kernels of others count on it.
        ptx::let_dependents_begin();
    }
    const DecodeSplit::Place at = split.place(warp < 0 ? 0 : warp);
    uint32_t ring = ptx::shared_address(shared) + uint32_t(split.buffers * split.buffer_bytes + warp * split.ring_slots * C::slot_bytes);
    uint32_t ring_end = ring + uint32_t(split.ring_slots * C::slot_bytes);
    ptx::hold(ring), ptx::hold(ring_end);
    UnitStream<C> stream(args, weight, blockIdx.x * split.tiles_per_block + at.row_warp * C::RowTiles, at.depth_warp, at.depth_warps);
    // A group of copies for each of the kernel's slots, empty where a warp has no more units. What is asked for last comes last: half of
    // the weight waits until the tokens have been asked for, unless those are waiting for the launch before.
    constexpr int early_slots = C::slots / 2;
    const bool multiplies = warp >= 0 && warp < warps, orders = orders_tokens<C>(args);
    // Tokens that the block orders by itself are asked for before any of the weight, too.
    QuarterCodes codes;
    const auto ask_for_tokens = [&] {
        if constexpr (C::Source::token_terms)
            if (orders && multiplies) {
                ptx::wait_for_previous_launch();
                codes.load<true>(args.integers, warp * 32 + lane);
            }
    };
    if (!args.begins_early) ask_for_tokens();
#pragma unroll 1  // a launch begins by loading its code
    for (int i = 0; i <= C::slots; ++i) {
        if (i == (args.begins_early ? C::slots : early_slots)) {
            if (args.begins_early) ask_for_tokens();
            if constexpr (C::Source::token_terms)
                if (orders && multiplies) order_tokens(args, codes, ptx::shared_address(shared), warp * 32 + lane, warps * 32);
            if (!orders) __syncthreads();
        }
        if (multiplies && i < C::slots) stream.fetch(ring + i * C::slot_bytes, lane);
    }
    if constexpr (C::Source::table_bytes > 0) C::Source::fill_table();
    if (C::Source::table_bytes > 0 || orders) __syncthreads();
    if (warp < 0) {
        if constexpr (C::trades_registers) ptx::give_up_registers<24>();
        if (brings_tokens && !orders) copy_tokens<C, false>(args, maps, shared, barriers);
        return;
    }
    if constexpr (C::trades_registers) ptx::take_registers<112>();
    if (!multiplies) return;
    DecodeSums<C> sums;
    touch(args.epilogue);
    multiply_units<C>(args, barriers, shared, stream, sums, ring, ring_end, at, lane);
    constexpr int most_tokens = 8 * C::TokenTiles, warp_rows = C::RowTiles * rows_per_tile;
    const int pitch = split.row_warps * warp_rows + 4;
    auto* results = reinterpret_cast<typename C::Sum*>(shared);
    const auto meet = [&] { ptx::meet_warps(1, warps * 32); };
    meet();
    sums.put(results + at.depth_warp * most_tokens * pitch + at.row_warp * warp_rows, pitch);
    meet();
    const DepthSums<typename C::Sum> finished{results, most_tokens, pitch, warp_rows};
    const uint32_t thread = threadIdx.x - C::helping_warps * 32;
    args.half_tiles ? finish_gate(args, finished, thread) : finish_rows(args, finished, thread);
#endif
}

}  // namespace lowbit::cuda
