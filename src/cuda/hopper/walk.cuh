// Which pieces of the work a block has. Blocks live as long as the grid and walk over tiles, `clusters` apart; what everyone has follows
// from its number alone.
#pragma once
#include "cuda/hopper/pieces.cuh"

namespace lowbit::cuda {

// C: as in loop.cuh. MostSplits: blocks of a cluster that may share out K; CanHalve: whether two do so in a last wave.
template <class C, int MostSplits, bool CanHalve>
class PieceWalk {
    static constexpr HopperTile tile = C::tile;

public:
    // Whether this block's last piece is a half.
    __device__ static bool has_half(const HopperArgs& args) {
        if constexpr (CanHalve)
            return int(blockIdx.x) / tile.cluster < 2 * args.halved;
        else
            return false;
    }

    // Walks over this block's pieces, one in `every`.
    template <class Visit>
    __device__ static void for_each(const HopperArgs& args, int first, int every, Visit visit) {
        const int me = my_block(args), splits = splits_of(args), clusters = int(gridDim.x) / (tile.cluster > 1 ? tile.cluster : splits);
        const int whole = CanHalve ? args.schedule.count() - args.halved : args.schedule.count(), cluster = my_cluster(args);
        const int k = args.k_stages;
        bool half = has_half(args);
        // One loop for both kinds of pieces: what visits them is large, and stands here once.
        for (int i = cluster + first * clusters; i < whole || half; i += every * clusters) {
            Piece piece;
            if (i < whole) {
                const int k_first = splits > 1 ? k * me / splits : 0, k_end = splits > 1 ? k * (me + 1) / splits : k;
                piece = {i, k_first, k_end - k_first, false};
            } else {
                const int k_first = me ? k / 2 : 0;
                piece = {whole + cluster / 2, k_first, (me ? k : k / 2) - k_first, true};
                half = false;
            }
            visit(piece);
        }
    }

    __device__ static Corner corner_of(const HopperArgs& args, const Piece& piece) {
        const auto place = args.schedule[piece.tile];
        const int row_of_cluster = tile.cluster == 1 ? 0 : piece.half ? my_cluster(args) % 2 : my_block(args);
        return {(place.row * tile.cluster + row_of_cluster) * tile.rows, place.token * tile.tokens};
    }

private:
    __device__ static int splits_of(const HopperArgs& args) { return MostSplits > 1 ? args.splits : 1; }
    __device__ static int my_block(const HopperArgs& args) {
        return tile.cluster > 1 || splits_of(args) > 1 ? int(ptx::block_in_cluster()) : 0;
    }
    __device__ static int my_cluster(const HopperArgs& args) {
        return int(blockIdx.x) / (tile.cluster > 1 ? tile.cluster : splits_of(args));
    }
};

}  // namespace lowbit::cuda
