#include "cuda/convolve/plan.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/status.hpp"
#include "cuda/devices.hpp"

namespace lowbit::cuda {
namespace {

using core::BinaryConvProblem;
using core::ConvolutionAxis;

constexpr int64_t most_positions = int64_t(1) << 30;
constexpr int64_t most_bits = int64_t(1) << 19;  // of a sum
constexpr int fewest_outputs = 8, fewest_tile_outputs = 32;

ConvAxisArgs axis_args(const ConvolutionAxis& axis) {
    return {int(axis.size),     int(axis.kernel),      int(axis.stride),           int(axis.before),
            int(axis.dilation), int(axis.positions()), Divisor(int(axis.dilation))};
}

int largest_shift(const ConvolutionAxis& axis) { return int(axis.dilation * (axis.kernel - 1) / axis.stride); }

// Cells from one line to the next. With stride 1 the padding behind a line is also that before the next one.
int64_t line_cells(const ConvolutionAxis& axis) {
    const int64_t cells = axis.positions() + largest_shift(axis), behind = cells - axis.size - axis.before;
    if (axis.stride > 1) return cells;
    return cells - std::clamp<int64_t>(behind, 0, std::min<int64_t>(axis.before, largest_shift(axis)));
}

int64_t positions_of(const BinaryConvProblem& problem) {
    return core::checked_multiply(problem.images, core::checked_multiply(line_cells(problem.down), line_cells(problem.across), "x"), "x");
}

int rounded_up(int value, int step) { return (value + step - 1) / step * step; }

// Cells from that of a position to that of a tap of it.
int tap_cell(const TensorConvArgs& args, int tap) {
    const int row = tap / args.across.kernel, column = tap % args.across.kernel;
    const int plane = (args.down.phase(row) * args.across.stride + args.across.phase(column)) * args.pieces;
    return plane * (args.plane_bytes / conv_cell_bytes) + args.down.shift(row) * args.row_cells + args.across.shift(column);
}

void lay_out(TensorConvArgs& args, int outputs) {
    const int positions = args.groups * args.blocks * 64;
    const int span = args.down.shift(args.down.kernel - 1) * args.row_cells + args.across.shift(args.across.kernel - 1);
    args.tile_cells = positions + span;
    // Threads that bring the pieces of a pixel write to different banks.
    const int aside = args.pieces == 1 ? 0 : args.pieces == 2 ? 64 : args.pieces <= 4 ? 32 : 16;
    args.plane_bytes = rounded_up(args.tile_cells * conv_cell_bytes, 128) + aside;
    args.complement_bytes = rounded_up(args.phases * args.pieces * args.plane_bytes, 128);
    args.buffer_bytes = args.folded ? args.complement_bytes : 2 * args.complement_bytes;
    args.pass_cells = args.groups * 128 / args.pieces;
    int end = 0;
    const auto take = [&](int bytes) {
        const int at = end;
        end = rounded_up(end + bytes, 128);
        return at;
    };
    args.at.cells = take(2 * args.buffer_bytes);
    args.at.weight = take(2 * args.steps * (outputs + 1) * conv_cell_bytes);
    args.at.places = take(2 * positions * 8), args.at.terms = take(2 * positions * 4);
    args.at.scales = take(outputs * 8);
    args.at.staging = take(args.groups * 64 * conv_staging_bytes);
    args.at.total = end;
}

// Also lays out. A thread remembers 32 of its cells.
bool fits(TensorConvArgs& args, int outputs, const DeviceInfo& device) {
    lay_out(args, outputs);
    return args.pass_cells > 0 && core::ceil_div(args.tile_cells, args.pass_cells) * args.phases <= 32 &&
           args.at.total <= device.shared_bytes_per_block;
}

void fill_steps(TensorConvArgs& args) {
    const int taps = args.down.kernel * args.across.kernel;
    if (!args.folded) {
        for (int step = 0; step < args.steps; ++step)
            args.step_cells[step] =
                uint32_t(tap_cell(args, step / args.pieces) + step % args.pieces * (args.plane_bytes / conv_cell_bytes)) |
                uint32_t(args.complement_bytes / conv_cell_bytes) << 16;
        return;
    }
    // The second cell of a step must not lie before the first.
    std::iota(args.folded_taps, args.folded_taps + taps, uint8_t(0));
    std::sort(args.folded_taps, args.folded_taps + taps, [&](int a, int b) { return tap_cell(args, a) < tap_cell(args, b); });
    for (int step = 0; step < args.steps; ++step) {
        const int first = tap_cell(args, args.folded_taps[2 * step]);
        const int second = 2 * step + 1 < taps ? tap_cell(args, args.folded_taps[2 * step + 1]) : first;
        args.step_cells[step] = uint32_t(first) | uint32_t(second - first) << 16;
    }
}

// All but what depends on the tile.
TensorConvArgs describe(const BinaryConvProblem& problem) {
    TensorConvArgs args{};
    args.x = problem.x, args.weight = problem.weight;
    args.down = axis_args(problem.down), args.across = axis_args(problem.across);
    args.phases = args.down.stride * args.across.stride;
    args.images = int(problem.images);
    args.pixel_bytes = int(problem.pixel_bytes()), args.group_bytes = int(core::bytes_of_bits(problem.channels));
    args.outputs = int(problem.group_outputs());
    args.weight_row_bytes = int(problem.weight_row_bytes());
    args.row_cells = int(line_cells(problem.across)), args.image_rows = int(line_cells(problem.down));
    args.folded = args.group_bytes <= conv_cell_bytes / 2;
    args.pieces = int(core::ceil_div(args.group_bytes, conv_cell_bytes));
    args.by_row_cells = Divisor(args.row_cells), args.by_image_rows = Divisor(args.image_rows), args.by_pieces = Divisor(args.pieces);
    const int cell_bits = args.folded ? 64 : 128 * args.pieces;
    args.tap_bits = int(problem.channels) + 2 * (cell_bits - int(problem.channels));
    const auto address = reinterpret_cast<uintptr_t>(problem.x) | reinterpret_cast<uintptr_t>(problem.weight);
    args.unit = 1;
    for (const int unit : {16, 8, 4})
        if (args.unit == 1 && args.group_bytes % unit == 0 && address % uintptr_t(unit) == 0) args.unit = unit;
    args.bits = args.unit == 16 ? ConvBits::cells : args.unit == 8 && args.folded ? ConvBits::folded : ConvBits::any;
    args.steps = args.folded ? int(core::ceil_div(problem.taps(), 2)) : int(problem.taps()) * args.pieces;
    // A step takes two taps of folded cells, and the last may have but one.
    args.slots = args.folded ? 2 * args.steps : args.steps, args.by_slots = Divisor(args.slots);
    args.result = ConvResult(problem);
    const int per_run = 16 / args.result.bytes();
    const int64_t* strides = args.result.strides;
    args.image_bytes = int(strides[0] * args.result.bytes());
    args.line_bytes = int(strides[2] * args.result.bytes()), args.position_bytes = int(strides[3] * args.result.bytes());
    args.stores_runs = strides[1] == 1 && args.outputs % per_run == 0 && strides[0] % per_run == 0 && strides[2] % per_run == 0 &&
                       strides[3] % per_run == 0 && reinterpret_cast<uintptr_t>(args.result.y) % 16 == 0;
    return args;
}

const DeviceInfo& device_of(const BinaryConvProblem& problem) { return devices().devices[size_t(problem.context->device_index)]; }

// What a block takes with so many tiles, where `sharing` of them share a multiprocessor. The numbers make the choice for 26 convolutions
// with every tile measured: 2 % beyond the best of each in the mean. Instructions: of each quarter of the multiprocessor.
double block_clocks(const TensorConvArgs& args, int outputs, int sharing, double tiles) {
    constexpr double first_clocks = 6200, tile_latency = 2900, cell_latency = 110, store_latency = 1500, step_latency = 46;
    constexpr double weight_instructions = 38, cell_instructions = 140, store_instructions = 420;
    const double size = outputs / 64.0, cells = double(core::ceil_div(args.tile_cells, args.pass_cells)) * args.phases;  // of a thread
    const auto weights = double(core::ceil_div(outputs * args.steps, args.groups * 128));
    const double tensor = args.groups * args.blocks * args.steps * (33 + 24 * size);
    const double issue = args.groups * (cells * cell_instructions + args.blocks * size * store_instructions) + 0.6 * tensor;
    const double latency = tile_latency + cells * cell_latency + args.blocks * (size * store_latency + args.steps * step_latency);
    return first_clocks + weights * args.groups * sharing * weight_instructions +
           tiles * std::max({sharing * issue, sharing * tensor, latency});
}

}  // namespace

std::string tensor_conv_reason_against(const BinaryConvProblem& problem) {
    if (problem.channels == 0) return "no channels";
    for (const ConvolutionAxis* axis : {&problem.down, &problem.across}) {
        if (axis->kernel > conv_most_taps) return core::join("a kernel of ", axis->kernel, " along an axis");
        if (axis->stride > conv_most_taps) return core::join("a stride of ", axis->stride);
        if (axis->dilation > INT16_MAX || axis->before > INT16_MAX) return "dilation or padding of more than 15 bits";
    }
    if (problem.groups > 65535) return core::join(problem.groups, " groups");
    if (problem.channels > INT32_MAX / 64 || problem.groups * problem.channels > INT32_MAX / 2)
        return core::join(problem.channels, " channels");
    if (problem.outputs > INT32_MAX / 4) return core::join(problem.outputs, " outputs");
    if (positions_of(problem) > most_positions) return "more positions than 30 bits count";
    if (problem.down.reach() * line_cells(problem.across) > most_positions / 64) return "a kernel that reaches far";
    if (core::checked_multiply(problem.images, core::checked_multiply(problem.down.size, problem.across.size, "x"), "x") > most_positions)
        return "more pixels than 30 bits count";
    if (problem.channels * problem.taps() >= most_bits) return core::join(problem.channels, " channels");
    const int64_t* strides = problem.y.strides;
    const int64_t line = std::max<int64_t>(problem.down.positions(), 1) * strides[2];
    const int64_t column = std::max<int64_t>(problem.across.positions(), 1) * strides[3];
    if (std::max({strides[0], line, column}) > INT32_MAX / 8) return "an image of y beyond 31 bits";
    TensorConvArgs args = describe(problem);
    if (args.steps > conv_most_steps) return "a weight beyond shared memory";
    args.blocks = 1;
    for (args.groups = 1; args.groups <= 2; ++args.groups)
        if (fits(args, fewest_tile_outputs, device_of(problem))) return "";
    return "tiles beyond shared memory";
}

std::string tensor_conv_defers(const BinaryConvProblem& problem) {
    return problem.group_outputs() < fewest_outputs ? core::join("groups of ", problem.group_outputs(), " outputs") : "";
}

// Of all tiles that fit, the one that takes the least time: blocks of the grid run in rounds, and those that share a multiprocessor share
// its time.
ConvPlan plan_tensor_conv(const BinaryConvProblem& problem, int most_outputs) {
    ConvPlan plan{describe(problem), 64, 1, 1};
    TensorConvArgs& args = plan.args;
    const DeviceInfo& device = device_of(problem);
    const int64_t positions = positions_of(problem);
    struct Tile {
        int outputs = 0, groups = 0, blocks = 0;
    } best;
    double least = std::numeric_limits<double>::infinity();
    // Lays out; false: it does not fit.
    const auto take = [&](Tile tile) {
        args.groups = tile.groups, args.blocks = tile.blocks;
        if (!fits(args, tile.outputs, device)) return false;
        args.tiles = int(core::ceil_div(positions, tile.groups * tile.blocks * 64));
        plan.outputs = tile.outputs;
        plan.output_tiles = int(core::ceil_div(args.outputs, tile.outputs));
        return true;
    };
    const auto consider = [&](Tile tile) {
        if (!take(tile)) return;
        constexpr int reserved = 1024;  // shared memory that every block takes besides
        const int resident =
            std::min((device.shared_bytes_per_block + reserved) / (args.at.total + reserved), conv_most_groups(tile.outputs) / tile.groups);
        const int64_t slots = int64_t(resident) * device.multiprocessors, rows = plan.output_tiles * problem.groups;
        const int64_t columns = std::clamp<int64_t>(slots / std::max<int64_t>(rows, 1), 1, std::max(args.tiles, 1));
        const auto sharing = int(std::min<int64_t>(resident, core::ceil_div(columns * rows, device.multiprocessors)));
        const double time = double(core::ceil_div(columns * rows, slots)) *
                            block_clocks(args, tile.outputs, sharing, double(core::ceil_div(args.tiles, columns)));
        if (time < least) least = time, best = tile, plan.columns = int(columns);
    };
    const auto consider_all = [&](int outputs) {
        for (const int groups : {1, 2, 3, 4, 6})
            for (int blocks = 1; blocks <= 4 && groups <= conv_most_groups(outputs); ++blocks) consider({outputs, groups, blocks});
    };
    for (int outputs = 64; outputs <= most_outputs && args.outputs > fewest_tile_outputs; outputs *= 2) consider_all(outputs);
    if (best.outputs == 0) consider_all(fewest_tile_outputs);
    take(best);
    fill_steps(args);
    return plan;
}

}  // namespace lowbit::cuda
