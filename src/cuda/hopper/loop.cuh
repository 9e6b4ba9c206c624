// Products of many tokens on Hopper: Y[tokens, rows] = X[tokens, k] * W[rows, k]^T, with the weight as the 64-row operand, so that the
// tokens of a tile can be few and decoded weights can stay in registers.
//
//     one warp copies:                 memory -> ring of stages (tokens; codes and scales, or rows, of the weight)
//     two warps go ahead:              which tile comes next, and what the epilogue needs for its rows and tokens
//     two to four warpgroups multiply: stage -> (registers, decoded) -> tensor core -> sums
//                                      sums -> scales, bias -> shared memory -> boxes of the output
//
// Blocks live as long as the grid and walk over tiles; which ones follows from their number alone, so the result does not depend on timing.
// Few tiles: the blocks of a cluster share out K, and then the results: to its part of them each adds the sums of the others, in their
// order. A last wave that would leave half of the chip idle: a tile of two blocks goes to two clusters, one row of it each, whose blocks
// share out K in the same way.
#pragma once
#include "cuda/hopper/exchange.cuh"
#include "cuda/hopper/promoted.cuh"
#include "cuda/hopper/ring.cuh"
#include "cuda/hopper/store.cuh"
#include "cuda/hopper/walk.cuh"
#include "cuda/hopper/weight.cuh"

namespace lowbit::cuda {

// C: a type with `static constexpr HopperTile tile` and `using Source`. (Not a template over a HopperTile: nvcc 13.0 cannot name a
// struct's value in its host stub.)
template <class C>
class HopperGemm {
    static constexpr HopperTile tile = C::tile;
    static_assert(!tile.alternate || tile.depth == 1);
    static_assert(tile.teams == 1 || (tile.teams == 2 && !tile.alternate && tile.cluster == 1));
    static constexpr int groups = tile.groups, teams = tile.teams, groups_per_tile = tile.alternate ? 1 : groups / teams;
    static constexpr int threads = tile.threads(), copy_registers = tile.copy_registers(), multiply_registers = tile.multiply_registers();
    using Kind = typename C::Source::Kind;
    // Turned: the tokens are the 64-row operand, and a warpgroup has its share of them and all rows of the weight.
    static constexpr bool turned = C::Source::turned;
    static constexpr int token_blocks = tile.tokens / 64 / groups;  // of a warpgroup, then
    // Exchanged: rows and tokens of the tile are the problem's tokens and rows.
    static constexpr bool exchanged = C::Source::exchanged;
    // A thread has half as many sums of each block.
    static constexpr int blocks_per_group = turned ? 1 : tile.rows / 64 / groups_per_tile,
                         columns = turned ? token_blocks * tile.rows : tile.tokens;
    using Weight = typename C::Source::template Tile<tile.rows, blocks_per_group>;
    static constexpr bool promoted = C::Source::promoted, token_groups = C::Source::token_groups;
    static_assert(!promoted || (!tile.alternate && tile.depth <= (Weight::in_registers ? 2 : 1)));
    static constexpr bool scale_warp = token_groups && warp_brings_scales(tile.tokens);
    using Part = typename Kind::Accumulator;
    using Sum = std::conditional_t<promoted, float, Part>;
    using Sums = Sum[blocks_per_group][columns / 2];
    static_assert(!turned || (promoted && tile.rows == 128));
    using PlainStore = HopperStore<Sum, blocks_per_group, tile.tokens, correction_of<Kind>, tile.boxes>;
    using Store = std::conditional_t<
        turned, TurnedStore<token_blocks>,
        std::conditional_t<exchanged, ExchangedStore<Sum, blocks_per_group, tile.tokens, correction_of<Kind>, tile.boxes>, PlainStore>>;
    static_assert(!exchanged || !promoted);
    static constexpr int exchange_name = 1 + groups * Store::names, table_name = exchange_name + 1;  // of barriers, behind the stores'
    static_assert(table_name < 16);
    using Exchange = HopperExchange<Sum, blocks_per_group, columns, groups, groups_per_tile, Store::units_of_pass>;
    static constexpr int term_rows = exchanged ? tile.tokens : tile.rows, term_tokens = exchanged ? tile.rows : tile.tokens;
    using Board = PieceBoard<PieceTerms<term_rows, term_tokens, correction_of<Kind>>, tile.term_sets>;
    using At = RingPlace<tile.stages>;
    static constexpr int block_k = ptx::wgmma_row_bytes / Kind::bytes, token_bytes = tile.tokens * ptx::wgmma_row_bytes;

public:
    static constexpr int table_bytes = C::Source::table_bytes;  // before all else
    struct Shared {
        static constexpr int depth = tile.depth;
        alignas(1024) uint8_t tokens[tile.stages][tile.depth][token_bytes];
        alignas(1024) uint8_t weight[tile.stages][tile.depth][Weight::stage_bytes];
        typename Store::Staging store[groups];
        alignas(16) float token_scales[token_groups ? tile.stages : 1][token_groups ? tile.tokens : 4];
        Ring<tile.stages> ring;
        Turns turns;
        Board board;
    };
    static constexpr int most_splits = tile.cluster > 1 || tile.alternate ? 1 : Exchange::most_splits(int(offsetof(Shared, store)));
    static constexpr bool can_halve = tile.cluster == 2 && !tile.alternate && Exchange::bytes_held(2) <= int(offsetof(Shared, store));
    using Walk = PieceWalk<C, most_splits, can_halve>;

    __device__ static void run(const HopperArgs& args, Shared& shared) {
        if (threadIdx.x == groups * 128) {
            ptx::prefetch_map(args.tokens), ptx::prefetch_map(args.weight);
            if (args.store_boxes) ptx::prefetch_map(args.output);
        }
        const int warp = __shfl_sync(~0u, int(threadIdx.x) / 32, 0);  // tells the compiler that it is uniform
        // The warp that copies makes the barriers, and begins at once where no other block's copies come into this one's stages.
        if (warp == groups * 4) {
            if (ptx::elect_one()) {
                shared.ring.initialise(scale_warp ? 1 + 32 : 1, 4 * groups_per_tile * tile.cluster);
                shared.turns.initialise();
                shared.board.initialise(4 * (tile.alternate ? 1 : groups));
                ptx::publish_barriers();
            }
            __syncwarp();
        }
        if constexpr (tile.cluster > 1)
            ptx::meet_cluster();
        else if (warp == groups * 4)
            ptx::announce(0, threads);
        else
            ptx::meet_warps(0, threads);
        // Nothing is read from memory before this. In a chain the next launch may begin from here on: it waits in the same way.
        ptx::wait_for_previous_launch();
        ptx::let_dependents_begin();
        if (warp >= groups * 4) {
            ptx::give_up_registers<copy_registers>();
            if (warp == groups * 4) copy_all(args, shared);
            if (scale_warp && warp == groups * 4 + 1) bring_token_scales(args, shared);
            if (warp == groups * 4 + 2) go_ahead<true>(args, shared.board);
            if (warp == groups * 4 + 3) go_ahead<false>(args, shared.board);
            __syncwarp();
            if (args.splits > 1 || Walk::has_half(args)) ptx::meet_cluster(), ptx::meet_cluster();
        } else {
            ptx::take_registers<multiply_registers>();
            if constexpr (table_bytes > 0) {
                C::Source::fill_table(reinterpret_cast<uint8_t*>(&shared) - table_bytes, int(threadIdx.x), groups * 128);
                ptx::meet_warps(table_name, groups * 128);
            }
            multiply_all(args, shared, warp);
            __syncwarp();
        }
        // A block stays until no other one of the cluster copies into it.
        if (tile.cluster > 1) ptx::meet_cluster();
    }

private:
    // A whole warp runs this, so that its way is uniform; one lane issues.
    __device__ static void copy_all(const HopperArgs& args, Shared& shared) {
        constexpr int part = tile.tokens / tile.cluster;
        const int my_part = tile.cluster > 1 ? int(ptx::block_in_cluster()) * part : 0;
        At at;
        Walk::for_each(args, 0, 1, [&](Piece piece) {
            const Corner corner = Walk::corner_of(args, piece);
            // The copy engine takes longer for zeros than for tokens: the last part has a box of its own, and leaves what stood behind it
            // in the stage, whose products nobody stores.
            const int64_t token_count = exchanged ? args.rows : args.token_count;
            const int tokens_there = int(smaller(token_count - corner.token, int64_t(tile.tokens)));
            const auto copied_from = [&](int first) {
                const int left = tokens_there - first;
                return left >= part ? part : left > 0 ? args.last_tokens_box : 0;
            };
            int copied = 0;
#pragma unroll
            for (int first = 0; first < tile.tokens; first += part) copied += copied_from(first);
            constexpr uint32_t scale_bytes = token_groups && !scale_warp ? tile.tokens * sizeof(float) : 0;
            const uint32_t stage_bytes =
                tile.depth * (uint32_t(copied * ptx::wgmma_row_bytes) + Weight::copied_bytes(args, corner.row)) + scale_bytes;
            const auto copy_tokens = [&](uint8_t* to, int first, int block, ptx::Barrier* full, bool to_all) {
                const int count = copied_from(first);
                if (count == 0) return;
                const CUtensorMap& map = count == part ? args.tokens : args.last_tokens;
                uint8_t* place = to + first * ptx::wgmma_row_bytes;
                if (to_all)
                    ptx::copy_box_to_all(place, map, block * block_k, corner.token + first, full, uint16_t((1 << tile.cluster) - 1));
                else
                    ptx::copy_box(place, map, block * block_k, corner.token + first, full);
            };
            for (int k = piece.k_first; k < piece.k_first + piece.k_count; ++k, at.advance()) {
                shared.ring.wait_empty(at);
                if (ptx::elect_one()) {
                    ptx::Barrier* full = shared.ring.full + at.stage;
                    ptx::expect_bytes(full, stage_bytes);
                    if constexpr (scale_bytes > 0)
                        ptx::copy_run(shared.token_scales[at.stage], args.token_scales + k * args.token_scale_stride + corner.token,
                                      scale_bytes, full);
#pragma unroll
                    for (int d = 0; d < tile.depth; ++d) {
                        const int block = k * tile.depth + d;
                        Weight::copy(shared.weight[at.stage][d], args, corner.row, block, full);
                        uint8_t* to = shared.tokens[at.stage][d];
                        if (tile.cluster == 1 || (can_halve && piece.half)) {
#pragma unroll
                            for (int first = 0; first < tile.tokens; first += part) copy_tokens(to, first, block, full, false);
                        } else {
                            copy_tokens(to, my_part, block, full, true);
                        }
                    }
                }
                __syncwarp();
            }
        });
    }

    // Tells the warpgroups where their pieces lie, and brings what their epilogues need, both before they ask for it. Two warps: one for
    // the rows, one for the tokens.
    template <bool Rows>
    __device__ static void go_ahead(const HopperArgs& args, Board& board) {
        typename Board::At at;
        Walk::for_each(args, 0, 1, [&](Piece piece) {
            const Corner corner = Walk::corner_of(args, piece);
            if constexpr (Rows) board.tell(at, corner);
            if (args.store_boxes) {
                auto& terms = board.terms_to_bring(at);
                const Corner here = exchanged ? Corner{corner.token, corner.row} : corner;
                if constexpr (Rows)
                    bring_row_terms<term_rows, term_tokens, correction_of<Kind>, C::Source::row_scales_in_tiles>(args, here, terms);
                else
                    bring_token_terms<term_rows, term_tokens, correction_of<Kind>>(args, here, terms);
                board.terms_are_there(at);
            }
            at.advance();
        });
    }

    // A lane brings the scales of a few tokens, which it asks for some stages before they are needed.
    __device__ static void bring_token_scales(const HopperArgs& args, Shared& shared) {
        constexpr int per_lane = tile.tokens / 32, at_once = 256 / tile.tokens;
        const int lane = threadIdx.x % 32;
        At at;
        Walk::for_each(args, 0, 1, [&](Piece piece) {
            const int end = piece.k_first + piece.k_count, first_token = Walk::corner_of(args, piece).token;
            float now[at_once][per_lane], next[at_once][per_lane];
            const auto ask = [&](int k) {
#pragma unroll
                for (int i = 0; i < at_once * per_lane; ++i) {
                    const int block = k + i / per_lane, token = first_token + lane + i % per_lane * 32;
                    const bool there = block < end && token < args.token_count;
                    next[i / per_lane][i % per_lane] = there ? args.token_scales[token * args.token_scale_stride + block] : 0.0f;
                }
            };
            ask(piece.k_first);
            for (int k = piece.k_first; k < end; k += at_once) {
#pragma unroll
                for (int i = 0; i < at_once * per_lane; ++i) now[i / per_lane][i % per_lane] = next[i / per_lane][i % per_lane];
                if (k + at_once < end) ask(k + at_once);
#pragma unroll
                for (int i = 0; i < at_once; ++i) {
                    if (k + i >= end) break;
                    shared.ring.wait_empty(at);
#pragma unroll
                    for (int j = 0; j < per_lane; ++j) shared.token_scales[at.stage][lane + j * 32] = now[i][j];
                    ptx::arrive(shared.ring.full + at.stage);  // every lane, as in PieceBoard::terms_are_there
                    at.advance();
                }
            }
        });
    }

    using Block = OpenBlock<Weight, At, blocks_per_group>;
    using Blocks = OpenBlocks<Weight, At, Shared, blocks_per_group>;

    // Asks the tensor core for the parts of an open block, the d-th of its stage.
    template <class Parts>
    __device__ static void start_parts(Shared& shared, const Block& block, int d, Parts& parts) {
        const uint64_t tokens = ptx::wgmma_tile(shared.tokens[block.place.stage][d]);
        ptx::wgmma_fence();
#pragma unroll
        for (int s = 0; s < ptx::wgmma_steps_per_row; ++s)
            Weight::template multiply<tile.tokens>(parts, block.fragment, s, tokens + uint64_t(s * ptx::wgmma_step_bytes / 16), s > 0);
        ptx::wgmma_commit();
    }

    // Parts of one k block at a time: while the tensor core makes those of the next, the ones before are added up.
    __device__ static void multiply_promoted(const HopperArgs& args, Shared& shared, At& at, Piece piece, int row, int first_block,
                                             Sums& sums) {
        using Parts = Part[blocks_per_group][tile.tokens / 2];
        Block even, odd;
        Parts even_parts, odd_parts;
#pragma unroll
        for (int i = 0; i < blocks_per_group * tile.tokens / 2; ++i) sums[i / (tile.tokens / 2)][i % (tile.tokens / 2)] = 0;
        Blocks blocks(args, shared, at, row, first_block, piece.k_first, piece.k_count);
        const auto add = [&](Block& block, Parts& parts) {
            Weight::keep(block.fragment);
#pragma unroll
            for (int i = 0; i < blocks_per_group * tile.tokens / 2; ++i) ptx::own(parts[i / (tile.tokens / 2)][i % (tile.tokens / 2)]);
            add_parts<blocks_per_group, tile.tokens>(sums, parts, block.scales, shared.token_scales[block.place.stage]);
            __syncwarp();
            shared.ring.template release<tile.cluster>(block.place);
        };
        const auto multiply = [&](Block& block, Parts& parts) {
            blocks.decode(block, 0);
            start_parts(shared, block, 0, parts);
        };
        multiply(even, even_parts);
        for (int k = 1;;) {
            if (k == piece.k_count) {
                ptx::wgmma_wait<0>();
                return add(even, even_parts);
            }
            multiply(odd, odd_parts);
            ptx::wgmma_wait<1>();
            add(even, even_parts);
            if (++k == piece.k_count) {
                ptx::wgmma_wait<0>();
                return add(odd, odd_parts);
            }
            multiply(even, even_parts);
            ptx::wgmma_wait<1>();
            add(odd, odd_parts);
            ++k;
        }
    }

    // Turned: 64 tokens and all rows of the weight at a time. The warpgroups follow no order: while one adds up its parts, the tensor core
    // works for the others.
    __device__ static void multiply_turned(const HopperArgs& args, Shared& shared, At& at, Piece piece, int row, int group, Sums& sums) {
        float parts[tile.rows / 2];
#pragma unroll
        for (int i = 0; i < token_blocks * tile.rows / 2; ++i) sums[0][i] = 0;
        const GroupScales& scales = args.group_scales;
        const auto* row_scales =
            reinterpret_cast<const float*>(scales.data + scales.offset(smaller(int64_t(row), args.rows - 1), 0)) + piece.k_first;
        const int last = piece.k_count - 1, mine = group * token_blocks * 64, lane = threadIdx.x % 32;
        // A lane has one of 32 k blocks; those of the next 32 are asked for when these are begun.
        const auto ask = [&](int k) { return k + lane <= last ? row_scales[k + lane] : 0.0f; };
        float here = ask(0), ahead = ask(32);
        uint32_t thread_scales = ptx::shared_address(&shared.token_scales[0][mine + TurnedScales::first_token()]);
        ptx::hold(thread_scales);
        uint64_t weight, tokens;
        const auto open = [&] {
            shared.ring.wait_full(at);
            weight = ptx::wgmma_tile(shared.weight[at.stage][0]);
            tokens = ptx::wgmma_tile(shared.tokens[at.stage][0] + mine * ptx::wgmma_row_bytes);
        };
        open();
        for (int k = 0; k < piece.k_count; ++k) {
            if (k > 0 && k % 32 == 0) here = ahead, ahead = ask(k + 32);
            const float row_scale = __shfl_sync(~0u, here, k % 32);
            const At place = at;
#pragma unroll
            for (int block = 0; block < token_blocks; ++block) {
                const int first = block * 64;
                ptx::wgmma_fence();
#pragma unroll
                for (int s = 0; s < ptx::wgmma_steps_per_row; ++s)
                    ptx::Wgmma<Kind, tile.rows>::shared(parts,
                                                        tokens + uint64_t((first * ptx::wgmma_row_bytes + s * ptx::wgmma_step_bytes) / 16),
                                                        weight + uint64_t(s * ptx::wgmma_step_bytes / 16), s > 0);
                ptx::wgmma_commit();
                // Whatever can be done before the products are there: between them and the next ones the tensor core has only the others'.
                const TurnedScales by_token(thread_scales + uint32_t((place.stage * tile.tokens + first) * sizeof(float)), row_scale);
                if (block == token_blocks - 1) {
                    at.advance();
                    if (k < last) open();
                }
                ptx::wgmma_wait<0>();
#pragma unroll
                for (int i = 0; i < tile.rows / 2; ++i) ptx::own(parts[i]);
                if (block == token_blocks - 1) {
                    __syncwarp();
                    shared.ring.template release<tile.cluster>(place);
                }
#pragma unroll
                for (int i = 0; i < tile.rows / 2; ++i) sums[0][block * tile.rows / 2 + i] += parts[i] * by_token.of[i / 2 % 2];
            }
        }
    }

    // Weights in registers: the parts of two k blocks would not fit beside two fragments and the sums.
    __device__ static void multiply_promoted_registers(const HopperArgs& args, Shared& shared, At& at, Piece piece, int row,
                                                       int first_block, Sums& sums) {
        static_assert(blocks_per_group == 1 && !token_groups);
        Block even, odd;
        Part parts[1][tile.tokens / 2];
#pragma unroll
        for (int i = 0; i < tile.tokens / 2; ++i) sums[0][i] = 0;
        constexpr int last = tile.depth - 1;  // of a stage
        const int k_blocks = piece.k_count * tile.depth;
        Blocks blocks(args, shared, at, row, first_block, piece.k_first * tile.depth, k_blocks);
        const auto step = [&](int k, int d, Block& now, Block& next) {
            start_parts(shared, now, d, parts);
            if (d < last || k + 1 < k_blocks) blocks.decode(next, last - d);
            ptx::wgmma_wait<0>();
            Weight::keep(now.fragment);
#pragma unroll
            for (int i = 0; i < tile.tokens / 2; ++i) ptx::own(parts[0][i]);
            if (d == last) {
                __syncwarp();
                shared.ring.template release<tile.cluster>(now.place);
            }
#pragma unroll
            for (int i = 0; i < tile.tokens / 2; ++i) sums[0][i] += float(parts[0][i]) * now.scales[0][i / 2 % 2];
        };
        blocks.decode(even, 0);
        for (int k = 0;;) {
            step(k, 0, even, odd);
            if (++k == k_blocks && tile.depth == 1) return;
            step(k, last, odd, even);
            if (++k == k_blocks) return;
        }
    }

    // While the tensor core works on one k block, the stage before goes back and the next one is loaded (decoded).
    __device__ static void multiply_tile(const HopperArgs& args, Shared& shared, int group, At& at, Piece piece,
                                         typename C::Source::Lane lane, int first_block, Sums& sums) {
        typename Weight::Fragment even, odd;
        typename Weight::Raw raw;
        At previous = at;
        const int team = teams == 1 ? 0 : group / groups_per_tile, k_blocks = (piece.k_count + teams - 1 - team) / teams * tile.depth;
        const auto fetch = [&](int k, int d) {  // d: the k block's place in its stage
            if (d == 0) shared.ring.wait_full(at);
            const int block = teams == 1 ? k : (team + (k - d) / tile.depth * teams) * tile.depth + d;
            Weight::fetch(raw, shared.weight[at.stage][d], first_block, lane, piece.k_first * tile.depth + block, args);
        };
        const auto step = [&](int k, int d, auto& now, auto& next) {
            const uint64_t tokens = ptx::wgmma_tile(shared.tokens[at.stage][d]);
            const bool last_of_stage = d == tile.depth - 1, more = k + 1 < k_blocks;
            ptx::wgmma_fence();
#pragma unroll
            for (int s = 0; s < ptx::wgmma_steps_per_row; ++s)
                Weight::template multiply<tile.tokens>(sums, now, s, tokens + uint64_t(s * ptx::wgmma_step_bytes / 16), k > 0 || s > 0);
            ptx::wgmma_commit();
            const At leaving = previous;
            if (last_of_stage) {
                previous = at;
#pragma unroll
                for (int i = 0; i < teams; ++i) at.advance();
            }
            if (more) fetch(k + 1, (d + 1) % tile.depth);
            ptx::wgmma_wait<1>();
            Weight::keep(next);
            if (k > 0 && d == 0) shared.ring.template release<tile.cluster>(leaving);
            if (more) Weight::decode(next, raw, args);
        };
        fetch(0, 0);
        Weight::decode(even, raw, args);
        // Never empty, and left in the middle for an odd count: with a way around it the compiler cannot keep the sums in place.
        for (int k = 0;;) {
            step(k, 0, even, odd);
            if (++k == k_blocks) break;
            step(k, 1 % tile.depth, odd, even);
            if (++k == k_blocks) break;
        }
        if constexpr (tile.alternate) shared.turns.pass(group);
        ptx::wgmma_wait<0>();
        Weight::keep(even);
        Weight::keep(odd);
#pragma unroll
        for (int i = 0; i < blocks_per_group * tile.tokens / 2; ++i) ptx::own(sums[i / (tile.tokens / 2)][i % (tile.tokens / 2)]);
        shared.ring.template release<tile.cluster>(previous);
    }

    __device__ static void multiply_all(const HopperArgs& args, Shared& shared, int warp) {
        const int group = warp / 4;
        Store store(shared.store[group], warp % 4, 1 + group * Store::names);
        const int first_block = tile.alternate || turned ? 0 : group % groups_per_tile * blocks_per_group;
        // Of the tile: this warpgroup's first row, or its first token.
        const int inside = turned ? group * token_blocks * 64 : first_block * 64;
        At at;
        typename Board::At piece_at;
        const auto lane = C::Source::lane_of(int(threadIdx.x % 128));
        uint32_t round = 0;
        if (tile.alternate && group == 1) at.advance(args.k_stages), piece_at.advance();
        if (teams > 1 && group >= groups_per_tile) at.advance();
        Walk::for_each(args, tile.alternate ? group : 0, tile.alternate ? groups : 1, [&](Piece piece) {
            const Corner corner = shared.board.hear(piece_at);
            const int row = turned ? corner.row : corner.row + inside, token = turned ? corner.token + inside : corner.token;
            Sums sums;
            if constexpr (tile.alternate) shared.turns.wait(group, round++);
            if constexpr (turned)
                multiply_turned(args, shared, at, piece, row, group, sums);
            else if constexpr (promoted && Weight::in_registers)
                multiply_promoted_registers(args, shared, at, piece, row, first_block, sums);
            else if constexpr (promoted)
                multiply_promoted(args, shared, at, piece, row, first_block, sums);
            else
                multiply_tile(args, shared, group, at, piece, lane, first_block, sums);
            if constexpr (tile.alternate) at.advance(args.k_stages);  // the other warpgroup's tile
            uint32_t mine = ~0u;                                      // units of the results
            if constexpr (teams > 1) mine = Exchange::add_teams(exchange_name, shared.tokens, group, sums);
            if constexpr (most_splits > 1)
                if (args.splits > 1) mine = Exchange::add_splits(args.splits, shared.tokens, group, sums, mine);
            if constexpr (can_halve)
                if (piece.half) mine = Exchange::add_splits(2, shared.tokens, group, sums, mine);
            store.store(args, shared.board, piece_at, sums, row, token, inside, mine);
#pragma unroll
            for (int i = 0; i < (tile.alternate ? groups : 1); ++i) piece_at.advance();
        });
        store.finish();
    }
};

template <class C>
__global__ void __launch_bounds__(C::tile.threads(), 1) hopper_gemm(const __grid_constant__ HopperArgs args) {
#if LOWBIT_WGMMA
    extern __shared__ __align__(1024) uint8_t memory[];
    HopperGemm<C>::run(args, *reinterpret_cast<typename HopperGemm<C>::Shared*>(memory + HopperGemm<C>::table_bytes));
#endif
}

}  // namespace lowbit::cuda
