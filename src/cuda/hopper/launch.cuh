// Makes a HopperKernel of a tile and a source.
#pragma once
#include <atomic>

#include "cuda/hopper/kernels.hpp"
#include "cuda/hopper/loop.cuh"
#include "cuda/launch.cuh"

namespace lowbit::cuda {

template <class C>
void launch_hopper(const HopperArgs& args, int blocks, int cluster, const core::Context& context) {
    constexpr int shared_bytes = sizeof(typename HopperGemm<C>::Shared);
    // Asked for once per device: more shared memory than a block gets unasked.
    static std::atomic<uint64_t> ready{0};
    const uint64_t bit = uint64_t(1) << (context.device_index % 64);
    if (!(ready.load(std::memory_order_relaxed) & bit)) {
        check(cudaFuncSetAttribute(hopper_gemm<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), "cudaFuncSetAttribute");
        ready.fetch_or(bit, std::memory_order_relaxed);
    }
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(unsigned(blocks));
    config.blockDim = dim3(HopperTile::threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream_of(context);
    cudaLaunchAttribute shape{};
    shape.id = cudaLaunchAttributeClusterDimension;
    shape.val.clusterDim.x = unsigned(cluster), shape.val.clusterDim.y = 1, shape.val.clusterDim.z = 1;
    config.attrs = &shape;
    config.numAttrs = 1;
    check(cudaLaunchKernelEx(&config, hopper_gemm<C>, args), "hopper_gemm");
}

template <class C>
HopperKernel hopper_kernel() {
    using Gemm = HopperGemm<C>;
    static_assert(sizeof(typename Gemm::Shared) <= 232448, "more shared memory than a block may have");
    return {C::tile,           int(sizeof(typename Gemm::Shared)),
            Gemm::most_splits, C::tile.tokens < 64 ? C::tile.tokens : 64,
            C::efficiency,     launch_hopper<C>};
}

// As many stages as fit beside the memory of the stores.
template <class Source, int Rows>
constexpr int stages_of(int tokens, int depth) {
    constexpr int weight_bytes = Source::template Tile<Rows, 1>::stage_bytes;
    const int store_bytes = HopperTile::groups * (2 * (tokens < 64 ? tokens : 64) * ptx::wgmma_row_bytes + tokens * 4);
    const int stages = (232448 - 2048 - store_bytes) / (depth * (tokens * ptx::wgmma_row_bytes + weight_bytes));
    return stages < 8 ? stages : 8;
}

// Plain rows. A tile that shares its tokens with a neighbour for many tokens, one with alternating warpgroups that wastes less of a last
// wave, and one for few tokens.
template <class Source_>
struct RowsKernels {
    struct Large {
        using Source = Source_;
        static constexpr HopperTile tile{.rows = 128, .tokens = 256, .stages = stages_of<Source, 128>(256, 1), .cluster = 2};
        static constexpr double efficiency = 1.0;
    };
    struct Square {
        using Source = Source_;
        static constexpr HopperTile tile{
            .rows = 128, .tokens = 128, .stages = stages_of<Source, 128>(128, 1), .cluster = 2, .alternate = true};
        static constexpr double efficiency = 0.98;
    };
    struct Few {
        using Source = Source_;
        static constexpr HopperTile tile{.rows = 128, .tokens = 64, .stages = stages_of<Source, 128>(64, 1)};
        static constexpr double efficiency = 0.8;
    };
    static HopperKernels all() {
        static const HopperKernel kernels[] = {hopper_kernel<Large>(), hopper_kernel<Square>(), hopper_kernel<Few>()};
        return kernels;
    }
};

// Decoded weights: the narrower a tile's tokens, the more of its time goes into decoding.
template <class Source_>
struct TilesKernels {
    struct Large {
        using Source = Source_;
        static constexpr HopperTile tile{
            .rows = 64, .tokens = 256, .stages = stages_of<Source, 64>(256, 1), .cluster = 2, .alternate = true};
        static constexpr double efficiency = 0.97;
    };
    struct Square {
        using Source = Source_;
        static constexpr HopperTile tile{.rows = 256, .tokens = 128, .stages = stages_of<Source, 256>(128, 1)};
        static constexpr double efficiency = 0.9;
    };
    struct Few {
        using Source = Source_;
        static constexpr HopperTile tile{.rows = 256, .tokens = 64, .stages = stages_of<Source, 256>(64, 2), .depth = 2};
        static constexpr double efficiency = 0.7;
    };
    struct Fewer {
        using Source = Source_;
        static constexpr HopperTile tile{.rows = 256, .tokens = 32, .stages = stages_of<Source, 256>(32, 2), .depth = 2};
        static constexpr double efficiency = 0.5;
    };
    static HopperKernels all() {
        static const HopperKernel kernels[] = {hopper_kernel<Large>(), hopper_kernel<Square>(), hopper_kernel<Few>(),
                                               hopper_kernel<Fewer>()};
        return kernels;
    }
};

// One function per kind of code, for both types of numbers.
template <class Kind, class Mma>
HopperKernels tiles_kernels(Element element, bool short_groups) {
    switch (element) {
    case Element::int4:
    case Element::uint4:
    case Element::q4_0:
        return short_groups ? TilesKernels<ScaledTiles<Kind, ScaledIntegers<Mma>, true>>::all()
                            : TilesKernels<ScaledTiles<Kind, ScaledIntegers<Mma>, false>>::all();
    case Element::nf4:
        return short_groups ? HopperKernels{} : TilesKernels<ScaledTiles<Kind, ScaledLevels<Mma, Element::nf4>, false>>::all();
    case Element::fp4_e2m1:
        return short_groups ? TilesKernels<ScaledTiles<Kind, ScaledLevels<Mma, Element::fp4_e2m1>, true>>::all() : HopperKernels{};
    default: return {};
    }
}

}  // namespace lowbit::cuda
