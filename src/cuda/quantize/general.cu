#include "cuda/quantize/general.hpp"

#include <algorithm>

#include "cuda/quantize/encode.cuh"
#include "cuda/quantize/launcher.cuh"
#include "cuda/quantize/statistics.cuh"

namespace lowbit::cuda {
namespace {

using core::QuantizeProblem;

bool needs_scales(const QuantizeProblem& problem) {
    return !problem.static_scales && problem.result.format.granularity != Granularity::none;
}

bool needs_tensor_statistics(const QuantizeProblem& problem) {
    const core::Format& format = problem.result.format;
    return needs_scales(problem) && (format.granularity == Granularity::tensor || format.has_tensor_scale());
}

bool needs_magnitudes(const QuantizeProblem& problem) { return problem.result.format.element == Element::int1; }

// Enough pieces to fill any GPU, few enough for one block to merge.
Pieces pieces_of(const QuantizeProblem& problem) {
    constexpr int64_t most_columns = 4096, enough = 8192;
    const core::Tensor& x = problem.x;
    Pieces pieces{1, x.columns, 1, x.rows};
    if (x.columns == 0) pieces.count = 0;
    if (pieces.count == 0 || needs_magnitudes(problem)) return pieces;
    pieces.columns = std::min(x.columns, most_columns);
    pieces.per_row = core::ceil_div(x.columns, pieces.columns);
    pieces.rows = core::ceil_div(x.rows, std::max<int64_t>(1, enough / pieces.per_row));
    pieces.count = core::ceil_div(x.rows, pieces.rows) * pieces.per_row;
    return pieces;
}

void run_scales(const QuantizeProblem& problem) {
    const core::QuantizedView& result = problem.result;
    const core::PlaneSizes sizes = result.format.measure(result.rows, result.columns);
    launch("compute_scales", compute_scales, {blocks_for(sizes.scales(), statistics_warps), statistics_threads}, *problem.context,
           problem.x, result, sizes.scales(), sizes.scale_columns);
}

void run_codes(const QuantizeProblem& problem) {
    const core::QuantizedView& result = problem.result;
    if (result.format.is_ggml()) {
        const int64_t per_row = result.columns / core::ggml_block(result.format.element).values, blocks = result.rows * per_row;
        return launch("encode_ggml", encode_ggml, {blocks_for(blocks, ggml_threads), ggml_threads}, *problem.context, problem.x, result,
                      per_row, blocks);
    }
    const int64_t per_row = units_per_row(result.columns), units = result.rows * per_row;
    launch("encode_units", encode_units, {blocks_for(units, encode_threads), encode_threads}, *problem.context, problem.x, result, per_row,
           units);
}

}  // namespace

int64_t tensor_statistics_bytes(const QuantizeProblem& problem) {
    if (!needs_tensor_statistics(problem)) return 0;
    return pieces_of(problem).count * int64_t(sizeof(PieceStatistics));
}

void run_tensor_statistics(const QuantizeProblem& problem) {
    if (!needs_tensor_statistics(problem)) return;
    const Pieces pieces = pieces_of(problem);
    auto* found = static_cast<PieceStatistics*>(problem.scratch);
    launch("measure_pieces", measure_pieces, {blocks_for(pieces.count, statistics_warps), statistics_threads}, *problem.context, problem.x,
           pieces, needs_magnitudes(problem), found);
    launch("finish_tensor_scale", finish_tensor_scale, {1, statistics_threads}, *problem.context, problem.result, pieces.count,
           static_cast<const PieceStatistics*>(found));
}

void run_quantize(const QuantizeProblem& problem) {
    run_tensor_statistics(problem);
    if (needs_scales(problem) && problem.result.format.granularity != Granularity::tensor) run_scales(problem);
    run_codes(problem);
}

}  // namespace lowbit::cuda
