// Makes a HopperKernel of a tile and a source.
#pragma once
#include <atomic>

#include "cuda/hopper/kernels.hpp"
#include "cuda/hopper/loop.cuh"
#include "cuda/launch.cuh"

namespace lowbit::cuda {

template <class C>
struct HopperLaunch {
    static constexpr int shared_bytes = HopperGemm<C>::table_bytes + int(sizeof(typename HopperGemm<C>::Shared));
    static_assert(shared_bytes <= 232448, "more shared memory than a block may have");

    // Asked for once per device: more shared memory than a block gets unasked.
    static void allow_shared_memory(int device) {
        static std::atomic<uint64_t> ready{0};
        const uint64_t bit = uint64_t(1) << (device % 64);
        if (ready.load(std::memory_order_relaxed) & bit) return;
        check(cudaFuncSetAttribute(hopper_gemm<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "cudaFuncSetAttribute");
        ready.fetch_or(bit, std::memory_order_relaxed);
    }

    static void launch(const HopperArgs& args, int blocks, int cluster, bool early, const core::Context& context) {
        allow_shared_memory(context.device_index);
        const LaunchSize size{unsigned(blocks), unsigned(C::tile.threads()), size_t(shared_bytes), unsigned(cluster), early};
        launch_in_chain(context, "hopper_gemm", hopper_gemm<C>, size, args);
    }

    // Asked for once: where the multiprocessors of a chip lie decides how many clusters it holds.
    static int resident_clusters(int cluster) {
        static std::atomic<int> known[9];
        int count = known[cluster].load(std::memory_order_relaxed);
        if (count > 0) return count;
        int device = 0;
        check(cudaGetDevice(&device), "cudaGetDevice");
        allow_shared_memory(device);
        cudaLaunchAttribute shape{};
        shape.id = cudaLaunchAttributeClusterDimension;
        shape.val.clusterDim.x = unsigned(cluster), shape.val.clusterDim.y = 1, shape.val.clusterDim.z = 1;
        cudaLaunchConfig_t config{};
        config.gridDim = dim3(unsigned(cluster) * 1024);
        config.blockDim = dim3(C::tile.threads());
        config.dynamicSmemBytes = shared_bytes;
        config.attrs = &shape;
        config.numAttrs = 1;
        check(cudaOccupancyMaxActiveClusters(&count, hopper_gemm<C>, &config), "cudaOccupancyMaxActiveClusters");
        known[cluster].store(count, std::memory_order_relaxed);
        return count;
    }
};

template <class C>
HopperKernel hopper_kernel() {
    using Gemm = HopperGemm<C>;
    HopperKernel kernel;
    kernel.tile = C::tile;
    kernel.most_splits = Gemm::most_splits;
    kernel.can_halve = Gemm::can_halve;
    kernel.exchanged = C::Source::exchanged;
    kernel.store_rows = kernel.exchanged ? exchanged_pass_rows : 64;
    kernel.store_tokens = kernel.exchanged ? exchanged_pass_tokens : store_pass_tokens;
    kernel.product_unit = C::Source::product_unit;
    kernel.clocks = C::clocks;
    kernel.weight_bytes = C::Source::template Tile<C::tile.rows, 1>::stage_bytes;
    kernel.turns_scales = C::Source::token_groups && !warp_brings_scales(C::tile.tokens);
    kernel.resident_clusters = HopperLaunch<C>::resident_clusters;
    kernel.launch = HopperLaunch<C>::launch;
    return kernel;
}

// As many stages as fit beside the memory of the stores and of the epilogue's terms, and a little for barriers and alignment.
template <class Source, int Rows, int Tokens>
constexpr int stages_of(int depth, int boxes, int groups, int term_sets) {
    constexpr int limit = 232448, kilobyte = 1024, weight_bytes = Source::template Tile<Rows, 1>::stage_bytes;
    const int store_bytes = Source::turned ? int(sizeof(typename TurnedStore<1>::Staging)) : boxes * store_box_bytes;
    const int stage_bytes = depth * (Tokens * ptx::wgmma_row_bytes + weight_bytes) + (Source::token_groups ? Tokens * 4 : 0);
    constexpr int term_rows = Source::exchanged ? Tokens : Rows, term_tokens = Source::exchanged ? Rows : Tokens;
    const int term_bytes = term_sets * int(sizeof(PieceTerms<term_rows, term_tokens, correction_of<typename Source::Kind>>));
    const int left = limit - Source::table_bytes - groups * store_bytes - term_bytes - (weight_bytes % kilobyte ? kilobyte : 0) - 256;
    return left / stage_bytes < 8 ? left / stage_bytes : 8;
}

// Boxes under way. Bits have few k blocks for many results; with scales along K a stage more is worth more.
template <class Source>
constexpr int most_boxes() {
    return correction_of<typename Source::Kind> == Correction::bits ? 6 : Source::promoted ? 2 : 4;
}

template <class Source, int Rows, int Tokens>
constexpr HopperTile make_tile(int depth, int cluster, bool alternate = false, int groups = 2, int teams = 1) {
    const int all = Rows / 64 / (alternate ? 1 : groups / teams) * Tokens / store_pass_tokens;
    const int most = all < 2 ? 2 : all < most_boxes<Source>() ? all : most_boxes<Source>();
    const int term_sets = alternate && correction_of<typename Source::Kind> == Correction::bits ? 2 : 1;
    // A fifth stage is worth more than two boxes: a block must have more under way than the tensor core takes while memory answers.
    const auto stages_with = [&](int boxes) { return stages_of<Source, Rows, Tokens>(depth, boxes, groups, term_sets); };
    const int boxes = stages_with(most) < 5 && stages_with(2) > stages_with(most) ? 2 : most;
    return {.rows = Rows,
            .tokens = Tokens,
            .stages = stages_with(boxes),
            .depth = depth,
            .cluster = cluster,
            .boxes = boxes,
            .term_sets = term_sets,
            .alternate = alternate,
            .groups = groups,
            .teams = teams};
}

// How much longer than with other types a k block takes the tensor core.
template <class Kind>
constexpr double pace = std::is_same_v<Kind, ptx::WgmmaInt1> ? 1.15 : 1.0;

// Plain rows. A tile that shares its tokens with a neighbour for many tokens, one with alternating warpgroups that wastes less of a last
// wave, and one for few tokens.
template <class Source_>
struct RowsKernels {
    struct Large {
        using Source = Source_;
        static constexpr HopperTile tile = make_tile<Source, 128, 256>(1, 2);
        static constexpr double clocks = 1020 * pace<typename Source::Kind>;
    };
    struct Square {
        using Source = Source_;
        static constexpr HopperTile tile = make_tile<Source, 128, 128>(1, 2, true);
        static constexpr double clocks = 520 * pace<typename Source::Kind>;
    };
    // Both warpgroups at one tile: its last wave can be halved.
    struct Together {
        using Source = Source_;
        static constexpr HopperTile tile = make_tile<Source, 128, 128>(1, 2);
        static constexpr double clocks = 540 * pace<typename Source::Kind>;
    };
    struct Few {
        using Source = Source_;
        static constexpr HopperTile tile = make_tile<Source, 128, 64>(1, 1);
        static constexpr double clocks = 290 * pace<typename Source::Kind>;
    };
    // For weights whose rows make waves of this size that are nearly full.
    struct Three {
        using Source = Source_;
        static constexpr HopperTile tile = make_tile<Source, 192, 128>(1, 2, false, 3);
        static constexpr double clocks = 800 * pace<typename Source::Kind>;
    };
    // With the sides exchanged the tensor core takes the weight's rows in any multiple of eight: for 128 tokens of weights whose rows make
    // few tiles of 128.
    struct Slim {
        using Source = ExchangedRows<typename Source_::Kind>;
        static constexpr HopperTile tile = make_tile<Source, 128, 96>(1, 1);
        static constexpr double clocks = 410;
    };
    static HopperKernels all() {
        static const HopperKernel kernels[] = {hopper_kernel<Large>(),    hopper_kernel<Square>(), hopper_kernel<Few>(),
                                               hopper_kernel<Together>(), hopper_kernel<Three>(),  slim()};
        return kernels;
    }

private:
    static HopperKernel slim() {
        if constexpr (correction_of<typename Source_::Kind> != Correction::bits) return hopper_kernel<Slim>();
        return {};
    }
};

// Types that gradients have, and weights hardly ever: one tile less.
template <class Source>
struct SomeRowsKernels {
    using Rows = RowsKernels<Source>;
    static HopperKernels all() {
        static const HopperKernel kernels[] = {
            hopper_kernel<typename Rows::Large>(), hopper_kernel<typename Rows::Square>(), hopper_kernel<typename Rows::Few>(), {}, {}, {}};
        return kernels;
    }
};

// Decoded weights: the narrower a tile's tokens, the more of its time goes into decoding.
template <class Source_>
struct TilesKernels {
    struct Square {
        using Source = Source_;
        static constexpr HopperTile tile = make_tile<Source, 256, 128>(1, 1);
        static constexpr double clocks = 1062 * Source::decode_cost;
    };
    struct Few {
        using Source = Source_;
        static constexpr HopperTile tile = make_tile<Source, 256, 64>(2, 1, false, Source::few_groups);
        static constexpr double clocks = 744 * Source::decode_cost;
    };
    struct Fewer {
        using Source = Source_;
        static constexpr HopperTile tile = make_tile<Source, 256, 32>(2, 1, false, Source::few_groups);
        static constexpr double clocks = 630 * Source::decode_cost;
    };
    // Half the rows, for weights that have too few of them: with two teams, or with more tokens.
    struct Narrow {
        using Source = Source_;
        static constexpr HopperTile tile = make_tile<Source, 128, 64>(2, 1, false, 4, 2);
        static constexpr double clocks = 390 * Source::decode_cost;
    };
    struct Middle {
        using Source = Source_;
        static constexpr HopperTile tile = make_tile<Source, 128, 128>(1, 1);
        static constexpr double clocks = Source::hides_decoding ? 520 : 600 * Source::decode_cost;
    };
    struct Three {
        using Source = Source_;
        static constexpr HopperTile tile = make_tile<Source, 192, 128>(1, 2, false, 3);
        static constexpr double clocks = 870 * Source::decode_cost;
    };
    // Warpgroups that alternate: as fast as the wide tile where K is short, and better where that one's last wave leaves much of the chip
    // idle.
    struct Alternate {
        using Source = Source_;
        static constexpr HopperTile tile = make_tile<Source, 64, 256>(1, 2, true);
        static constexpr double clocks = 525 * Source::decode_cost;
    };
    using Wide = typename RowsKernels<Source_>::Large;
    static HopperKernels all() {
        static const HopperKernel kernels[] = {
            hopper_kernel<Square>(), hopper_kernel<Few>(),    hopper_kernel<Fewer>(), hopper_kernel<Wide>(),
            hopper_kernel<Narrow>(), hopper_kernel<Middle>(), hopper_kernel<Three>(), alternate()};
        return kernels;
    }

private:
    // For the types that most models have: one more tile for all would take the compiler too long.
    static HopperKernel alternate() {
        if constexpr (std::is_same_v<typename Source_::Kind, ptx::WgmmaBf16> && Source_::alternates) return hopper_kernel<Alternate>();
        return {};
    }
};

// Types that few models have: compiled for two tiles only.
template <class Source>
struct FewTilesKernels {
    using Tiles = TilesKernels<Source>;
    static HopperKernels all() {
        static const HopperKernel kernels[] = {
            {}, hopper_kernel<typename Tiles::Few>(), {}, hopper_kernel<typename Tiles::Wide>(), {}, {}, {}, {}};
        return kernels;
    }
};

// Compiled for six: where decoding takes long, the other one gains little.
template <class Source>
struct SomeTilesKernels {
    using Tiles = TilesKernels<Source>;
    static HopperKernels all() {
        static const HopperKernel kernels[] = {hopper_kernel<typename Tiles::Square>(),
                                               hopper_kernel<typename Tiles::Few>(),
                                               {},
                                               hopper_kernel<typename Tiles::Wide>(),
                                               hopper_kernel<typename Tiles::Narrow>(),
                                               hopper_kernel<typename Tiles::Middle>(),
                                               hopper_kernel<typename Tiles::Three>(),
                                               {}};
        return kernels;
    }
};

// Rows of 8 bits that are widened.
template <class Source>
struct WidenedKernels {
    using Tiles = TilesKernels<Source>;
    static HopperKernels all() {
        static const HopperKernel kernels[] = {hopper_kernel<typename Tiles::Wide>(),   hopper_kernel<typename Tiles::Square>(),
                                               hopper_kernel<typename Tiles::Few>(),    hopper_kernel<typename Tiles::Narrow>(),
                                               hopper_kernel<typename Tiles::Middle>(), hopper_kernel<typename Tiles::Three>()};
        return kernels;
    }
};

// int4 x int8 or fp8 with a scale per row.
template <class Source_>
struct IntegerKernels {
    static constexpr bool integers = std::is_same_v<typename Source_::Kind, ptx::WgmmaInt8>;  // less to decode than for fp8
    struct Together {
        using Source = Source_;
        static constexpr HopperTile tile = make_tile<Source, 128, 128>(1, 2);
        static constexpr double clocks = integers ? 515 : 590;
    };
    struct Few {
        using Source = Source_;
        static constexpr HopperTile tile = make_tile<Source, 256, 64>(1, 1);
        static constexpr double clocks = 600;
    };
    // For weights that have too few rows for that.
    struct Narrow {
        using Source = Source_;
        static constexpr HopperTile tile = make_tile<Source, 128, 64>(1, 1);
        static constexpr double clocks = integers ? 320 : 370;
    };
    // Warpgroups that alternate, each with as many tokens as it has registers for: a store costs nothing. Only one of them decodes at a
    // time: for fp8 that takes too long.
    struct Alternate {
        using Source = Source_;
        static constexpr HopperTile tile = make_tile<Source, 64, 256>(1, 2, true);
        static constexpr double clocks = 536;
    };
    static HopperKernels all() {
        static const HopperKernel kernels[] = {hopper_kernel<typename RowsKernels<Source_>::Large>(), hopper_kernel<Together>(),
                                               hopper_kernel<Few>(), hopper_kernel<Narrow>(), alternate()};
        return kernels;
    }

private:
    static HopperKernel alternate() {
        if constexpr (integers) return hopper_kernel<Alternate>();
        return {};
    }
};

// Parts and sums both take registers: tiles of half the size.
template <class Source_>
struct PromotedKernels {
    // Between the products of a warpgroup and its next ones every instruction counts: two k blocks to a stage take fewer.
    static constexpr int depth = Source_::template Tile<128, 1>::in_registers ? 2 : 1;
    struct Square {
        using Source = Source_;
        static constexpr HopperTile tile = make_tile<Source, 128, 128>(depth, 2);
        static constexpr double clocks = 960;
    };
    struct Few {
        using Source = Source_;
        static constexpr HopperTile tile = make_tile<Source, 128, 64>(depth, 1);
        static constexpr double clocks = 650;
    };
    static HopperKernels all() {
        static const HopperKernel kernels[] = {hopper_kernel<Square>(), hopper_kernel<Few>(), {}, {}};
        return kernels;
    }
};

template <class Kind, class Decoder>
HopperKernels integer_tiles_kernels(int groups, Element scale) {
    const bool halves = scale == Element::fp16 || scale == Element::bf16;
    if (groups == 2 && halves) return TilesKernels<ScaledTiles<Kind, Decoder, 2, TileScales::halves>>::all();
    if (groups == 1 && halves) return TilesKernels<ScaledTiles<Kind, Decoder, 1, TileScales::halves>>::all();
    if (groups == 1 && scale == Element::fp32) return FewTilesKernels<ScaledTiles<Kind, Decoder, 1, TileScales::fp32>>::all();
    return {};
}

// One function per kind of code, for both types of numbers.
template <class Kind, class Mma>
HopperKernels tiles_kernels(Element element, int groups, Element scale) {
    constexpr bool small = SmallNumbers<Mma>::possible;
    using Signed = std::conditional_t<small, SmallCodes<SmallIntegers>, ScaledIntegers<Mma>>;
    using Fp4 = std::conditional_t<small, SmallCodes<SmallFloats>, ScaledFp4Halves>;
    switch (element) {
    case Element::int4:
    case Element::q4_0: return integer_tiles_kernels<Kind, Signed>(groups, scale);
    case Element::uint4: return integer_tiles_kernels<Kind, ScaledIntegers<Mma>>(groups, scale);
    case Element::nf4:
        if (groups != 1 || (scale != Element::fp16 && scale != Element::bf16)) return {};
        return SomeTilesKernels<ScaledTiles<Kind, ScaledLevels<Mma, Element::nf4>, 1, TileScales::halves>>::all();
    case Element::iq4_nl: return FewTilesKernels<ScaledTiles<Kind, ScaledLevels<Mma, Element::iq4_nl>, 2, TileScales::halves>>::all();
    case Element::fp4_e2m1:
        if (groups == 2 && scale == Element::e8m0) return SomeTilesKernels<ScaledTiles<Kind, Fp4, 2, TileScales::e8m0>>::all();
        if (groups == 4 && scale == Element::fp8_e4m3) return SomeTilesKernels<ScaledTiles<Kind, Fp4, 4, TileScales::e4m3>>::all();
        return {};
    default: return {};
    }
}

}  // namespace lowbit::cuda
