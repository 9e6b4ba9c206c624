// From a problem with few tokens to a launch of the streaming product.
#include "cuda/decode/nibbles_launch.cuh"
#include "cuda/devices.hpp"
#include "cuda/gemm/gemm.hpp"
#include "cuda/gemm/prepare.cuh"

namespace lowbit::cuda {
namespace {

using core::MatmulProblem;
using core::Operand;
using core::QuantizedView;

constexpr int64_t most_tokens = 16;

Element token_element(bool bf16) { return bf16 ? Element::bf16 : Element::fp16; }

// Groups of a unit of 128 values; 0 where a group ends inside of a step.
int segments_of(const QuantizedView& view) {
    const int64_t group = GroupScales(view).group;
    if (group >= view.columns || group % 128 == 0) return 1;
    return group == 64 ? 2 : group == 32 ? 4 : group == 16 ? 8 : 0;
}

// Tokens that the copy engine can take as they are: whole units, aligned.
bool tokens_as_they_are(const core::Tensor& x, Element element) {
    return x.element == element && x.rows_are_contiguous() && x.columns % NibbleTiles::unit_values == 0 &&
           reinterpret_cast<uintptr_t>(x.data) % 16 == 0 && (x.rows <= 1 || x.row_stride % 8 == 0);
}

int64_t token_pitch(const MatmulProblem& problem) { return core::ceil_div(problem.k(), NibbleTiles::unit_values) * 256; }

std::string reason_against_tokens(const MatmulProblem& problem, Element element) {
    const DeviceInfo& device = devices().devices[size_t(problem.context->device_index)];
    if (device.major != 9) return "for compute capability 9.0";
    if (problem.m() > most_tokens) return core::join("for up to ", most_tokens, " tokens");
    if (problem.k() == 0) return "K = 0";
    if (problem.k() > INT32_MAX / 4 || problem.n() > INT32_MAX) return "for sizes of 32 bits";
    if (problem.x.is_quantized) return "x is quantized";
    return problem.x.tensor.element == element ? "" : core::join("x is ", core::element_name(problem.x.tensor.element));
}

std::string reason_against_nibbles(const MatmulProblem& problem, bool bf16) {
    if (std::string reason = reason_against_tokens(problem, token_element(bf16)); !reason.empty()) return reason;
    if (!problem.weight.is_quantized || problem.weight.quantized.layout != core::PackedLayout::tiles)
        return "weight is not packed in tiles";
    const QuantizedView& weight = problem.weight.quantized;
    const auto launch = bf16 ? nibbles_bf16_launch : nibbles_fp16_launch;
    return launch(weight.format, segments_of(weight)) ? "" : core::join("no kernel for groups of ", GroupScales(weight).group);
}

int64_t nibbles_workspace(const MatmulProblem& problem, bool bf16) {
    return tokens_as_they_are(problem.x.tensor, token_element(bf16)) ? 0 : problem.m() * token_pitch(problem);
}

// Whole units of aligned rows, zeros beyond K, in the workspace.
void prepare_tokens(const MatmulProblem& problem, bool bf16, DecodeArgs& args) {
    const core::Tensor& x = problem.x.tensor;
    if (tokens_as_they_are(x, token_element(bf16))) {
        args.tokens = static_cast<const uint8_t*>(x.data);
        args.token_stride = x.row_stride * 2;
        return;
    }
    auto* rows = static_cast<uint8_t*>(problem.scratch);
    const int64_t pitch = token_pitch(problem);
    const cudaStream_t stream = stream_of(*problem.context);
    check(cudaMemsetAsync(rows, 0, size_t(problem.m() * pitch), stream), "cudaMemsetAsync");
    const AnyMatrix tokens(problem.x);
    const unsigned blocks = prepare_blocks(tokens.rows * core::ceil_div(tokens.columns, 16));
    bf16 ? prepare_rows<ptx::MmaBf16><<<blocks, prepare_threads, 0, stream>>>(tokens, rows, pitch)
         : prepare_rows<ptx::MmaFp16><<<blocks, prepare_threads, 0, stream>>>(tokens, rows, pitch);
    check_launch("prepare_rows");
    args.tokens = rows;
    args.token_stride = pitch;
}

void run_nibbles(const MatmulProblem& problem, bool bf16) {
    if (problem.m() == 0 || problem.n() == 0) return;
    const QuantizedView& weight = problem.weight.quantized;
    const core::TileGrid grid(weight.format, weight.rows, weight.columns);
    DecodeArgs args;
    args.rows = problem.n();
    args.tiles = int(grid.tiles);
    args.token_count = int(problem.m());
    args.scales = GroupScales(weight);
    args.groups = int(grid.groups);
    args.epilogue = epilogue_of(problem);
    const int segments = segments_of(weight);
    prepare_tokens(problem, bf16, args);
    const auto launch = bf16 ? nibbles_bf16_launch : nibbles_fp16_launch;
    launch(weight.format, segments)(args, {weight.codes, grid.atoms * NibbleTiles::atom_bytes, int(grid.atoms)}, problem.k(),
                                    *problem.context);
}

}  // namespace

void add_decode(core::Registry& registry) {
    for (const bool bf16 : {true, false}) {
        core::Kernel<MatmulProblem> kernel;
        kernel.name = bf16 ? "decode_tiles_bf16" : "decode_tiles_fp16";
        kernel.needs = "compute capability 9.0";
        kernel.supports = [bf16](const MatmulProblem& p) { return reason_against_nibbles(p, bf16); };
        kernel.run = [bf16](const MatmulProblem& p) { run_nibbles(p, bf16); };
        kernel.workspace = [bf16](const MatmulProblem& p) { return nibbles_workspace(p, bf16); };
        kernel.operand_rounding = [bf16](const MatmulProblem& p) {
            return p.weight.quantized.format.element == Element::nf4 ? (bf16 ? 0x1p-8 : 0x1p-11) : 0.0;
        };
        // A tensor core aligns its addends and cuts them off instead of rounding.
        kernel.addition_unit = 0x1p-23;
        registry.matmul.add(std::move(kernel));
    }
}

}  // namespace lowbit::cuda
