// Which problems the Hopper main loop takes, with which kernel.
#include "cuda/hopper/families.hpp"

#include "cuda/devices.hpp"
#include "cuda/gemm/gemm.hpp"
#include "cuda/hopper/config.cuh"
#include "cuda/launch.cuh"

namespace lowbit::cuda {

using core::MatmulProblem;
using core::Operand;
using core::QuantizedView;

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
    case HopperFamily::tiles_int8: return {"hopper_tiles_int8", Element::int8, 1, bytes, HopperWeight::byte_tiles};
    case HopperFamily::tiles_fp8: return {"hopper_tiles_fp8", Element::fp8_e4m3, 1, bytes, HopperWeight::byte_tiles};
    case HopperFamily::tiles_fp8_groups: return {"hopper_tiles_fp8_groups", Element::fp8_e4m3, 1, bytes, HopperWeight::byte_tiles};
    default: return {"hopper_tiles_int8_groups", Element::int8, 1, bytes, HopperWeight::byte_tiles};
    }
}

bool has_scales_of_rows(HopperFamily family) { return family == HopperFamily::tiles_int8 || family == HopperFamily::tiles_fp8; }

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

int groups_of_block(const QuantizedView& weight) {
    const int64_t group = GroupScales(weight).group;
    if (group >= weight.columns || group % 64 == 0) return 1;
    return group == 32 ? 2 : group == 16 ? 4 : 0;
}

int64_t row_values(const FamilyTraits& family, const MatmulProblem& problem) {
    return family.element == Element::int1 ? core::ceil_div(problem.k(), 8) : problem.k();
}

int64_t k_blocks_of(const FamilyTraits& kind, const MatmulProblem& problem) {
    return core::ceil_div(row_values(kind, problem) * kind.bytes, 128);
}

namespace {

constexpr int64_t most_few_tokens = 16;
constexpr int64_t most_exact_depth = 131071;  // of products of int8 in int32

// In the order in which they are asked: products of 8-bit codes before those that make numbers of them.
constexpr HopperFamily families[] = {HopperFamily::int1,
                                     HopperFamily::int8,
                                     HopperFamily::int8_uint8,
                                     HopperFamily::tiles_int8,
                                     HopperFamily::tiles_int8_groups,
                                     HopperFamily::tiles_fp8,
                                     HopperFamily::tiles_fp8_groups,
                                     HopperFamily::fp8,
                                     HopperFamily::fp8_blocks,
                                     HopperFamily::tiles_bf16,
                                     HopperFamily::tiles_fp16,
                                     HopperFamily::widened_bf16,
                                     HopperFamily::widened_fp16,
                                     HopperFamily::bf16,
                                     HopperFamily::fp16};

Element element_of(const Operand& operand) { return operand.is_quantized ? operand.quantized.format.element : operand.tensor.element; }

// Both kinds of fp8, in any combination; with scales along K there is e4m3 only.
bool multiplies_e5m2(const FamilyTraits& family) {
    return family.element == Element::fp8_e4m3 && family.weight == HopperWeight::rows && !family.scales_along_k;
}

std::string reason_against_weight(const FamilyTraits& family, const MatmulProblem& problem) {
    const Operand& weight = problem.weight;
    if (family.weight == HopperWeight::tiles) {
        if (!weight.is_quantized || weight.quantized.layout != core::PackedLayout::tiles) return "weight is not packed in tiles";
        return groups_of_block(weight.quantized) ? "" : core::join("groups of ", GroupScales(weight.quantized).group);
    }
    if (family.weight == HopperWeight::byte_tiles) {
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
    if (traits(family).weight == HopperWeight::byte_tiles) {
        const int group = GroupScales(problem.weight.quantized).group;
        const bool row = group >= problem.k();
        if (row != has_scales_of_rows(family)) return row ? "one scale for a row" : "scales of the weight change along K";
        return row || group % 128 == 0 ? "" : core::join("groups of ", group);
    }
    const bool tiles = traits(family).weight == HopperWeight::tiles;
    return tiles || has_plain_scale(problem.weight, raw) ? "" : "scales of the weight change along K";
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
    case HopperFamily::tiles_fp8: return hopper_tiles_fp8();
    case HopperFamily::tiles_fp8_groups: return hopper_tiles_fp8_groups(core::tile_scale_element(problem.weight.quantized.format));
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

namespace {

// Kernels of a family, whatever the weight.
HopperKernels any_kernels(HopperFamily family) {
    switch (family) {
    case HopperFamily::tiles_bf16: return hopper_tiles_bf16(Element::int4, 1, Element::fp16);
    case HopperFamily::tiles_fp16: return hopper_tiles_fp16(Element::int4, 1, Element::fp16);
    case HopperFamily::widened_bf16:
    case HopperFamily::widened_fp16: return hopper_widened_bf16(Element::int8);
    case HopperFamily::tiles_int8: return hopper_tiles_int8();
    case HopperFamily::tiles_fp8: return hopper_tiles_fp8();
    case HopperFamily::fp8_blocks: return hopper_fp8_blocks(true);
    case HopperFamily::tiles_int8_groups:
    case HopperFamily::tiles_fp8_groups: return hopper_tiles_int8_groups(Element::fp16);
    case HopperFamily::int8_uint8: return hopper_int8_uint8();
    case HopperFamily::int1: return hopper_int1();
    default: return hopper_bf16();
    }
}

}  // namespace

std::string tile_name(HopperKernels kernels, size_t index) {
    const HopperTile& tile = kernels[index].tile;
    const HopperSides size = kernels[index].sides(tile.rows, tile.tokens);
    const bool together = !tile.alternate && std::any_of(kernels.begin(), kernels.end(), [&](const HopperKernel& other) {
        return other.tile.alternate && other.tile.rows == tile.rows && other.tile.tokens == tile.tokens;
    });
    return core::join(size.rows, "x", size.tokens, together ? "_together" : "");
}

void add_hopper(core::Registry& registry) {
    for (const HopperFamily family : families) {
        const FamilyTraits kind = traits(family);
        // All lists of a kind of weight have the same tiles.
        const HopperKernels kernels = any_kernels(family);
        for (size_t i = 0; i < kernels.size(); ++i) {
            if (!kernels[i].exists()) continue;
            core::Kernel<MatmulProblem> kernel;
            kernel.name = core::join(kind.name, "_", tile_name(kernels, i));
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
            kernel.addition_unit = kind.element == Element::fp8_e4m3 ? 0x1p-13 : 0x1p-23;
            registry.matmul.add(std::move(kernel));
        }
    }
}

}  // namespace lowbit::cuda
