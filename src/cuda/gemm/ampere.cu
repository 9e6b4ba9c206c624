// From a problem to a launch of the main loop: what its operands must look like there, and what is made of them on the way.
#include "cuda/gemm/ampere.hpp"

#include "cuda/gemm/gemm.hpp"
#include "cuda/gemm/launch_ampere.cuh"
#include "cuda/gemm/prepare.cuh"

namespace lowbit::cuda {
namespace {

using core::MatmulProblem;
using core::Operand;
using core::QuantizedView;

constexpr int64_t most_exact_depth = 131071;  // of int8 products in int32

// Whether operands of all kinds are made numbers of 16 bits. All else takes codes as they are.
bool has_16_bits(Arithmetic arithmetic) { return arithmetic == Arithmetic::bf16 || arithmetic == Arithmetic::fp16; }
int value_bits(Arithmetic arithmetic) { return has_16_bits(arithmetic) ? 16 : arithmetic == Arithmetic::int1 ? 1 : 8; }
int step_values(Arithmetic arithmetic) { return 256 / value_bits(arithmetic); }
Element element_of(Arithmetic arithmetic) {
    switch (arithmetic) {
    case Arithmetic::bf16: return Element::bf16;
    case Arithmetic::fp16: return Element::fp16;
    case Arithmetic::fp8: return Element::fp8_e4m3;
    case Arithmetic::int8: return Element::int8;
    default: return Element::int1;
    }
}

bool is_aligned(const void* data, int64_t stride_bytes, int64_t rows) {
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 && (rows <= 1 || stride_bytes % 16 == 0);
}

// Rows of the arithmetic's own type that the main loop can copy as they are.
std::optional<AlignedRows> aligned_rows(Arithmetic arithmetic, const Operand& operand) {
    AlignedRows rows;
    rows.rows = operand.rows();
    rows.bytes = core::ceil_div(operand.columns() * value_bits(arithmetic), 8);
    if (!operand.is_quantized) {
        const core::Tensor& t = operand.tensor;
        if (!has_16_bits(arithmetic) || t.element != element_of(arithmetic) || !t.rows_are_contiguous()) return std::nullopt;
        rows.data = static_cast<const uint8_t*>(t.data);
        rows.stride = t.row_stride * 2;
    } else {
        const QuantizedView& view = operand.quantized;
        if (has_16_bits(arithmetic) || view.format.element != element_of(arithmetic) || view.layout != core::PackedLayout::rows)
            return std::nullopt;
        rows.data = view.codes;
        rows.stride = view.row_bytes();
    }
    if (!is_aligned(rows.data, rows.stride, rows.rows) || rows.bytes % 16 != 0 || rows.stride > longest_row_bytes) return std::nullopt;
    return rows;
}

// Packed tiles whose codes are nibbles with a scale for each group. Other tiles are decoded as blocks are.
bool is_nibble_tiles(const Operand& operand) {
    return operand.is_quantized && operand.quantized.layout == core::PackedLayout::tiles &&
           core::has_nibble_tiles(operand.quantized.format);
}

// Group borders fall between steps of the main loop.
bool whole_steps(const core::Format& format, int64_t columns, int step) {
    const int64_t span = format.is_ggml() ? core::ggml_block(format.element).values : format.span(columns);
    return span >= columns || span % step == 0;
}

// The codes of a format, less zero points, are numbers that 16 bits hold: exactly, but for nf4's levels.
bool has_codes(const core::Format& format) { return !format.is_ggml() && !format.is_plain(); }

bool is_integer_operand(const Operand& operand, bool weight) {
    if (!operand.is_quantized) return false;
    const core::Format& format = operand.quantized.format;
    const Element e = format.element;
    return format.is_integer() || e == Element::q8_0 || (weight ? e == Element::q4_0 : e == Element::q8_1);
}

// How a side's scales reach the product.
enum class Scaling { none, at_end, by_group, inside };  // inside: the decoder multiplies them in, and rounds

Scaling scaling_of(Arithmetic arithmetic, const Operand& operand, bool raw) {
    if (!operand.is_quantized || raw) return Scaling::none;
    const QuantizedView& view = operand.quantized;
    if (is_nibble_tiles(operand)) return Scaling::by_group;
    if (!has_16_bits(arithmetic)) {
        if (view.format.is_ggml()) return Scaling::by_group;
        return scale_at_end(view) ? Scaling::at_end : Scaling::by_group;
    }
    if (!has_codes(view.format)) return Scaling::inside;
    if (scale_at_end(view)) return Scaling::at_end;
    return whole_steps(view.format, view.columns, step_values(arithmetic)) ? Scaling::by_group : Scaling::inside;
}

std::string reason_against_tokens(Arithmetic arithmetic, const MatmulProblem& problem) {
    const Operand& x = problem.x;
    if (has_16_bits(arithmetic) && problem.raw_integers()) return "y is int32, the raw product of integers";
    if (arithmetic == Arithmetic::int8) return is_integer_operand(x, false) ? "" : "x has no integer codes";
    if (arithmetic == Arithmetic::fp8)
        return x.is_quantized && x.quantized.format.element == Element::fp8_e4m3 && x.quantized.layout == core::PackedLayout::rows
                   ? ""
                   : "x is not fp8_e4m3";
    if (!x.is_quantized) return x.tensor.element == element_of(arithmetic) ? "" : core::join("x is ", core::element_name(x.tensor.element));
    if (arithmetic == Arithmetic::bf16) return "x is quantized: its codes go through fp16";
    if (!has_codes(x.quantized.format) || x.quantized.format.element == Element::nf4) return "the codes of x are not exact in fp16";
    if (!problem.weight.is_quantized || !has_codes(problem.weight.quantized.format)) return "weight has no codes that fp16 holds";
    if (scaling_of(arithmetic, x, false) == Scaling::inside) return "groups of x end inside of a step of 16";
    return "";
}

std::string reason_against_groups(Scaling x, Scaling weight, const MatmulProblem& problem) {
    if (x != Scaling::by_group || weight != Scaling::by_group) return "";
    const int a = GroupScales(problem.x.quantized).group, b = GroupScales(problem.weight.quantized).group;
    return std::max(a, b) % std::min(a, b) == 0 ? "" : core::join("groups of ", a, " and ", b, " do not nest");
}

std::string reason_against_integers(const MatmulProblem& problem) {
    if (!is_integer_operand(problem.weight, true)) return "weight has no integer codes";
    const bool raw = problem.raw_integers();
    const Scaling x = scaling_of(Arithmetic::int8, problem.x, raw), weight = scaling_of(Arithmetic::int8, problem.weight, raw);
    const bool grouped = x == Scaling::by_group || weight == Scaling::by_group;
    if (!grouped && problem.k() > most_exact_depth) return core::join("K = ", problem.k(), " is beyond ", most_exact_depth);
    for (const Operand* side : {&problem.x, &problem.weight}) {
        const core::Format& format = side->quantized.format;
        const bool constant = format.scale_is_constant_along_row();
        if (format.element == Element::uint8 && (grouped || !constant)) return "zero points of 8 bits go with one scale per row";
        if (grouped && !constant && !whole_steps(format, side->columns(), step_values(Arithmetic::int8)))
            return "groups end inside of a step of 32";
    }
    return reason_against_groups(x, weight, problem);
}

std::string reason_against_fp8(const MatmulProblem& problem) {
    if (!has_fp8_product(problem.context->device_index)) return "fp8 needs compute capability 8.9";
    const Scaling x = scaling_of(Arithmetic::fp8, problem.x, false), weight = scaling_of(Arithmetic::fp8, problem.weight, false);
    for (const Operand* side : {&problem.x, &problem.weight})
        if (!whole_steps(side->quantized.format, side->columns(), step_values(Arithmetic::fp8))) return "groups end inside of a step of 32";
    return reason_against_groups(x, weight, problem);
}

std::string reason_against_int1(const MatmulProblem& problem) {
    for (const Operand* side : {&problem.x, &problem.weight}) {
        if (!side->is_quantized || side->quantized.format.element != Element::int1) return "not int1 on both sides";
        if (!problem.raw_integers() && !scale_at_end(side->quantized)) return "more than one scale per row";
        if (!aligned_rows(Arithmetic::int1, *side)) return "rows of bits are not aligned to 16 bytes";
    }
    return "";
}

// What a problem becomes: operands, scratch memory, launch.
struct Plan {
    AmpereRunner runner;
    AmpereArgs args;
    AmpereWeight weight;
    TileChoice tile;
    bool prepare_tokens = false, token_scales_left_out = false;
    int64_t token_pitch = 0;
    // Offsets in the workspace; negative: not needed.
    int64_t tokens_at = -1, token_sums_at = -1, row_sums_at = -1, partials_at = -1;
    int64_t workspace = 0;

    int64_t reserve(int64_t bytes) {
        const int64_t at = workspace;
        workspace += core::ceil_div(bytes, core::workspace_alignment) * core::workspace_alignment;
        return at;
    }
};

AmpereRunner find_runner(Arithmetic arithmetic, WeightSource source, const MatmulProblem& problem, Groups groups) {
    const bool decoded = source == WeightSource::decoded;
    if (source == WeightSource::tiles) {
        const Element element = problem.weight.quantized.format.element;
        return arithmetic == Arithmetic::bf16 ? tiles_bf16_runner(element) : tiles_fp16_runner(element);
    }
    switch (arithmetic) {
    case Arithmetic::bf16: return bf16_runner(decoded, groups);
    case Arithmetic::fp16: return fp16_runner(decoded, groups);
    case Arithmetic::fp8: return fp8_runner(groups);
    case Arithmetic::int8: return int8_runner(decoded, groups);
    default: return int1_runner();
    }
}

ZeroPoints zero_points(const QuantizedView& view) {
    if (view.format.element != Element::uint8) return {};  // 4-bit codes are decoded less theirs
    return {view.zero_points, view.format.granularity == Granularity::row ? 1 : 0, 128};
}

Groups plan_scales(Arithmetic arithmetic, const MatmulProblem& problem, Plan& plan) {
    const bool raw = problem.raw_integers();
    const Scaling x = scaling_of(arithmetic, problem.x, raw), weight = scaling_of(arithmetic, problem.weight, raw);
    if (x == Scaling::at_end) plan.args.epilogue.token_scale[0] = constant_scale(problem.x.quantized);
    if (weight == Scaling::at_end) plan.args.epilogue.row_scale[0] = constant_scale(problem.weight.quantized);
    if (x == Scaling::by_group) plan.args.token_groups = GroupScales(problem.x.quantized);
    if (weight == Scaling::by_group) plan.args.row_groups = GroupScales(problem.weight.quantized);
    if (weight == Scaling::at_end || weight == Scaling::by_group) plan.weight.matrix = plan.weight.matrix.without_scales();
    plan.token_scales_left_out = problem.x.is_quantized;
    if (x == Scaling::by_group) return Groups::rows_and_tokens;
    return weight == Scaling::by_group ? Groups::rows : Groups::none;
}

void plan_zero_points(const MatmulProblem& problem, Plan& plan) {
    EpilogueArgs& e = plan.args.epilogue;
    e.token_zero = zero_points(problem.x.quantized);
    e.row_zero = zero_points(problem.weight.quantized);
    if (e.token_zero.data) e.row_sums = problem.weight.quantized.row_sums;
    if (e.token_zero.data && !e.row_sums) plan.row_sums_at = plan.reserve(problem.n() * 4);
    if (e.row_zero.data) plan.token_sums_at = plan.reserve(problem.m() * 4);
}

Plan make_plan(Arithmetic arithmetic, WeightSource source, const MatmulProblem& problem) {
    Plan plan;
    plan.args.epilogue = epilogue_of(problem);
    if (arithmetic == Arithmetic::int1) plan.args.epilogue.counts = Counts::differences;
    plan.args.rows = problem.n();
    plan.args.k_blocks = core::ceil_div(problem.k(), step_values(arithmetic) * steps_per_block);
    plan.weight.matrix = AnyMatrix(problem.weight);
    const Groups groups = plan_scales(arithmetic, problem, plan);
    if (arithmetic == Arithmetic::int8) plan_zero_points(problem, plan);
    if (source == WeightSource::rows) plan.weight.rows = *aligned_rows(arithmetic, problem.weight);
    if (source == WeightSource::tiles) {
        const core::TileGrid grid(problem.weight.quantized.format, problem.n(), problem.k());
        plan.weight.codes = problem.weight.quantized.codes, plan.weight.tiles = grid.tiles, plan.weight.atoms = grid.atoms;
    }
    plan.runner = find_runner(arithmetic, source, problem, groups);
    if (const std::optional<AlignedRows> rows = aligned_rows(arithmetic, problem.x)) {
        plan.args.tokens = *rows;
    } else {
        plan.prepare_tokens = true;
        plan.token_pitch = core::ceil_div(problem.k(), 16) * (value_bits(arithmetic) * 2);
        plan.tokens_at = plan.reserve(core::checked_multiply(problem.m(), plan.token_pitch, "workspace"));
        plan.args.tokens = {nullptr, plan.token_pitch, problem.m(), plan.token_pitch};
    }
    ProductSize size{problem.m(), problem.n(), plan.args.k_blocks};
    size.groups_are_blocks =
        plan.args.row_groups.group % (step_values(arithmetic) * steps_per_block) == 0 || plan.args.row_groups.group >= problem.k();
    plan.tile = plan.runner.choose(size, problem.context->device_index);
    plan.args.splits = plan.tile.splits;
    if (plan.args.splits > 1)
        plan.partials_at = plan.reserve(core::checked_multiply(problem.m() * plan.args.splits, problem.n() * 4, "workspace"));
    return plan;
}

int32_t* launch_sums(const AnyMatrix& matrix, std::byte* place, cudaStream_t stream) {
    auto* sums = reinterpret_cast<int32_t*>(place);
    sum_codes<<<prepare_blocks(matrix.rows * 32), prepare_threads, 0, stream>>>(matrix, sums);
    check_launch("sum_codes");
    return sums;
}

void prepare(Arithmetic arithmetic, const MatmulProblem& problem, Plan& plan, cudaStream_t stream) {
    auto* scratch = static_cast<std::byte*>(problem.scratch);
    AnyMatrix tokens(problem.x);
    if (plan.token_scales_left_out) tokens = tokens.without_scales();
    if (plan.prepare_tokens) {
        auto* rows = reinterpret_cast<uint8_t*>(scratch + plan.tokens_at);
        plan.args.tokens.data = rows;
        switch (arithmetic) {
        case Arithmetic::bf16: launch_prepare<ptx::MmaBf16>(*problem.context, tokens, rows, plan.token_pitch); break;
        case Arithmetic::fp16: launch_prepare<ptx::MmaFp16>(*problem.context, tokens, rows, plan.token_pitch); break;
        case Arithmetic::fp8: launch_pad_bytes(problem.x.quantized.codes, problem.m(), problem.k(), rows, plan.token_pitch, stream); break;
        default: launch_prepare<ptx::MmaInt8>(*problem.context, tokens, rows, plan.token_pitch); break;
        }
    }
    if (plan.token_sums_at >= 0) plan.args.epilogue.token_sums = launch_sums(tokens, scratch + plan.token_sums_at, stream);
    if (plan.row_sums_at >= 0) plan.args.epilogue.row_sums = launch_sums(plan.weight.matrix, scratch + plan.row_sums_at, stream);
    if (plan.partials_at >= 0) plan.args.partials = reinterpret_cast<uint32_t*>(scratch + plan.partials_at);
}

void add_parts(Arithmetic arithmetic, const Plan& plan, cudaStream_t stream) {
    if (plan.args.splits == 1) return;
    const unsigned blocks = prepare_blocks(plan.args.tokens.rows * core::ceil_div(plan.args.rows, 8));
    const bool integers =
        (arithmetic == Arithmetic::int8 || arithmetic == Arithmetic::int1) && !plan.args.row_groups.group && !plan.args.token_groups.group;
    integers ? sum_parts<int32_t><<<blocks, prepare_threads, 0, stream>>>(plan.args)
             : sum_parts<float><<<blocks, prepare_threads, 0, stream>>>(plan.args);
    check_launch("sum_parts");
}

}  // namespace

std::string ampere_reason_against(Arithmetic arithmetic, WeightSource source, const MatmulProblem& problem) {
    if (arithmetic == Arithmetic::bf16 && !has_bf16_product(problem.context->device_index)) return "bf16 needs compute capability 8.0";
    if (problem.k() == 0) return "K = 0";
    if (problem.k() > longest_row_bytes / 2) return core::join("K = ", problem.k(), " is beyond ", longest_row_bytes / 2);
    if (arithmetic == Arithmetic::int1) return reason_against_int1(problem);
    if (std::string reason = reason_against_tokens(arithmetic, problem); !reason.empty()) return reason;
    if (arithmetic == Arithmetic::int8)
        if (std::string reason = reason_against_integers(problem); !reason.empty()) return reason;
    switch (source) {
    case WeightSource::tiles:
        if (!is_nibble_tiles(problem.weight)) return "weight is not packed in tiles of nibbles";
        return scaling_of(arithmetic, problem.x, false) == Scaling::by_group ? "scales of x change along K" : "";
    case WeightSource::rows: {
        if (!aligned_rows(arithmetic, problem.weight))
            return core::join("weight is not ", core::element_name(element_of(arithmetic)), " in rows aligned to 16 bytes");
        const bool by_group =
            arithmetic == Arithmetic::int8 && (scaling_of(arithmetic, problem.weight, problem.raw_integers()) == Scaling::by_group ||
                                               scaling_of(arithmetic, problem.x, problem.raw_integers()) == Scaling::by_group);
        if (by_group) return "scales change along K";
        return arithmetic == Arithmetic::fp8 ? reason_against_fp8(problem) : "";
    }
    case WeightSource::decoded: break;
    }
    const Operand& weight = problem.weight;
    if (has_16_bits(arithmetic) && !weight.is_quantized && weight.tensor.element != element_of(arithmetic))
        return core::join("weight is ", core::element_name(weight.tensor.element), ", which ", core::element_name(element_of(arithmetic)),
                          " does not hold");
    return "";
}

int64_t ampere_workspace(Arithmetic arithmetic, WeightSource source, const MatmulProblem& problem) {
    return problem.m() == 0 || problem.n() == 0 ? 0 : make_plan(arithmetic, source, problem).workspace;
}

void run_ampere(Arithmetic arithmetic, WeightSource source, const MatmulProblem& problem) {
    if (problem.m() == 0 || problem.n() == 0) return;
    Plan plan = make_plan(arithmetic, source, problem);
    const cudaStream_t stream = stream_of(*problem.context);
    prepare(arithmetic, problem, plan, stream);
    if (plan.tile.kind == TileKind::folded) plan.args.epilogue.scale *= plan.runner.folded_unit;
    plan.runner.launch(plan.tile.kind, plan.args, plan.weight, *problem.context);
    add_parts(arithmetic, plan, stream);
}

// Roundings of the weight on its way into the tensor core, each of at most half a unit.
double ampere_operand_rounding(Arithmetic arithmetic, WeightSource source, const MatmulProblem& problem) {
    if (!has_16_bits(arithmetic) || !problem.weight.is_quantized) return 0;
    const bool rounds =
        problem.weight.quantized.format.element == Element::nf4 || scaling_of(arithmetic, problem.weight, false) == Scaling::inside;
    const bool folds = source == WeightSource::tiles && make_plan(arithmetic, source, problem).tile.kind == TileKind::folded;
    // Folding rounds the scale and its product with the code.
    return (double(rounds) + 2 * double(folds)) * (arithmetic == Arithmetic::bf16 ? 0x1p-8 : 0x1p-11);
}

void add_ampere(core::Registry& registry) {
    struct Entry {
        const char* name;
        Arithmetic arithmetic;
        WeightSource source;
    };
    for (const Entry& entry :
         {Entry{"ampere_int1", Arithmetic::int1, WeightSource::rows}, Entry{"ampere_int8", Arithmetic::int8, WeightSource::rows},
          Entry{"ampere_decoded_int8", Arithmetic::int8, WeightSource::decoded}, Entry{"ampere_fp8", Arithmetic::fp8, WeightSource::rows},
          Entry{"ampere_tiles_bf16", Arithmetic::bf16, WeightSource::tiles},
          Entry{"ampere_tiles_fp16", Arithmetic::fp16, WeightSource::tiles}, Entry{"ampere_bf16", Arithmetic::bf16, WeightSource::rows},
          Entry{"ampere_fp16", Arithmetic::fp16, WeightSource::rows}, Entry{"ampere_decoded_bf16", Arithmetic::bf16, WeightSource::decoded},
          Entry{"ampere_decoded_fp16", Arithmetic::fp16, WeightSource::decoded}}) {
        const auto [name, arithmetic, source] = entry;
        core::Kernel<MatmulProblem> kernel;
        kernel.name = name;
        kernel.needs = arithmetic == Arithmetic::fp8    ? "compute capability 8.9"
                       : arithmetic == Arithmetic::bf16 ? "compute capability 8.0"
                                                        : "compute capability 7.5";
        kernel.supports = [arithmetic, source](const MatmulProblem& p) { return ampere_reason_against(arithmetic, source, p); };
        kernel.run = [arithmetic, source](const MatmulProblem& p) { run_ampere(arithmetic, source, p); };
        kernel.workspace = [arithmetic, source](const MatmulProblem& p) { return ampere_workspace(arithmetic, source, p); };
        kernel.operand_rounding = [arithmetic, source](const MatmulProblem& p) { return ampere_operand_rounding(arithmetic, source, p); };
        // A tensor core aligns its addends and cuts them off instead of rounding; of products of fp8 it keeps 13 bits of the largest.
        kernel.addition_unit = arithmetic == Arithmetic::fp8 ? 0x1p-13 : 0x1p-23;
        registry.matmul.add(std::move(kernel));
    }
}

}  // namespace lowbit::cuda
