// Products of some tokens more than whole tiles, in two launches.
#include <algorithm>

#include "core/some_rows.hpp"
#include "cuda/devices.hpp"
#include "cuda/gemm/gemm.hpp"
#include "cuda/hopper/hopper.hpp"

namespace lowbit::cuda {
namespace {

using core::MatmulProblem;
using core::Operand;
using MatmulKernel = core::Kernel<MatmulProblem>;

constexpr int64_t border = 128;  // tokens of the smaller tile for many
constexpr int64_t most_few_tokens = 16;

// What the choice weighs, measured on an H200: a product of few tokens reads its weight at this rate, and begins that much later.
constexpr double bytes_per_clock = 1830, few_tokens_clocks = 3500, launch_clocks = 4000;
constexpr double worth_it = 0.93;  // of the time of one launch: the costs are estimates

Operand rows_of(const Operand& operand, int64_t first, int64_t count) {
    Operand some = operand;
    if (operand.is_quantized)
        some.quantized = core::some_rows(operand.quantized, first, count);
    else
        some.tensor = core::some_rows(operand.tensor, first, count);
    return some;
}

MatmulProblem part_of(const MatmulProblem& problem, int64_t first, int64_t count) {
    MatmulProblem part = problem;
    part.numbers.reset();
    part.x = rows_of(problem.x, first, count);
    part.y = core::some_rows(problem.y, first, count);
    if (std::optional<core::Tensor>& scale = part.epilogue.row_scale) {  // a vector: one row
        scale->data = static_cast<std::byte*>(scale->data) + scale->offset(0, first) * core::element_bytes(scale->element);
        scale->columns = count;
    }
    return part;
}

MatmulProblem whole_tiles(const MatmulProblem& problem) { return part_of(problem, 0, problem.m() / border * border); }
MatmulProblem rest(const MatmulProblem& problem) { return part_of(problem, problem.m() / border * border, problem.m() % border); }

// Never this one: neither part has tokens beyond whole tiles.
const MatmulKernel& kernel_for(const MatmulProblem& part) {
    const MatmulKernel* kernel = core::registry().matmul.choose(part, "", false).kernel;
    core::require(kernel, "matmul: no kernel can run a part of this");
    return *kernel;
}

std::string reason_against(const MatmulProblem& problem) {
    if (problem.m() <= border || problem.m() % border == 0) return "no tokens beyond whole tiles";
    if (devices().devices[size_t(problem.context->device_index)].major != 9) return "for compute capability 9.0";
    // Their sums keep fewer bits, and a kernel says of itself how many.
    const Operand& x = problem.x;
    if (x.is_quantized && (x.quantized.format.element == Element::fp8_e4m3 || x.quantized.format.element == Element::fp8_e5m2))
        return "x is fp8";
    if (x.is_quantized && x.quantized.format.granularity == Granularity::block) return "scales of x are shared by rows";
    return hopper_family(problem) ? "" : "not for the main loop of Hopper";
}

// Tokens beyond a tile fill another one of its size; alone they may take less.
std::string reason_for_one(const MatmulProblem& problem) {
    const HopperFamily family = *hopper_family(problem);
    const auto cost = [&](int64_t tokens) { return hopper_cost(family, problem, tokens); };
    const int64_t few = problem.m() % border;
    const core::Operand& weight = problem.weight;
    const double bytes = weight.is_quantized ? double(weight.quantized.row_bytes()) * double(weight.rows())
                                             : double(weight.rows() * weight.columns() * core::element_bytes(weight.tensor.element));
    const double beyond = few <= most_few_tokens ? few_tokens_clocks + bytes / bytes_per_clock : cost(few);
    return cost(problem.m() - few) + beyond + launch_clocks < worth_it * cost(problem.m()) ? "" : "one launch takes less";
}

// From formats alone: whoever asks may have the matrices elsewhere.
double largest_rounding(const MatmulProblem& problem) {
    if (problem.raw_integers() || !problem.weight.is_quantized) return 0;
    const core::Format& weight = problem.weight.quantized.format;
    if (!weight.is_ggml() && core::element_bits(weight.element) != 4) return 0;
    const Operand& x = problem.x;
    const double unit = !x.is_quantized && x.tensor.element == Element::bf16 ? 0x1p-8 : 0x1p-11;
    return ((weight.element == Element::nf4 ? 3 : 2) + int(x.is_quantized && x.quantized.format.is_ggml())) * unit;
}

}  // namespace

void add_two_parts(core::Registry& registry) {
    MatmulKernel kernel;
    kernel.name = "hopper_two_parts";
    kernel.needs = "compute capability 9.0";
    kernel.supports = reason_against;
    kernel.defers = reason_for_one;
    kernel.run = [](const MatmulProblem& problem) {
        for (const MatmulProblem& part : {whole_tiles(problem), rest(problem)}) kernel_for(part).run(part);
    };
    // One after the other in the same memory.
    kernel.workspace = [](const MatmulProblem& problem) {
        int64_t most = 0;
        for (const MatmulProblem& part : {whole_tiles(problem), rest(problem)})
            if (const MatmulKernel& own = kernel_for(part); own.workspace) most = std::max(most, own.workspace(part));
        return most;
    };
    // Of the kernels for whole tiles (hopper.cu), which round more than those for few tokens.
    kernel.operand_rounding = largest_rounding;
    kernel.minimum_rounding = 2 * 0x1p-8;
    kernel.addition_unit = 0x1p-23;
    registry.matmul.add(std::move(kernel));
}

}  // namespace lowbit::cuda
