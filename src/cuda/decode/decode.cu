// From a problem with few tokens to a launch of the streaming product.
#include "cuda/decode/rows_launch.cuh"
#include "cuda/decode/tiles_args.cuh"
#include "cuda/devices.hpp"
#include "cuda/gemm/gemm.hpp"
#include "cuda/gemm/prepare.cuh"
#include "cuda/quantize/fast.hpp"

namespace lowbit::cuda {
namespace {

using core::MatmulProblem;
using core::Operand;
using core::QuantizedView;

constexpr int64_t most_tokens = 16, most_plain_rows = 16384;

// What the tokens are: numbers of 16 bits, or codes of 8.
Element token_element(const Operand& x) { return x.is_quantized ? x.quantized.format.element : x.tensor.element; }
bool is_wide(Element element) { return element == Element::bf16 || element == Element::fp16; }

// `tokens`: what x must be.
std::string reason_against_problem(const MatmulProblem& problem, Element tokens) {
#ifndef LOWBIT_HAS_SM90
    return "this build has no code for compute capability 9.0";
#endif
    const DeviceInfo& device = devices().devices[size_t(problem.context->device_index)];
    if (device.major != 9) return "for compute capability 9.0";
    if (problem.m() > most_tokens) return core::join("for up to ", most_tokens, " tokens");
    if (problem.k() == 0) return "K = 0";
    if (problem.k() > INT32_MAX / 4 || problem.n() > INT32_MAX) return "for sizes of 32 bits";
    if (token_element(problem.x) != tokens) return core::join("x is ", core::element_name(token_element(problem.x)));
    return problem.raw_integers() && tokens != Element::int8 ? "y is int32, the raw product of integers" : "";
}

// Groups of 128 values; 0 where they do not fit into these. Groups of more than 128 are taken in parts of 128.
int segments_of(const QuantizedView& view) {
    const int64_t group = GroupScales(view).group;
    if (group >= view.columns || group % 128 == 0) return 1;
    return group >= 16 && 128 % group == 0 ? int(128 / group) : 0;
}

// ---- tokens ----

constexpr int token_alignment = 16;

// Rows of whole units that the copy engine can take as they are.
bool tokens_as_they_are(const Operand& x, int unit_values) {
    if (x.columns() % unit_values != 0) return false;
    if (x.is_quantized)
        return x.quantized.layout == core::PackedLayout::rows && reinterpret_cast<uintptr_t>(x.quantized.codes) % token_alignment == 0;
    const core::Tensor& t = x.tensor;
    return t.rows_are_contiguous() && reinterpret_cast<uintptr_t>(t.data) % token_alignment == 0 && (t.rows <= 1 || t.row_stride % 8 == 0);
}

int64_t token_pitch(const MatmulProblem& problem, int unit_values) {
    return core::ceil_div(problem.k(), unit_values) * unit_values * (is_wide(token_element(problem.x)) ? 2 : 1);
}

int64_t tokens_workspace(const MatmulProblem& problem, int unit_values) {
    return tokens_as_they_are(problem.x, unit_values) ? 0 : problem.m() * token_pitch(problem, unit_values);
}

// As they are, or whole units of aligned rows, zeros beyond K, in the workspace.
void prepare_tokens(const MatmulProblem& problem, int unit_values, DecodeArgs& args) {
    const Operand& x = problem.x;
    if (tokens_as_they_are(x, unit_values)) {
        args.tokens = x.is_quantized ? x.quantized.codes : static_cast<const uint8_t*>(x.tensor.data);
        args.token_stride = x.is_quantized ? x.quantized.row_bytes() : x.tensor.row_stride * 2;
        return;
    }
    auto* rows = static_cast<uint8_t*>(problem.scratch);
    const int64_t pitch = token_pitch(problem, unit_values);
    const cudaStream_t stream = stream_of(*problem.context);
    args.tokens = rows;
    args.token_stride = pitch;
    if (x.is_quantized) return launch_pad_bytes(x.quantized.codes, problem.m(), problem.k(), rows, pitch, stream);
    check(cudaMemsetAsync(rows, 0, size_t(problem.m() * pitch), stream), "cudaMemsetAsync");
    const AnyMatrix tokens(x);
    x.tensor.element == Element::bf16 ? launch_prepare<ptx::MmaBf16>(*problem.context, tokens, rows, pitch)
                                      : launch_prepare<ptx::MmaFp16>(*problem.context, tokens, rows, pitch);
}

DecodeArgs common_args(const MatmulProblem& problem) {
    DecodeArgs args;
    args.rows = problem.weight.rows();
    args.tiles = int(core::ceil_div(args.rows, rows_per_tile));
    if (problem.epilogue.gate) args.half_tiles = args.tiles / 2;
    args.token_count = int(problem.m());
    args.epilogue = epilogue_of(problem);
    args.begins_early = problem.behind_quantize;
    return args;
}

void use_group_scales(const QuantizedView& weight, DecodeArgs& args) {
    args.scales = GroupScales(weight);
    args.groups = int(core::ceil_div(weight.columns, args.scales.group));
}

// ---- tiles ----

constexpr int tile_unit_values = 128;

// Groups of a unit: those of the weight, but tokens of q8_1 have a scale for every 32 values.
int tile_segments(Element tokens, const QuantizedView& weight) {
    if (!core::has_nibble_tiles(weight.format)) return tile_unit_values / core::tile_block(weight.format.element).group;
    const int segments = segments_of(weight);
    return tokens == Element::q8_1 && segments > 0 && segments < 4 ? 4 : segments;
}

TilesLaunch find_tiles(Element tokens, const QuantizedView& weight) {
    const auto of = [&](auto bf16, auto fp16, auto int8) { return tokens == Element::bf16 ? bf16 : tokens == Element::fp16 ? fp16 : int8; };
    if (!core::has_nibble_tiles(weight.format))
        return of(blocks_bf16_launch, blocks_fp16_launch, blocks_int8_launch)(weight.format.element);
    return of(nibbles_bf16_launch, nibbles_fp16_launch, nibbles_int8_launch)(weight.format, tile_segments(tokens, weight));
}

// `given`: what x is; `tokens`: what is multiplied.
std::string reason_against_tiles_of(const MatmulProblem& problem, Element given, Element tokens) {
    if (std::string reason = reason_against_problem(problem, given); !reason.empty()) return reason;
    if (!problem.weight.is_quantized || problem.weight.quantized.layout != core::PackedLayout::tiles)
        return "weight is not packed in tiles";
    const QuantizedView& weight = problem.weight.quantized;
    if (tokens == Element::int8 && !scale_at_end(problem.x.quantized)) return "scales of x change along K";
    if (problem.x.is_quantized && problem.raw_integers()) return "y is int32, the raw product of integers";
    return find_tiles(tokens, weight) ? "" : core::join("no kernel for ", weight.format.print());
}

std::string reason_against_tiles(const MatmulProblem& problem, Element tokens) { return reason_against_tiles_of(problem, tokens, tokens); }

// x in q8_1 or q8_0 that this call quantizes: its values become fp16 numbers at once. As integers tokens must be brought into the order of
// codes first, and have scales of their own in the inner loop: that takes longer.
std::string reason_against_rounded(const MatmulProblem& problem, Element tokens) {
    if (!problem.numbers) return "x is not quantized by this call";
    const Element given = token_element(problem.x);
    if (given != Element::q8_1 && given != Element::q8_0) return core::join("x is ", core::element_name(given));
    return reason_against_tiles_of(problem, given, tokens);
}

int64_t rounded_pitch(const MatmulProblem& problem) { return core::ceil_div(problem.k(), tile_unit_values) * tile_unit_values * 2; }
int64_t rounded_workspace(const MatmulProblem& problem) { return problem.m() * rounded_pitch(problem); }

int64_t tiles_workspace(const MatmulProblem& problem) {
    if (!problem.x.is_quantized) return tokens_workspace(problem, tile_unit_values);
    return problem.m() * core::ceil_div(problem.k(), tile_unit_values) * (tile_unit_values + token_term_bytes);
}

void describe_integer_tokens(const MatmulProblem& problem, int segments, DecodeArgs& args) {
    const QuantizedView& x = problem.x.quantized;
    IntegerTokens& tokens = args.integers;
    tokens.codes = x.codes, tokens.row_bytes = x.row_bytes(), tokens.columns = x.columns;
    tokens.blocks = x.format.element == Element::q8_1;
    tokens.segments = segments;
    tokens.units = int(core::ceil_div(x.columns, tile_unit_values)), tokens.tokens = int(x.rows);
    tokens.workspace = static_cast<uint8_t*>(problem.scratch);
    if (!tokens.blocks) args.epilogue.token_scale[0] = constant_scale(x);
}

void describe_rounded_tokens(const MatmulProblem& problem, DecodeArgs& args) {
    auto* rows = static_cast<uint8_t*>(problem.scratch);
    args.tokens = rows, args.token_stride = rounded_pitch(problem);
    run_round_blocks(*problem.context, *problem.numbers, rows, args.token_stride);
}

void run_tiles(const MatmulProblem& problem, Element tokens) {
    const QuantizedView& weight = problem.weight.quantized;
    const core::TileGrid grid(weight.format, weight.rows, weight.columns);
    TilesArgs tiles{weight.codes, grid.atoms * core::tile_atom_bytes(grid.bits), int(grid.atoms)};
    DecodeArgs args = common_args(problem);
    if (core::has_nibble_tiles(weight.format)) {
        use_group_scales(weight, args);
        if (weight.tensor_scale) args.epilogue.row_scale[0] = {weight.tensor_scale, 0};
    } else {
        const core::TileBlock block = core::tile_block(weight.format.element);
        args.scales.group = block.group;
        tiles.terms = static_cast<const uint8_t*>(weight.scales);
        tiles.blocks = int(grid.groups), tiles.tile_term_bytes = grid.groups * block.term_bytes();
    }
    if (problem.x.is_quantized && tokens == Element::fp16)
        describe_rounded_tokens(problem, args);
    else if (problem.x.is_quantized)
        describe_integer_tokens(problem, tile_segments(tokens, weight), args);
    else
        prepare_tokens(problem, tile_unit_values, args);
    find_tiles(tokens, weight)(args, tiles, problem.k(), *problem.context);
}

// ---- plain rows ----

// The weight as rows of bytes aligned to 16.
std::optional<ByteRowsArgs> byte_rows(const Operand& weight) {
    ByteRowsArgs rows;
    rows.rows = weight.rows();
    if (weight.is_quantized) {
        if (weight.quantized.layout != core::PackedLayout::rows || weight.quantized.format.is_ggml()) return std::nullopt;
        rows.data = weight.quantized.codes, rows.stride = weight.quantized.row_bytes(), rows.bytes = int(rows.stride);
    } else {
        if (!weight.tensor.rows_are_contiguous() || !is_wide(weight.tensor.element)) return std::nullopt;
        rows.data = static_cast<const uint8_t*>(weight.tensor.data), rows.stride = weight.tensor.row_stride * 2;
        rows.bytes = int(weight.tensor.columns * 2);
    }
    if (reinterpret_cast<uintptr_t>(rows.data) % 16 != 0 || rows.bytes % 16 != 0 || (rows.rows > 1 && rows.stride % 16 != 0))
        return std::nullopt;
    return rows;
}

int row_segments(const MatmulProblem& problem) {
    if (!problem.weight.is_quantized || problem.raw_integers() || scale_at_end(problem.weight.quantized)) return 0;
    const int segments = segments_of(problem.weight.quantized);
    return segments ? segments : -1;
}

RowsLaunch find_rows(Element tokens, const MatmulProblem& problem) {
    const int segments = row_segments(problem);
    const Element weight = token_element(problem.weight);
    switch (tokens) {
    case Element::bf16: return rows_bf16_launch(weight, segments);
    case Element::fp16: return rows_fp16_launch(weight, segments);
    case Element::int8: return rows_int8_launch(weight, segments);
    default: return rows_fp8_launch(weight, segments);
    }
}

int row_unit_values(const MatmulProblem& problem) { return problem.weight.is_quantized ? 128 : 64; }

int64_t rows_workspace(const MatmulProblem& problem) { return tokens_workspace(problem, row_unit_values(problem)); }

std::string reason_against_rows(const MatmulProblem& problem, Element tokens) {
    if (std::string reason = reason_against_problem(problem, tokens); !reason.empty()) return reason;
    const Operand& weight = problem.weight;
    if (!byte_rows(weight)) return "weight is not in rows of 8 or 16 bits aligned to 16 bytes";
    if (!find_rows(tokens, problem)) return core::join("no kernel for ", weight.format().print());
    if (problem.x.is_quantized && !problem.raw_integers() && !scale_at_end(problem.x.quantized)) return "scales of x change along K";
    // Numbers of 16 bits: where a block has many rows, the copies of whole tiles that a large product makes are as fast.
    if (!weight.is_quantized && problem.n() > most_plain_rows) return core::join("for up to ", most_plain_rows, " rows of numbers");
    if (tokens == Element::int8 && problem.k() > 131071) return core::join("K = ", problem.k(), " is beyond 131071");
    return "";
}

void run_rows(const MatmulProblem& problem, Element tokens) {
    DecodeArgs args = common_args(problem);
    if (problem.x.is_quantized && !problem.raw_integers()) args.epilogue.token_scale[0] = constant_scale(problem.x.quantized);
    if (row_segments(problem) > 0)
        use_group_scales(problem.weight.quantized, args);
    else if (problem.weight.is_quantized && !problem.raw_integers())
        args.epilogue.row_scale[0] = constant_scale(problem.weight.quantized);
    prepare_tokens(problem, row_unit_values(problem), args);
    find_rows(tokens, problem)(args, *byte_rows(problem.weight), problem.k(), *problem.context);
}

template <class Reason, class Run, class Workspace>
core::Kernel<MatmulProblem> make_kernel(const char* name, Element tokens, const Reason& reason, const Run& run,
                                        const Workspace& workspace) {
    core::Kernel<MatmulProblem> kernel;
    kernel.name = name;
    kernel.needs = "compute capability 9.0";
    kernel.supports = [=](const MatmulProblem& p) { return reason(p, tokens); };
    kernel.run = [=](const MatmulProblem& p) {
        if (p.m() > 0 && p.n() > 0) run(p, tokens);
    };
    kernel.workspace = workspace;
    // Halves of whole tiles: a row of results then has both of its rows in one block.
    kernel.fuses_gate = [](const MatmulProblem& p) { return p.n() % rows_per_tile == 0; };
    kernel.operand_rounding = [=](const MatmulProblem& p) {
        const bool rounds = p.weight.is_quantized && p.weight.quantized.format.element == Element::nf4;
        return rounds ? (tokens == Element::bf16 ? 0x1p-8 : 0x1p-11) : 0.0;
    };
    // A tensor core aligns its addends and cuts them off instead of rounding.
    kernel.addition_unit = 0x1p-23;
    return kernel;
}

core::Kernel<MatmulProblem> make_rounded_kernel() {
    core::Kernel<MatmulProblem> kernel =
        make_kernel("decode_tiles_rounded", Element::fp16, reason_against_rounded, run_tiles, rounded_workspace);
    kernel.quantizes_x = true;
    // Measured with q5_k on an H200: 1.04 to 1.19 times as long with one token.
    kernel.defers = [](const MatmulProblem& p) -> std::string {
        return core::tile_block(p.weight.quantized.format.element).bits == 5 ? "weights of 5 bits take less time as integers" : "";
    };
    // A token's code times its scale is rounded to fp16.
    kernel.operand_rounding = [of_weight = kernel.operand_rounding](const MatmulProblem& p) { return of_weight(p) + 0x1p-11; };
    return kernel;
}

}  // namespace

void add_decode(core::Registry& registry) {
    const auto add = [&](const auto&... of) { registry.matmul.add(make_kernel(of...)); };
    registry.matmul.add(make_rounded_kernel());
    add("decode_tiles_bf16", Element::bf16, reason_against_tiles, run_tiles, tiles_workspace);
    add("decode_tiles_fp16", Element::fp16, reason_against_tiles, run_tiles, tiles_workspace);
    add("decode_tiles_int8", Element::int8, reason_against_tiles, run_tiles, tiles_workspace);
    add("decode_tiles_q8_1", Element::q8_1, reason_against_tiles, run_tiles, tiles_workspace);
    add("decode_rows_bf16", Element::bf16, reason_against_rows, run_rows, rows_workspace);
    add("decode_rows_fp16", Element::fp16, reason_against_rows, run_rows, rows_workspace);
    add("decode_rows_int8", Element::int8, reason_against_rows, run_rows, rows_workspace);
    add("decode_rows_fp8", Element::fp8_e4m3, reason_against_rows, run_rows, rows_workspace);
}

}  // namespace lowbit::cuda
