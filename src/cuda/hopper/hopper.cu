// From a problem with many tokens to a launch of the Hopper main loop.
#include "cuda/hopper/hopper.hpp"

#include "cuda/devices.hpp"
#include "cuda/gemm/gemm.hpp"
#include "cuda/gemm/prepare.cuh"
#include "cuda/hopper/prepare.cuh"
#include "cuda/hopper/tensor_map.hpp"
#include "cuda/pack/row_sums.cuh"

namespace lowbit::cuda {
namespace {

using core::MatmulProblem;
using core::Operand;
using core::QuantizedView;

constexpr int64_t copy_alignment = 16;  // of every row the copy engine reads or writes
constexpr int64_t most_few_tokens = 16;
constexpr int64_t most_exact_depth = 131071;  // of products of int8 in int32

// What the weight is: rows of the tokens' own type, tiles for tokens of 16 bits or of 8, or rows of 8 bits for tokens of 16.
enum class HopperWeight { rows, tiles, integer_tiles, widened };

// In the order in which they are asked: products of 8-bit codes before those that make numbers of them.
constexpr HopperFamily families[] = {HopperFamily::int1,
                                     HopperFamily::int8,
                                     HopperFamily::int8_uint8,
                                     HopperFamily::tiles_int8,
                                     HopperFamily::tiles_int8_groups,
                                     HopperFamily::fp8,
                                     HopperFamily::fp8_blocks,
                                     HopperFamily::tiles_bf16,
                                     HopperFamily::tiles_fp16,
                                     HopperFamily::widened_bf16,
                                     HopperFamily::widened_fp16,
                                     HopperFamily::bf16,
                                     HopperFamily::fp16};

struct FamilyTraits {
    const char* name;
    Element element;  // of the tokens
    int bytes;
    CUtensorMapDataType map_type;
    HopperWeight weight;
    bool scales_along_k = false;  // on both sides
};

FamilyTraits traits(HopperFamily family) {
    constexpr CUtensorMapDataType bf16 = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, fp16 = CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                                  bytes = CU_TENSOR_MAP_DATA_TYPE_UINT8;
    switch (family) {
    case HopperFamily::bf16: return {"hopper_bf16", Element::bf16, 2, bf16, HopperWeight::rows};
    case HopperFamily::fp16: return {"hopper_fp16", Element::fp16, 2, fp16, HopperWeight::rows};
    case HopperFamily::int8: return {"hopper_int8", Element::int8, 1, bytes, HopperWeight::rows};
    case HopperFamily::int8_uint8: return {"hopper_int8_uint8", Element::uint8, 1, bytes, HopperWeight::rows};
    case HopperFamily::int1: return {"hopper_int1", Element::int1, 1, bytes, HopperWeight::rows};
    case HopperFamily::fp8: return {"hopper_fp8", Element::fp8_e4m3, 1, bytes, HopperWeight::rows};
    case HopperFamily::tiles_bf16: return {"hopper_tiles_bf16", Element::bf16, 2, bf16, HopperWeight::tiles};
    case HopperFamily::tiles_fp16: return {"hopper_tiles_fp16", Element::fp16, 2, fp16, HopperWeight::tiles};
    case HopperFamily::widened_bf16: return {"hopper_widened_bf16", Element::bf16, 2, bf16, HopperWeight::widened};
    case HopperFamily::widened_fp16: return {"hopper_widened_fp16", Element::fp16, 2, fp16, HopperWeight::widened};
    case HopperFamily::fp8_blocks: return {"hopper_fp8_blocks", Element::fp8_e4m3, 1, bytes, HopperWeight::rows, true};
    case HopperFamily::tiles_int8: return {"hopper_tiles_int8", Element::int8, 1, bytes, HopperWeight::integer_tiles};
    default: return {"hopper_tiles_int8_groups", Element::int8, 1, bytes, HopperWeight::integer_tiles};
    }
}

Element element_of(const Operand& operand) { return operand.is_quantized ? operand.quantized.format.element : operand.tensor.element; }

// Rows that the copy engine can read as they are.
struct PlainMatrix {
    const void* data = nullptr;
    int64_t pitch = 0;  // bytes
};

std::optional<PlainMatrix> as_it_is(const Operand& operand, int bytes) {
    PlainMatrix matrix;
    if (operand.is_quantized) {
        if (operand.quantized.layout != core::PackedLayout::rows) return std::nullopt;
        matrix = {operand.quantized.codes, operand.quantized.row_bytes()};
    } else {
        const core::Tensor& t = operand.tensor;
        if (!t.rows_are_contiguous()) return std::nullopt;
        matrix = {t.data, t.rows > 1 ? t.row_stride * bytes : core::ceil_div(t.columns * bytes, copy_alignment) * copy_alignment};
        if (t.rows > 1 && t.row_stride < t.columns) return std::nullopt;
    }
    if (reinterpret_cast<uintptr_t>(matrix.data) % copy_alignment != 0 || matrix.pitch % copy_alignment != 0) return std::nullopt;
    return matrix;
}

// Groups of a k block of 64 values: 1, 2 or 4; 0: groups that do not fit into k blocks.
int groups_of_block(const QuantizedView& weight) {
    const int64_t group = GroupScales(weight).group;
    if (group >= weight.columns || group % 64 == 0) return 1;
    return group == 32 ? 2 : group == 16 ? 4 : 0;
}

// Both kinds of fp8, in any combination; with scales along K there is e4m3 only.
bool multiplies_e5m2(const FamilyTraits& family) { return family.element == Element::fp8_e4m3 && !family.scales_along_k; }

std::string reason_against_weight(const FamilyTraits& family, const MatmulProblem& problem) {
    const Operand& weight = problem.weight;
    if (family.weight == HopperWeight::tiles) {
        if (!weight.is_quantized || weight.quantized.layout != core::PackedLayout::tiles) return "weight is not packed in tiles";
        return groups_of_block(weight.quantized) ? "" : core::join("groups of ", GroupScales(weight.quantized).group);
    }
    if (family.weight == HopperWeight::integer_tiles) {
        if (!weight.is_quantized || weight.quantized.layout != core::PackedLayout::tiles ||
            weight.quantized.format.element != Element::int4)
            return "weight is not int4, packed in tiles";
        return "";
    }
    const bool widened = family.weight == HopperWeight::widened, has_fp8_kinds = multiplies_e5m2(family);
    const Element wanted = family.element == Element::uint8 ? Element::int8 : family.element;
    if (widened ? !weight.is_quantized || core::element_bits(weight.quantized.format.element) != 8
                : element_of(weight) != wanted && !(has_fp8_kinds && element_of(weight) == Element::fp8_e5m2))
        return core::join("weight is ", weight.format().print());
    return as_it_is(weight, family.bytes) ? "" : "weight is not in rows aligned to 16 bytes";
}

// Tokens whose numbers, or codes where one scale of a row is left to the epilogue, become fp16 on their way.
bool become_fp16(HopperFamily family, const Operand& x) {
    if (family != HopperFamily::tiles_fp16 || !x.is_quantized || x.quantized.layout != core::PackedLayout::rows) return false;
    const Element e = x.quantized.format.element;
    if (e == Element::q8_1 || e == Element::q8_0) return true;
    return (e == Element::int8 || e == Element::fp8_e4m3 || e == Element::fp8_e5m2) && scale_at_end(x.quantized);
}

bool is_integer_family(HopperFamily family) { return family == HopperFamily::tiles_int8 || family == HopperFamily::tiles_int8_groups; }

// One scale for every 128 values of a row, in fp32.
bool has_scales_of_128(const Operand& operand) {
    if (!operand.is_quantized || operand.quantized.layout != core::PackedLayout::rows) return false;
    const core::Format& format = operand.quantized.format;
    return format.scale == Element::fp32 && !format.asymmetric && format.group_columns == 128 &&
           (format.granularity == Granularity::group || format.granularity == Granularity::block);
}

bool has_plain_scale(const Operand& operand, bool raw) { return !operand.is_quantized || raw || scale_at_end(operand.quantized); }

std::string reason_against_scales(HopperFamily family, const MatmulProblem& problem) {
    const bool raw = problem.raw_integers();
    if (family == HopperFamily::fp8_blocks) {
        if (!has_scales_of_128(problem.x) || !has_scales_of_128(problem.weight)) return "not a scale for every 128 values on both sides";
        return problem.weight.quantized.format.group_rows % 64 == 0 || problem.weight.quantized.format.granularity == Granularity::group
                   ? ""
                   : "blocks of rows are not multiples of 64";
    }
    if (!has_plain_scale(problem.x, raw) && !become_fp16(family, problem.x)) return "scales of x change along K";
    if (is_integer_family(family)) {
        const int group = GroupScales(problem.weight.quantized).group;
        const bool row = group >= problem.k();
        if (row != (family == HopperFamily::tiles_int8)) return row ? "one scale for a row" : "scales of the weight change along K";
        return row || group % 128 == 0 ? "" : core::join("groups of ", group);
    }
    const bool tiles = traits(family).weight == HopperWeight::tiles;
    return tiles || has_plain_scale(problem.weight, raw) ? "" : "scales of the weight change along K";
}

// Of a token. Values of the copy engine's type: numbers, or bytes of codes.
int64_t row_values(const FamilyTraits& family, const MatmulProblem& problem) {
    return family.element == Element::int1 ? core::ceil_div(problem.k(), 8) : problem.k();
}

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
    args.blocks_per_group = whole_rows ? INT32_MAX : std::max(1, scales.group / int(core::TileGrid::columns_per_atom));
    const int runs = box_tiles * groups;
    args.scales = stack_map(weight.scales, 16 * scales.bytes, grid.groups, grid.tiles, groups, box_tiles);
    args.scale_bytes = runs * 16 * scales.bytes;
    if (weight.zero_points) {
        args.integers = stack_map(weight.zero_points, 16, grid.groups, grid.tiles, groups, box_tiles);
        args.zero_bytes = runs * 16;
    }
}

// The workspace of the tokens, where they are not taken as they are; what else is needed stands behind them.
int64_t token_workspace(const FamilyTraits& kind, const MatmulProblem& problem) {
    const bool widened = problem.x.is_quantized && kind.bytes == 2, ordered = kind.weight == HopperWeight::integer_tiles;
    if (!widened && !ordered && as_it_is(problem.x, kind.bytes)) return 0;
    return core::ceil_div(core::checked_multiply(problem.m(), token_pitch(kind, problem), "workspace"), 256) * 256;
}
void* behind_tokens(HopperFamily family, const MatmulProblem& problem) {
    return static_cast<uint8_t*>(problem.scratch) + token_workspace(traits(family), problem);
}

// Tokens whose scales are brought a tile at a time: all tiles are whole.
int64_t turned_tokens(const MatmulProblem& problem) { return core::ceil_div(problem.m(), 256) * 256; }

// Tokens less their zero points: those times the sums of the weight's rows come off the products.
void describe_zero_points(HopperFamily family, const MatmulProblem& problem, HopperArgs& args) {
    const QuantizedView& x = problem.x.quantized;
    if (!x.zero_points) return;
    const QuantizedView& weight = problem.weight.quantized;
    int32_t* sums = weight.row_sums;
    if (!sums) {
        sums = static_cast<int32_t*>(behind_tokens(family, problem));
        launch_row_sums<false>({weight.codes, problem.n()}, {}, problem.k(), sums, stream_of(*problem.context));
    }
    args.epilogue.token_zero = {x.zero_points, x.format.granularity == Granularity::row ? 1 : 0, 0};
    args.epilogue.row_sums = sums;
}

// Products of signs from how many bits are set in both.
void describe_bits(HopperFamily family, const MatmulProblem& problem, HopperArgs& args) {
    auto* of_tokens = static_cast<int32_t*>(behind_tokens(family, problem));
    const QuantizedView& weight = problem.weight.quantized;
    const int32_t* of_rows = weight.row_sums ? weight.row_sums : of_tokens + problem.m();
    const ByteRows rows = weight.row_sums ? ByteRows{} : ByteRows{weight.codes, problem.n()};
    launch_row_sums<true>({problem.x.quantized.codes, problem.m()}, rows, row_values(traits(family), problem), of_tokens,
                          stream_of(*problem.context));
    args.epilogue.counts = Counts::common;
    args.epilogue.row_sums = of_rows, args.epilogue.token_sums = of_tokens;
}

// int4 for products with int8: k blocks of two atoms, codes times 16.
void describe_integer_tiles(HopperFamily family, const MatmulProblem& problem, const HopperTile& tile, HopperArgs& args) {
    const QuantizedView& weight = problem.weight.quantized;
    const core::TileGrid grid(weight.format, weight.rows, weight.columns);
    const int box_tiles = tile.rows / 16;
    args.group_scales = GroupScales(weight);
    args.weight = stack_map(weight.codes, core::tile_atom_bytes(grid.bits), grid.atoms, grid.tiles, 2, box_tiles);
    if (family == HopperFamily::tiles_int8_groups) {
        args.blocks_per_group = args.group_scales.group / 128;
        args.scales = stack_map(weight.scales, 16 * args.group_scales.bytes, grid.groups, grid.tiles, 1, box_tiles);
        return;
    }
    auto* scales = static_cast<float*>(behind_tokens(family, problem));
    spread_row_scales<<<blocks_for(problem.n(), prepare_threads), prepare_threads, 0, stream_of(*problem.context)>>>(args.group_scales,
                                                                                                                     scales, problem.n());
    check_launch("spread_row_scales");
    args.epilogue.row_scale[0] = {scales, 1};
    args.epilogue.scale *= 0.0625f;
}

// Scales for every 128 values, multiplied in between k blocks.
void describe_block_scales(const MatmulProblem& problem, const HopperTile& tile, HopperArgs& args) {
    args.group_scales = GroupScales(problem.weight.quantized);
    const int64_t groups = core::ceil_div(problem.k(), 128);
    args.last_group = int(groups) - 1;
    if (warp_brings_scales(tile.tokens)) {
        args.token_scales = static_cast<const float*>(problem.x.quantized.scales), args.token_scale_stride = groups;
        return;
    }
    args.token_scale_stride = turned_tokens(problem);
    auto* turned = static_cast<float*>(behind_tokens(HopperFamily::fp8_blocks, problem));
    const dim3 blocks(unsigned(args.token_scale_stride / turned_side), unsigned(core::ceil_div(groups, turned_side)));
    turn_scales<<<blocks, dim3(turned_side, 8), 0, stream_of(*problem.context)>>>(static_cast<const float*>(problem.x.quantized.scales),
                                                                                  problem.m(), groups, turned, args.token_scale_stride);
    check_launch("turn_scales");
    args.token_scales = turned;
}

// Tokens of int8, or of int4 widened, in the order of codes in tiles.
void order_for_nibbles(const MatmulProblem& problem, uint8_t* to, int64_t pitch, cudaStream_t stream) {
    const QuantizedView& x = problem.x.quantized;
    const int64_t runs = problem.m() * pitch / 16;
    const auto address = reinterpret_cast<uintptr_t>(x.codes);
    const unsigned blocks = unsigned(core::ceil_div(runs, prepare_threads * ordered_runs_per_thread));
    if (problem.k() == pitch && x.format.element == Element::int8 && address % 16 == 0)
        order_runs<<<blocks, prepare_threads, 0, stream>>>(reinterpret_cast<const uint4*>(x.codes), reinterpret_cast<uint4*>(to), runs);
    else if (problem.k() == pitch && x.format.element == Element::int4 && address % 8 == 0)
        order_runs<<<blocks, prepare_threads, 0, stream>>>(reinterpret_cast<const uint2*>(x.codes), reinterpret_cast<uint4*>(to), runs);
    else
        order_tokens<<<prepare_blocks(runs), prepare_threads, 0, stream>>>(AnyMatrix(problem.x), to, pitch);
    check_launch("order_tokens");
}

// Tokens the copy engine can read: as they are, or brought into aligned rows in the workspace.
PlainMatrix prepare_tokens(const FamilyTraits& kind, const MatmulProblem& problem) {
    const bool widened = problem.x.is_quantized && kind.bytes == 2;
    const std::optional<PlainMatrix> plain = widened ? std::nullopt : as_it_is(problem.x, kind.bytes);
    const bool ordered = kind.weight == HopperWeight::integer_tiles;
    if (plain && !ordered) return *plain;
    const PlainMatrix rows{problem.scratch, token_pitch(kind, problem)};
    auto* to = static_cast<uint8_t*>(problem.scratch);
    const cudaStream_t stream = stream_of(*problem.context);
    if (ordered) {
        order_for_nibbles(problem, to, rows.pitch, stream);
    } else if (widened) {
        const AnyMatrix tokens(problem.x);
        launch_prepare<ptx::MmaFp16>(scale_at_end(problem.x.quantized) ? tokens.without_scales() : tokens, to, rows.pitch, stream);
    } else if (problem.x.is_quantized) {
        launch_pad_bytes(problem.x.quantized.codes, problem.m(), row_values(kind, problem), to, rows.pitch, stream);
    } else if (kind.element == Element::bf16) {
        launch_prepare<ptx::MmaBf16>(AnyMatrix(problem.x), to, rows.pitch, stream);
    } else {
        launch_prepare<ptx::MmaFp16>(AnyMatrix(problem.x), to, rows.pitch, stream);
    }
    return rows;
}

int64_t k_blocks_of(const FamilyTraits& kind, const MatmulProblem& problem) {
    return core::ceil_div(row_values(kind, problem) * kind.bytes, 128);
}

}  // namespace

std::string hopper_reason_against(HopperFamily family, const MatmulProblem& problem) {
#ifndef LOWBIT_HAS_SM90A
    return "this build has no code for compute capability 9.0a";
#endif
    const FamilyTraits kind = traits(family);
    if (devices().devices[size_t(problem.context->device_index)].major != 9) return "for compute capability 9.0";
    if (problem.k() == 0) return "K = 0";
    if (problem.k() > INT32_MAX / 2 || problem.n() > INT32_MAX / 2 || problem.m() > INT32_MAX / 2) return "for sizes of 30 bits";
    const bool nibbles = is_integer_family(family) && element_of(problem.x) == Element::int4;  // widened on their way
    const bool e5m2 = multiplies_e5m2(kind) && element_of(problem.x) == Element::fp8_e5m2;
    if (element_of(problem.x) != kind.element && !nibbles && !e5m2 && !become_fp16(family, problem.x))
        return core::join("x is ", core::element_name(element_of(problem.x)));
    const bool exact = family == HopperFamily::int8 || family == HopperFamily::int8_uint8 || family == HopperFamily::int1;
    if (problem.raw_integers() && !exact) return "y is int32, the raw product of integers";
    if (std::string reason = reason_against_weight(kind, problem); !reason.empty()) return reason;
    if (std::string reason = reason_against_scales(family, problem); !reason.empty()) return reason;
    if ((exact || family == HopperFamily::tiles_int8) && family != HopperFamily::int1 && problem.k() > most_exact_depth)
        return core::join("K = ", problem.k(), " is beyond ", most_exact_depth);
    return hopper_kernels_for(family, problem).empty() ? core::join("no kernel for ", problem.weight.format().print()) : "";
}

HopperKernels hopper_kernels_for(HopperFamily family, const MatmulProblem& problem) {
    switch (family) {
    case HopperFamily::bf16: return hopper_bf16();
    case HopperFamily::fp16: return hopper_fp16();
    case HopperFamily::int8: return hopper_int8();
    case HopperFamily::int8_uint8: return hopper_int8_uint8();
    case HopperFamily::int1: return hopper_int1();
    case HopperFamily::fp8: return hopper_fp8(element_of(problem.weight), element_of(problem.x));
    case HopperFamily::widened_bf16: return hopper_widened_bf16(problem.weight.quantized.format.element);
    case HopperFamily::widened_fp16: return hopper_widened_fp16(problem.weight.quantized.format.element);
    case HopperFamily::fp8_blocks: {
        const core::Format& format = problem.weight.quantized.format;
        return hopper_fp8_blocks(format.granularity == Granularity::block && format.group_rows % 128 == 0);
    }
    case HopperFamily::tiles_int8: return hopper_tiles_int8();
    case HopperFamily::tiles_int8_groups: return hopper_tiles_int8_groups(core::tile_scale_element(problem.weight.quantized.format));
    default: break;
    }
    const QuantizedView& weight = problem.weight.quantized;
    const bool bf16 = family == HopperFamily::tiles_bf16;
    if (!core::has_nibble_tiles(weight.format))
        return bf16 ? hopper_blocks_bf16(weight.format.element) : hopper_blocks_fp16(weight.format.element);
    const int groups = groups_of_block(weight);
    const Element scale = core::tile_scale_element(weight.format);
    return bf16 ? hopper_tiles_bf16(weight.format.element, groups, scale) : hopper_tiles_fp16(weight.format.element, groups, scale);
}

// A kernel is chosen before its device is made current, and the choice asks the device how many clusters it holds.
HopperChoice hopper_choice(HopperFamily family, const MatmulProblem& problem) {
    const DeviceScope scope(problem.context->device_index);
    return choose_hopper(hopper_kernels_for(family, problem), problem.n(), problem.m(), k_blocks_of(traits(family), problem));
}

std::optional<HopperFamily> hopper_family(const MatmulProblem& problem) {
    for (const HopperFamily family : families)
        if (hopper_reason_against(family, problem).empty()) return family;
    return std::nullopt;
}

double hopper_cost(HopperFamily family, const MatmulProblem& problem, int64_t tokens) {
    const DeviceScope scope(problem.context->device_index);
    return choose_hopper(hopper_kernels_for(family, problem), problem.n(), tokens, k_blocks_of(traits(family), problem)).cost;
}

int hopper_splits(HopperFamily family, const MatmulProblem& problem, int kernel) {
    const HopperKernels one = hopper_kernels_for(family, problem).subspan(size_t(kernel), 1);
    return choose_hopper(one, problem.n(), problem.m(), k_blocks_of(traits(family), problem)).splits;
}

int64_t hopper_workspace(HopperFamily family, const MatmulProblem& problem) {
    const FamilyTraits kind = traits(family);
    const int64_t tokens = token_workspace(kind, problem);
    // Behind the tokens: scales or sums of rows.
    if (family == HopperFamily::int1) return tokens + (problem.n() + problem.m()) * 4;
    if (kind.weight == HopperWeight::integer_tiles || family == HopperFamily::int8_uint8) return tokens + problem.n() * 4;
    if (family == HopperFamily::fp8_blocks) return tokens + core::ceil_div(problem.k(), 128) * turned_tokens(problem) * 4;
    return tokens;
}

void run_hopper(HopperFamily family, const MatmulProblem& problem, HopperChoice choice) {
    const FamilyTraits kind = traits(family);
    const HopperKernel& kernel = hopper_kernels_for(family, problem)[size_t(choice.kernel)];
    const HopperTile& tile = kernel.tile;
    HopperArgs args{};
    args.epilogue = epilogue_of(problem);
    args.epilogue.scale *= kernel.product_unit;
    if (problem.x.is_quantized && !problem.raw_integers() && scale_at_end(problem.x.quantized))
        args.epilogue.token_scale[0] = constant_scale(problem.x.quantized);
    if (kind.weight == HopperWeight::tiles) {
        describe_tiles(problem.weight.quantized, tile, args);
    } else if (kind.weight == HopperWeight::integer_tiles) {
        describe_integer_tiles(family, problem, tile, args);
    } else {
        const PlainMatrix weight = *as_it_is(problem.weight, kind.bytes);
        args.weight =
            kind.weight == HopperWeight::widened
                ? matrix_map(CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, weight.data, problem.k(), problem.n(), weight.pitch, tile.rows, 64)
                : matrix_map(kind.map_type, kind.bytes, weight.data, row_values(kind, problem), problem.n(), weight.pitch, tile.rows);
        if (family == HopperFamily::fp8_blocks)
            describe_block_scales(problem, tile, args);
        else if (problem.weight.is_quantized && !problem.raw_integers())
            args.epilogue.row_scale[0] = constant_scale(problem.weight.quantized);
    }
    if (family == HopperFamily::int8_uint8) describe_zero_points(family, problem, args);
    const PlainMatrix tokens = prepare_tokens(kind, problem);
    if (family == HopperFamily::int1) describe_bits(family, problem, args);
    // Tokens in another order end with all of their last 16.
    const int64_t columns = kind.weight == HopperWeight::integer_tiles ? tokens.pitch : row_values(kind, problem);
    const auto token_map = [&](int box) {
        return matrix_map(kind.map_type, kind.bytes, tokens.data, columns, problem.m(), tokens.pitch, box);
    };
    args.tokens = token_map(tile.tokens / tile.cluster);
    if (problem.m() % tile.tokens != 0) args.last_tokens = token_map(end_box_tokens);
    args.rows = problem.n(), args.token_count = problem.m();
    args.store_boxes = can_store_boxes(problem);
    if (args.store_boxes) {
        const bool bf16 = problem.y.element == Element::bf16;
        const int64_t pitch =
            problem.y.rows > 1 ? problem.y.row_stride * 2 : core::ceil_div(problem.n() * 2, copy_alignment) * copy_alignment;
        args.output = matrix_map(bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, problem.y.data, problem.n(),
                                 problem.m(), pitch, kernel.store_tokens);
    }
    args.k_stages = int(core::ceil_div(k_blocks_of(kind, problem), tile.depth));
    args.splits = choice.splits;
    HopperSchedule& schedule = args.schedule;
    schedule.row_tiles = int(core::ceil_div(problem.n(), tile.rows * tile.cluster));
    schedule.token_tiles = int(core::ceil_div(problem.m(), tile.tokens));
    const int cluster = std::max(tile.cluster, choice.splits), resident = kernel.resident_clusters(cluster);
    schedule.band = tile.cluster > 1 && schedule.count() <= resident ? 1 : std::min(8, schedule.token_tiles);
    args.halved = halved_tiles(kernel, problem.n(), problem.m(), k_blocks_of(kind, problem));
    const bool one_tile = choice.splits > 1 || tile.teams > 1;
    const int64_t clusters = one_tile ? schedule.count() : std::min<int64_t>(schedule.count() + args.halved, resident);
    kernel.launch(args, int(clusters) * cluster, cluster, *problem.context);
}

namespace {

// Kernels of a family, whatever the weight.
HopperKernels any_kernels(HopperFamily family) {
    switch (family) {
    case HopperFamily::tiles_bf16:
    case HopperFamily::tiles_fp16: return hopper_tiles_bf16(Element::int4, 1, Element::fp16);
    case HopperFamily::widened_bf16:
    case HopperFamily::widened_fp16: return hopper_widened_bf16(Element::int8);
    case HopperFamily::tiles_int8: return hopper_tiles_int8();
    case HopperFamily::fp8_blocks: return hopper_fp8_blocks(true);
    case HopperFamily::tiles_int8_groups: return hopper_tiles_int8_groups(Element::fp16);
    default: return hopper_bf16();
    }
}

}  // namespace

void add_hopper(core::Registry& registry) {
    for (const HopperFamily family : families) {
        const FamilyTraits kind = traits(family);
        // All lists of a kind of weight have the same tiles.
        const HopperKernels kernels = any_kernels(family);
        for (size_t i = 0; i < kernels.size(); ++i) {
            if (!kernels[i].exists()) continue;
            const HopperTile& tile = kernels[i].tile;
            core::Kernel<MatmulProblem> kernel;
            // Of two tiles of a size the one whose warpgroups alternate has the plain name.
            const bool together = !tile.alternate && std::any_of(kernels.begin(), kernels.end(), [&](const HopperKernel& other) {
                return other.tile.alternate && other.tile.rows == tile.rows && other.tile.tokens == tile.tokens;
            });
            kernel.name = core::join(kind.name, "_", tile.rows, "x", tile.tokens, together ? "_together" : "");
            kernel.needs = "compute capability 9.0";
            kernel.supports = [=](const MatmulProblem& p) {
                const std::string reason = hopper_reason_against(family, p);
                if (!reason.empty()) return reason;
                const HopperKernel& own = hopper_kernels_for(family, p)[i];
                if (!own.exists()) return core::join("no such tile for ", p.weight.format().print());
                const bool has_stages = core::ceil_div(k_blocks_of(kind, p), own.tile.depth) >= own.tile.teams;
                return has_stages ? std::string() : core::join("K = ", p.k(), " is too short for two teams");
            };
            kernel.defers = [=](const MatmulProblem& p) -> std::string {
                // Plain numbers that decode/ leaves alone, since their rows are many: copies of 16 bytes per thread were faster.
                if (kind.weight == HopperWeight::rows && kind.bytes == 2 && p.m() <= most_few_tokens) return "few tokens";
                return hopper_choice(family, p).kernel == int(i) ? std::string() : std::string("another tile costs less");
            };
            kernel.run = [=](const MatmulProblem& p) {
                if (p.m() > 0 && p.n() > 0) run_hopper(family, p, {int(i), hopper_splits(family, p, int(i))});
            };
            kernel.workspace = [=](const MatmulProblem& p) { return hopper_workspace(family, p); };
            // The scale and its product with a code (and the levels of nf4) are rounded to the tokens' type.
            const double unit = kind.element == Element::bf16 ? 0x1p-8 : 0x1p-11;
            kernel.operand_rounding = [=](const MatmulProblem& p) {
                if (kind.weight != HopperWeight::tiles) return 0.0;
                const bool token = p.x.is_quantized && p.x.quantized.format.is_ggml();  // a code times its scale, rounded
                return ((p.weight.quantized.format.element == Element::nf4 ? 3 : 2) + int(token)) * unit;
            };
            // value = scale * code + minimum: scale, minimum and value are rounded, an error of at most
            //     unit * (|scale * code| + |minimum| + |value|) <= 2 unit * |value| + 2 unit * |minimum|.
            kernel.minimum_rounding = kind.weight == HopperWeight::tiles ? 2 * unit : 0.0;
            // A tensor core aligns its addends and cuts them off instead of rounding; of products of fp8 it keeps 13 bits of the largest.
            kernel.addition_unit = family == HopperFamily::fp8 || family == HopperFamily::fp8_blocks ? 0x1p-13 : 0x1p-23;
            registry.matmul.add(std::move(kernel));
        }
    }
}

}  // namespace lowbit::cuda
