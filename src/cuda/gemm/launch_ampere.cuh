// Launches the main loop with a tile that fits the product, for one kind of arithmetic and source. Included by the files that
// instantiate it, one each, so that they compile side by side.
#pragma once
#include <array>
#include <atomic>

#include "cuda/devices.hpp"
#include "cuda/formats/nibbles.cuh"
#include "cuda/gemm/ampere.cuh"
#include "cuda/gemm/tiles.hpp"
#include "cuda/launch.cuh"

namespace lowbit::cuda {

//                         rows tokens warps: rows tokens depth  stages blocks per multiprocessor
using FewTokensTile = Tile<64, 16, 2, 1, 2, 4, 2>;
using FewTokensPackedTile = Tile<64, 16, 2, 1, 2, 3, 4, 2>;  // packed codes take a quarter of the room; a chain covers a group of 128
using ManyRowsTile = Tile<128, 16, 4, 1, 2, 3, 2, 2>;        // the same for rows enough to fill the chip: tokens are read half as often
using SomeTokensTile = Tile<64, 64, 2, 2, 1, 4, 2>;
using SquareTile = Tile<128, 128, 2, 4, 1, 3, 1>;
using PairTile = Tile<128, 128, 2, 2, 1, 3, 2>;  // two small blocks share a multiprocessor: one multiplies while the other stores
using SomeTokensPackedTile = Tile<128, 64, 4, 1, 1, 4, 2>;  // few rows per warp: every fragment is decoded for more tokens
using WideTile = Tile<128, 256, 2, 4, 1, 3, 1>;
using DeepWideTile = Tile<128, 256, 2, 4, 1, 4, 1>;  // for chips with the room
using FoldedTile = Tile<128, 128, 4, 1, 1, 4, 2>;    // scales folded in: twice the tokens per warp

template <class C>
constexpr TileCandidate candidate(TileKind kind, double efficiency) {
    using Shape = typename C::Shape;
    return {kind,      Shape::Rows, Shape::Tokens, C::shared_bytes, Shape::BlocksPerMultiprocessor, Shape::threads, Shape::blocks_per_stage,
            efficiency};
}

// The chip (80: compute capability 8.0) that the code was made for which runs on a device: a build may lack code for a chip and have it run
// that of an older one. Asked for once.
template <class C>
int code_version(int device) {
    static std::atomic<int> known[64]{};
    std::atomic<int>& version = known[device % 64];
    if (!version.load(std::memory_order_relaxed)) {
        const DeviceScope scope(device);
        cudaFuncAttributes attributes{};
        check(cudaFuncGetAttributes(&attributes, ampere<C>), "cudaFuncGetAttributes");
        version.store(attributes.ptxVersion, std::memory_order_relaxed);
    }
    return version.load(std::memory_order_relaxed);
}

template <class C>
void launch_tile(const AmpereArgs& args, const typename C::Source::Args& weight, const core::Context& context) {
    using Shape = typename C::Shape;
    // Asked for once per device: more shared memory than a block gets unasked.
    static std::atomic<uint64_t> ready{0};
    const uint64_t bit = uint64_t(1) << (context.device_index % 64);
    if (!(ready.load(std::memory_order_relaxed) & bit)) {
        check(cudaFuncSetAttribute(ampere<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, C::shared_bytes), "cudaFuncSetAttribute");
        ready.fetch_or(bit, std::memory_order_relaxed);
    }
    const int64_t tiles = core::ceil_div(args.rows, Shape::Rows) * core::ceil_div(args.tokens.rows, Shape::Tokens);
    core::require(tiles <= INT32_MAX, "matmul: ", args.tokens.rows, " x ", args.rows, " results are more tiles than a grid holds");
    ampere<C><<<dim3(unsigned(tiles), unsigned(args.splits)), Shape::threads, C::shared_bytes, stream_of(context)>>>(args, weight);
    check_launch("ampere");
}

template <class Mma, class Source, Groups Kind>
struct AmpereFamily {
    static constexpr bool packed = Source::template stage_bytes<16> < 16 * block_bytes;
    using Few = AmpereConfig<Mma, Source, std::conditional_t<packed, FewTokensPackedTile, FewTokensTile>, Kind>;
    using Some = AmpereConfig<Mma, Source, std::conditional_t<packed, SomeTokensPackedTile, SomeTokensTile>, Kind>;
    using Square = AmpereConfig<Mma, Source, SquareTile, Kind>;
    // The codes that most weights have get a tile more.
    static constexpr bool has_many_rows =
        std::is_same_v<Source, TilesSource<SignedNibbles<Mma>>> || std::is_same_v<Source, TilesSource<UnsignedNibbles<Mma>>>;
    using ManyRows = AmpereConfig<Mma, Source, ManyRowsTile, Kind>;
    // Numbers of 8 exponent bits do not overflow when their scale is folded in.
    static constexpr bool has_folded = packed && std::is_same_v<Mma, ptx::MmaBf16>;
    using Folded = AmpereConfig<Mma, Source, FoldedTile, has_folded ? Groups::folded : Kind>;
    // Part sums and sums of a larger tile do not fit into the registers together; and what is decoded on the way does not gain from it.
    // Products of 16 bits need few bytes from the L2 cache, a wide tile; those of 8 bits are done sooner than a tile is stored.
    static constexpr bool is_plain = Kind == Groups::none && std::is_same_v<Source, RowsSource>;
    static constexpr bool has_wide = is_plain && Mma::values_per_step == 16, has_pair = is_plain && !has_wide;
    using Wide = AmpereConfig<Mma, Source, WideTile, Groups::none>;
    using DeepWide = AmpereConfig<Mma, Source, DeepWideTile, Groups::none>;
    using Pair = AmpereConfig<Mma, Source, PairTile, Groups::none>;

    static TileChoice choose(const ProductSize& size, int device) {
        static constexpr auto all = [] {
            if constexpr (packed) {
                const auto few = candidate<Few>(TileKind::few_tokens, 0.30), some = candidate<Some>(TileKind::some_tokens, 0.9);
                if constexpr (has_folded && has_many_rows)
                    return std::array{few, some, candidate<ManyRows>(TileKind::many_rows, 0.33), candidate<Folded>(TileKind::folded, 1.2)};
                else if constexpr (has_folded)
                    return std::array{few, some, candidate<Folded>(TileKind::folded, 1.2)};
                else if constexpr (has_many_rows)
                    return std::array{few, some, candidate<ManyRows>(TileKind::many_rows, 0.33)};
                else
                    return std::array{few, some};
            } else {
                const auto few = candidate<Few>(TileKind::few_tokens, 0.30), some = candidate<Some>(TileKind::some_tokens, 0.65);
                const auto square = candidate<Square>(TileKind::square, 0.9);
                if constexpr (has_wide)
                    return std::array{few, some, square, candidate<Wide>(TileKind::wide, 1.0),
                                      candidate<DeepWide>(TileKind::deep_wide, 1.02)};
                else if constexpr (has_pair)
                    return std::array{few, some, square, candidate<Pair>(TileKind::pair, 1.25)};
                else
                    return std::array{few, some, square};
            }
        }();
        const DeviceInfo& info = devices().devices[size_t(device)];
        const int count = int(all.size()) - (has_folded && !size.groups_are_blocks);
        const int room =
            code_version<Few>(device) < 80 ? std::min(info.shared_bytes_per_block, turing_shared_bytes) : info.shared_bytes_per_block;
        return choose_tile(all.data(), count, size, info.multiprocessors, room);
    }

    static void launch(TileKind kind, const AmpereArgs& args, const typename Source::Args& weight, const core::Context& context) {
        if constexpr (has_wide) {
            if (kind == TileKind::wide) return launch_tile<Wide>(args, weight, context);
            if (kind == TileKind::deep_wide) return launch_tile<DeepWide>(args, weight, context);
        }
        if constexpr (has_pair)
            if (kind == TileKind::pair) return launch_tile<Pair>(args, weight, context);
        if constexpr (has_folded)
            if (kind == TileKind::folded) return launch_tile<Folded>(args, weight, context);
        if constexpr (has_many_rows)
            if (kind == TileKind::many_rows) return launch_tile<ManyRows>(args, weight, context);
        if (kind == TileKind::few_tokens) return launch_tile<Few>(args, weight, context);
        if constexpr (!packed)
            if (kind == TileKind::square) return launch_tile<Square>(args, weight, context);
        launch_tile<Some>(args, weight, context);
    }
};

// What ampere.cu knows of an instantiation.
struct AmpereWeight {
    AlignedRows rows;
    AnyMatrix matrix;
    const uint8_t* codes = nullptr;
    int64_t tiles = 0, atoms = 0;
    Element element = Element::fp32;
};
struct AmpereRunner {
    TileChoice (*choose)(const ProductSize& size, int device);
    void (*launch)(TileKind kind, const AmpereArgs& args, const AmpereWeight& weight, const core::Context& context);
    float folded_unit = 1.0f;  // what the products of the folded tile still have to be multiplied with
};

template <class Mma, class Source, Groups Kind>
AmpereRunner runner() {
    using Family = AmpereFamily<Mma, Source, Kind>;
    return {Family::choose,
            [](TileKind kind, const AmpereArgs& args, const AmpereWeight& weight, const core::Context& context) {
                typename Source::Args source;
                if constexpr (std::is_same_v<Source, RowsSource>)
                    source.rows = weight.rows;
                else if constexpr (std::is_same_v<Source, DecodedSource>)
                    source.matrix = weight.matrix;
                else
                    source.codes = weight.codes, source.tiles = weight.tiles, source.atoms = weight.atoms;
                Family::launch(kind, args, source, context);
            },
            Family::Folded::product_unit};
}

// One per file that instantiates: ampere_<arithmetic>.cu, ampere_tiles_<arithmetic>.cu.
AmpereRunner bf16_runner(bool decoded, Groups groups);
AmpereRunner fp16_runner(bool decoded, Groups groups);
AmpereRunner int8_runner(bool decoded, Groups groups);
AmpereRunner int1_runner();
AmpereRunner fp8_runner(Groups groups);
// Whether the code that runs on the device has them.
bool has_bf16_product(int device);
bool has_fp8_product(int device);
AmpereRunner tiles_bf16_runner(Element element);
AmpereRunner tiles_fp16_runner(Element element);
}  // namespace lowbit::cuda
