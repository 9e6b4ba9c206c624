#include "cuda/formats/decode.cuh"
#include "cuda/quantize/general.hpp"
#include "cuda/quantize/launcher.cuh"
#include "cuda/quantize/units.cuh"

namespace lowbit::cuda {
namespace {

constexpr int decode_threads = 256;

// A thread per unit.
__global__ void __launch_bounds__(decode_threads) decode_units(core::QuantizedView x, core::Tensor y, int64_t per_row, int64_t units) {
    const int64_t index = int64_t(blockIdx.x) * decode_threads + threadIdx.x;
    if (index >= units) return;
    const UnitPosition at(index, per_row);
    float values[unit_values];
    decode(x, at.row, at.column, values);
    // The NaN of a code (fp8) or of a caller's scale is stored as the CPU has it. Plain numbers and blocks come with theirs.
    if (x.format.granularity != Granularity::none) {
#pragma unroll
        for (int i = 0; i < unit_values; ++i) values[i] = core::is_nan(values[i]) ? core::quiet_nan() : values[i];
    }
    store_unit(y, at.row, at.column, at.valid(y.columns), values);
}

}  // namespace

void run_dequantize(const core::DequantizeProblem& problem) {
    const int64_t per_row = units_per_row(problem.y.columns), units = problem.y.rows * per_row;
    launch("decode_units", decode_units, {blocks_for(units, decode_threads), decode_threads}, *problem.context, problem.x, problem.y,
           per_row, units);
}

}  // namespace lowbit::cuda
