// From a problem with many tokens to a launch of the Hopper main loop.
#include "cuda/hopper/hopper.hpp"

#include "cuda/gemm/prepare.cuh"
#include "cuda/hopper/families.hpp"
#include "cuda/hopper/pieces.cuh"
#include "cuda/hopper/prepare.cuh"
#include "cuda/pack/row_sums.cuh"

namespace lowbit::cuda {
namespace {

using core::MatmulProblem;
using core::Operand;
using core::QuantizedView;

int64_t token_pitch(const FamilyTraits& family, const MatmulProblem& problem) {
    return core::ceil_div(row_values(family, problem), 16) * 16 * family.bytes;
}

// Boxes are stored from results of 16 bits with nothing but scales and a bias on their way.
bool can_store_boxes(const MatmulProblem& problem) {
    const core::Tensor& y = problem.y;
    return (y.element == Element::bf16 || y.element == Element::fp16) && y.column_stride == 1 &&
           problem.epilogue.activation == Activation::none && problem.epilogue.beta == 0.0f &&
           reinterpret_cast<uintptr_t>(y.data) % copy_alignment == 0 && (y.rows <= 1 || (y.row_stride * 2) % copy_alignment == 0) &&
           y.row_stride >= y.columns;
}
// Which corrections of a product fit into the terms that boxes are stored with.
bool corrections_fit(HopperFamily family, int64_t k) {
    if (family == HopperFamily::int1) return k <= most_bits_as_floats;
    if (family == HopperFamily::int8_uint8) return k <= most_columns_of_row_sums;
    return true;
}

// The terms of blocks: the fp16 numbers of a k block, and of K types the bytes of the half of a block that it lies in.
void describe_terms(const QuantizedView& weight, const core::TileGrid& grid, int box_tiles, HopperArgs& args) {
    const core::TileBlock block = core::tile_block(weight.format.element);
    const auto terms = [&](int blocks, int bytes) {
        return stack_map(weight.scales, block.term_bytes(), grid.groups, grid.tiles, blocks, box_tiles, bytes);
    };
    if (block.is_super())
        args.scales = terms(1, block.half_bytes()), args.integers = terms(1, 128);
    else
        args.scales = terms(int(core::TileGrid::columns_per_atom) / block.group, block.term_bytes());
}

void describe_tiles(const QuantizedView& weight, const HopperTile& tile, HopperArgs& args) {
    const core::TileGrid grid(weight.format, weight.rows, weight.columns);
    const int box_tiles = tile.rows / 16;
    args.weight = stack_map(weight.codes, core::tile_atom_bytes(grid.bits), grid.atoms, grid.tiles, 1, box_tiles);
    if (!core::has_nibble_tiles(weight.format)) return describe_terms(weight, grid, box_tiles, args);
    args.group_scales = GroupScales(weight);
    const GroupScales& scales = args.group_scales;
    const int groups = groups_of_block(weight);
    const bool whole_rows = scales.group >= weight.columns;
    args.group_of_block = {whole_rows ? grid.atoms : std::max(1, scales.group / int(core::TileGrid::columns_per_atom)), grid.atoms};
    const int runs = box_tiles * groups;
    args.scales = stack_map(weight.scales, 16 * scales.bytes, grid.groups, grid.tiles, groups, box_tiles);
    args.scale_bytes = runs * 16 * scales.bytes;
    if (weight.zero_points) {
        args.integers = stack_map(weight.zero_points, 16, grid.groups, grid.tiles, groups, box_tiles);
        args.zero_bytes = runs * 16;
    }
}

// Tokens of fewer bits than the tensor core multiplies: codes that become fp16, and int4 beside int4.
bool is_widened(const FamilyTraits& kind, const Operand& x) {
    return x.is_quantized && (kind.bytes == 2 || x.quantized.format.element == Element::int4);
}

// The workspace of the tokens, where they are not taken as they are; what else is needed stands behind them.
int64_t token_workspace(const FamilyTraits& kind, const MatmulProblem& problem) {
    if (!is_widened(kind, problem.x) && as_it_is(problem.x, kind.bytes)) return 0;
    return core::ceil_div(core::checked_multiply(problem.m(), token_pitch(kind, problem), "workspace"), 256) * 256;
}
void* behind_tokens(HopperFamily family, const MatmulProblem& problem) {
    return static_cast<uint8_t*>(problem.scratch) + token_workspace(traits(family), problem);
}

// Tokens whose scales are brought a tile at a time: all tiles are whole, of 192 tokens or of 256.
int64_t turned_tokens(const MatmulProblem& problem) { return core::ceil_div(problem.m(), 64) * 64 + 192; }

// Tokens less their zero points: those times the sums of the weight's rows come off the products. Whether that took a launch.
bool describe_zero_points(HopperFamily family, const MatmulProblem& problem, HopperArgs& args) {
    const QuantizedView& x = problem.x.quantized;
    if (!x.zero_points) return false;
    const QuantizedView& weight = problem.weight.quantized;
    int32_t* sums = weight.row_sums;
    if (!sums) {
        sums = static_cast<int32_t*>(behind_tokens(family, problem));
        launch_row_sums<false>({weight.codes, problem.n()}, {}, problem.k(), sums, true, stream_of(*problem.context));
    }
    args.epilogue.token_zero = {x.zero_points, x.format.granularity == Granularity::row ? 1 : 0, 0};
    args.epilogue.row_sums = sums;
    return !weight.row_sums;
}

// Products of signs from how many bits are set in both.
void describe_bits(HopperFamily family, const MatmulProblem& problem, HopperArgs& args) {
    auto* of_tokens = static_cast<int32_t*>(behind_tokens(family, problem));
    const QuantizedView& weight = problem.weight.quantized;
    const int32_t* of_rows = weight.row_sums ? weight.row_sums : of_tokens + problem.m();
    const ByteRows rows = weight.row_sums ? ByteRows{} : ByteRows{weight.codes, problem.n()};
    launch_row_sums<true>({problem.x.quantized.codes, problem.m()}, rows, row_values(traits(family), problem), of_tokens, true,
                          stream_of(*problem.context));
    args.epilogue.counts = Counts::common;
    args.epilogue.row_sums = of_rows, args.epilogue.token_sums = of_tokens;
}

// int4 for products with 8 bits: k blocks of two atoms.
void describe_byte_tiles(HopperFamily family, const MatmulProblem& problem, const HopperTile& tile, HopperArgs& args) {
    const QuantizedView& weight = problem.weight.quantized;
    const core::TileGrid grid(weight.format, weight.rows, weight.columns);
    const int box_tiles = tile.rows / 16;
    args.group_scales = GroupScales(weight);
    args.weight = stack_map(weight.codes, core::tile_atom_bytes(grid.bits), grid.atoms, grid.tiles, 2, box_tiles);
    if (!has_scales_of_rows(family)) {
        args.group_of_block = {args.group_scales.group / 128, core::ceil_div(grid.atoms, 2)};
        args.scales = stack_map(weight.scales, 16 * args.group_scales.bytes, grid.groups, grid.tiles, 1, box_tiles);
        return;
    }
    if (args.store_boxes) return;  // brought from where they are
    auto* scales = static_cast<float*>(behind_tokens(family, problem));
    spread_row_scales<<<blocks_for(problem.n(), prepare_threads), prepare_threads, 0, stream_of(*problem.context)>>>(args.group_scales,
                                                                                                                     scales, problem.n());
    check_launch("spread_row_scales");
    args.epilogue.row_scale[0] = {scales, 1};
}

// Scales for every 128 values, multiplied in between k blocks. Whether that took a launch.
bool describe_block_scales(const MatmulProblem& problem, const HopperTile& tile, HopperArgs& args) {
    args.group_scales = GroupScales(problem.weight.quantized);
    const int64_t groups = core::ceil_div(problem.k(), 128);
    args.last_group = int(groups) - 1;
    if (warp_brings_scales(tile.tokens)) {
        args.token_scales = static_cast<const float*>(problem.x.quantized.scales), args.token_scale_stride = groups;
        return false;
    }
    args.token_scale_stride = turned_tokens(problem);
    auto* turned = static_cast<float*>(behind_tokens(HopperFamily::fp8_blocks, problem));
    const dim3 blocks(unsigned(args.token_scale_stride / turned_side), unsigned(core::ceil_div(groups, turned_side)));
    turn_scales<<<blocks, dim3(turned_side, 8), 0, stream_of(*problem.context)>>>(static_cast<const float*>(problem.x.quantized.scales),
                                                                                  problem.m(), groups, turned, args.token_scale_stride);
    check_launch("turn_scales");
    args.token_scales = turned;
    return true;
}

// Tokens of int4 as bytes.
void widen_tokens(const MatmulProblem& problem, uint8_t* to, int64_t pitch, cudaStream_t stream) {
    const auto* codes = problem.x.quantized.codes;
    if (problem.k() != pitch || reinterpret_cast<uintptr_t>(codes) % sizeof(uint2) != 0)
        return launch_prepare<ptx::MmaInt8>(*problem.context, AnyMatrix(problem.x), to, pitch);
    const int64_t runs = problem.m() * pitch / 16;
    const unsigned blocks = unsigned(core::ceil_div(runs, prepare_threads * widened_runs_per_thread));
    widen_runs<<<blocks, prepare_threads, 0, stream>>>(reinterpret_cast<const uint2*>(codes), reinterpret_cast<uint4*>(to), runs);
    check_launch("widen_runs");
}

// Tokens the copy engine can read: as they are, or brought into aligned rows in the workspace.
PlainMatrix prepare_tokens(const FamilyTraits& kind, const MatmulProblem& problem) {
    const bool widened = is_widened(kind, problem.x);
    if (const std::optional<PlainMatrix> plain = widened ? std::nullopt : as_it_is(problem.x, kind.bytes)) return *plain;
    const PlainMatrix rows{problem.scratch, token_pitch(kind, problem)};
    auto* to = static_cast<uint8_t*>(problem.scratch);
    const core::Context& context = *problem.context;
    const cudaStream_t stream = stream_of(context);
    if (widened && kind.bytes == 1) {
        widen_tokens(problem, to, rows.pitch, stream);
    } else if (widened) {
        const AnyMatrix tokens(problem.x);
        launch_prepare<ptx::MmaFp16>(context, scale_at_end(problem.x.quantized) ? tokens.without_scales() : tokens, to, rows.pitch);
    } else if (problem.x.is_quantized) {
        launch_pad_bytes(problem.x.quantized.codes, problem.m(), row_values(kind, problem), to, rows.pitch, stream);
    } else if (kind.element == Element::bf16) {
        launch_prepare<ptx::MmaBf16>(context, AnyMatrix(problem.x), to, rows.pitch);
    } else {
        launch_prepare<ptx::MmaFp16>(context, AnyMatrix(problem.x), to, rows.pitch);
    }
    return rows;
}

}  // namespace

int64_t hopper_workspace(HopperFamily family, const MatmulProblem& problem) {
    const FamilyTraits kind = traits(family);
    const int64_t tokens = token_workspace(kind, problem);
    // Behind the tokens: scales or sums of rows.
    if (family == HopperFamily::int1) return tokens + (problem.n() + problem.m()) * 4;
    if (kind.weight == HopperWeight::byte_tiles || family == HopperFamily::int8_uint8) return tokens + problem.n() * 4;
    if (family == HopperFamily::fp8_blocks) return tokens + core::ceil_div(problem.k(), 128) * turned_tokens(problem) * 4;
    return tokens;
}

void run_hopper(HopperFamily family, const MatmulProblem& problem, HopperChoice choice) {
    const FamilyTraits kind = traits(family);
    const HopperKernel& kernel = hopper_kernels_for(family, problem)[size_t(choice.kernel)];
    const HopperTile& tile = kernel.tile;
    HopperArgs args{};
    struct Side : PlainMatrix {
        int64_t rows = 0;
    };
    Side weight;            // in rows
    bool prepared = false;  // by a launch of this call
    args.store_boxes = can_store_boxes(problem) && corrections_fit(family, problem.k());
    args.epilogue = epilogue_of(problem);
    args.epilogue.scale *= kernel.product_unit;
    if (problem.x.is_quantized && !problem.raw_integers() && scale_at_end(problem.x.quantized))
        args.epilogue.token_scale[0] = constant_scale(problem.x.quantized);
    if (kind.weight == HopperWeight::tiles) {
        describe_tiles(problem.weight.quantized, tile, args);
    } else if (kind.weight == HopperWeight::byte_tiles) {
        describe_byte_tiles(family, problem, tile, args);
    } else {
        weight = {*as_it_is(problem.weight, kind.bytes), problem.n()};
        if (kind.weight == HopperWeight::widened)
            args.weight = matrix_map(CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, weight.data, problem.k(), problem.n(), weight.pitch, tile.rows, 64);
        if (family == HopperFamily::fp8_blocks)
            prepared |= describe_block_scales(problem, tile, args);
        else if (problem.weight.is_quantized && !problem.raw_integers())
            args.epilogue.row_scale[0] = constant_scale(problem.weight.quantized);
    }
    if (family == HopperFamily::int8_uint8) prepared |= describe_zero_points(family, problem, args);
    Side tokens{prepare_tokens(kind, problem), problem.m()};
    prepared |= problem.scratch && tokens.data == problem.scratch;
    if (family == HopperFamily::int1) describe_bits(family, problem, args), prepared = true;
    const auto map_of = [&](const Side& side, int box) {
        return matrix_map(kind.map_type, kind.bytes, side.data, row_values(kind, problem), side.rows, side.pitch, box);
    };
    // In boxes, and one for what is left: whole atoms of the swizzle.
    const auto describe_side = [&](const Side& side, int box, CUtensorMap& map, CUtensorMap& last_map, int& last_box) {
        map = map_of(side, box);
        last_box = int(core::ceil_div(side.rows % box, 8) * 8);
        if (last_box > 0) last_map = map_of(side, last_box);
    };
    if (kernel.exchanged) std::swap(weight, tokens);
    if (kind.weight == HopperWeight::rows)
        describe_side(weight, tile.rows, args.weight, args.last_weight, args.last_weight_box), args.weight_rows = weight.rows;
    describe_side(tokens, tile.tokens / tile.cluster, args.tokens, args.last_tokens, args.last_tokens_box);
    args.rows = problem.n(), args.token_count = problem.m();
    if (args.store_boxes) {
        const bool bf16 = problem.y.element == Element::bf16;
        const int64_t pitch =
            problem.y.rows > 1 ? problem.y.row_stride * 2 : core::ceil_div(problem.n() * 2, copy_alignment) * copy_alignment;
        args.output = matrix_map(bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, problem.y.data, problem.n(),
                                 problem.m(), pitch, kernel.store_tokens, kernel.store_rows * 2);
    }
    args.k_stages = int(core::ceil_div(k_blocks_of(kind, problem), tile.depth));
    args.splits = choice.splits;
    HopperSchedule& schedule = args.schedule;
    const HopperSides sides = kernel.sides(problem.n(), problem.m());
    schedule.row_tiles = int(core::ceil_div(sides.rows, tile.rows * tile.cluster));
    schedule.token_tiles = int(core::ceil_div(sides.tokens, tile.tokens));
    const int cluster = std::max(tile.cluster, choice.splits), resident = kernel.resident_clusters(cluster);
    schedule.band = tile.cluster > 1 && schedule.count() <= resident ? 1 : std::min(8, schedule.token_tiles);
    args.halved = halved_tiles(kernel, problem.n(), problem.m(), k_blocks_of(kind, problem));
    const bool one_tile = choice.splits > 1 || tile.teams > 1;
    const int64_t clusters = one_tile ? schedule.count() : std::min<int64_t>(schedule.count() + args.halved, resident);
    kernel.launch(args, int(clusters) * cluster, cluster, prepared || problem.behind_quantize, *problem.context);
}

}  // namespace lowbit::cuda
