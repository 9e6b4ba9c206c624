#include "cuda/convolve/plan.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/status.hpp"
#include "cuda/devices.hpp"

namespace lowbit::cuda {
namespace {

using core::BinaryConvProblem;
using core::ConvolutionAxis;

constexpr int64_t most_positions = int64_t(1) << 30;
constexpr int64_t most_bits = int64_t(1) << 19;  // of a sum
constexpr int64_t most_line = 8192;              // positions along an axis, of which a table has the classes
constexpr int fewest_outputs = 8;

// The different ranges of taps inside that positions of an axis have; empty: too many.
std::vector<ConvolutionAxis::Taps> classes_of(const ConvolutionAxis& axis) {
    std::vector<ConvolutionAxis::Taps> classes;
    const int64_t positions = axis.positions();
    for (int64_t i = 0; i < positions; ++i) {
        const ConvolutionAxis::Taps taps = axis.inside(i);
        // All taps are inside from here to where the last of them reaches the end.
        if (std::find(classes.begin(), classes.end(), taps) == classes.end()) classes.push_back(taps);
        if (classes.size() > size_t(conv_most_classes)) return {};
        if (taps.first == 0 && taps.end == axis.kernel) {
            const int64_t last = (axis.size + axis.before - axis.reach()) / axis.stride;
            i = std::max(i, last);
        }
    }
    return classes;
}

ConvAxisArgs axis_args(const ConvolutionAxis& axis) {
    ConvAxisArgs args{
        int(axis.size), int(axis.kernel), int(axis.stride), int(axis.before), int(axis.dilation), int(axis.positions()), 0, {}, {}};
    for (const ConvolutionAxis::Taps& taps : classes_of(axis)) {
        args.first[args.classes] = int16_t(taps.first), args.end[args.classes] = int16_t(taps.end);
        ++args.classes;
    }
    return args;
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

// Columns of the weight by chunks: one each, or two where cells have two pixels and a second column reads the pixel beside the first's.
void choose_columns(const BinaryConvProblem& problem, TensorConvArgs& args) {
    const ConvolutionAxis& across = problem.across;
    bool taken[conv_most_taps] = {};
    for (int column = 0; column < across.kernel; ++column) {
        if (taken[column]) continue;
        int second = -1;
        for (int other = column + 1; args.paired && other < across.kernel; ++other)
            if (!taken[other] && (other - column) * across.dilation == across.stride) second = other;
        if (second >= 0) taken[second] = true;
        args.column_first[args.columns] = int8_t(column), args.column_second[args.columns] = int8_t(second);
        ++args.columns;
    }
}

int rounded_up(int value, int step) { return (value + step - 1) / step * step; }

void lay_out(TensorConvArgs& args, int outputs) {
    const int phases = args.down.stride * args.across.stride, positions = args.blocks * conv_groups * 64;
    const int span = args.down.kernel == 1 && args.across.kernel == 1
                         ? 0
                         : (args.down.kernel - 1) * args.down.dilation / args.down.stride * args.row_cells +
                               (args.across.kernel - 1) * args.across.dilation / args.across.stride;
    args.tile_cells = positions + span;
    // Threads that bring the pieces of a pixel write to different banks.
    const int aside = args.pieces == 1 ? 0 : args.pieces == 2 ? 64 : args.pieces <= 4 ? 32 : 16;
    args.plane_bytes = rounded_up(args.tile_cells * conv_cell_bytes, 128) + aside;
    int end = 0;
    const auto take = [&](int bytes) {
        const int at = end;
        end = rounded_up(end + bytes, 128);
        return at;
    };
    const int taps = args.down.kernel * args.across.kernel;
    args.buffer_bytes = rounded_up(phases * args.pieces * args.plane_bytes, 128);
    args.at.cells = take(2 * args.buffer_bytes);
    args.at.weight = take(2 * args.steps * (outputs + 1) * conv_cell_bytes);
    args.at.counts = take(phases * args.tile_cells * 4);
    args.at.places = take(positions * 8), args.at.terms = take(positions * 4), args.at.classes = take(positions * 4);
    args.at.line_classes = take(args.down.positions + args.across.positions);
    args.at.corrections = take(args.down.classes * args.across.classes * outputs * 4);
    args.at.scales = take(outputs * 8);
    args.at.taps = take(taps * 4), args.at.chunks = take(2 * args.steps * 8), args.at.steps = take(args.steps * 4);
    args.at.staging = take(std::max(conv_warps * 16 * conv_staging_bytes, taps * outputs * 4));
    args.at.total = end;
}

TensorConvArgs describe(const BinaryConvProblem& problem) {
    TensorConvArgs args{.x = problem.x,
                        .weight = problem.weight,
                        .down = axis_args(problem.down),
                        .across = axis_args(problem.across),
                        .images = int(problem.images),
                        .channels = int(problem.channels),
                        .pixel_bytes = int(problem.pixel_bytes()),
                        .group_bytes = int(core::bytes_of_bits(problem.channels)),
                        .outputs = int(problem.group_outputs()),
                        .weight_row_bytes = int(problem.weight_row_bytes()),
                        .unit = 1,
                        .row_cells = int(line_cells(problem.across)),
                        .image_rows = int(line_cells(problem.down)),
                        .by_row_cells = Divisor(int(line_cells(problem.across))),
                        .by_image_rows = Divisor(int(line_cells(problem.down))),
                        .by_pieces = {},
                        .pieces = 1,
                        .paired = core::bytes_of_bits(problem.channels) <= 8,
                        .columns = 0,
                        .column_first = {},
                        .column_second = {},
                        .chunks = 0,
                        .steps = 0,
                        .tile_cells = 0,
                        .plane_bytes = 0,
                        .buffer_bytes = 0,
                        .blocks = 1,
                        .tiles = 0,
                        .stores_runs = false,
                        .at = {},
                        .result = ConvResult(problem)};
    const auto address = reinterpret_cast<uintptr_t>(problem.x) | reinterpret_cast<uintptr_t>(problem.weight);
    for (const int unit : {16, 8, 4})
        if (args.unit == 1 && args.group_bytes % unit == 0 && address % uintptr_t(unit) == 0) args.unit = unit;
    if (!args.paired) args.pieces = int(core::ceil_div(args.group_bytes, conv_cell_bytes)), args.by_pieces = Divisor(args.pieces);
    choose_columns(problem, args);
    args.chunks = args.down.kernel * args.columns * args.pieces;
    args.steps = (args.chunks + 1) / 2;
    const int per_run = 16 / args.result.bytes();
    const int64_t* strides = args.result.strides;
    args.stores_runs = strides[1] == 1 && args.outputs % per_run == 0 && strides[0] % per_run == 0 && strides[2] % per_run == 0 &&
                       strides[3] % per_run == 0 && reinterpret_cast<uintptr_t>(args.result.y) % 16 == 0;
    return args;
}

const DeviceInfo& device_of(const BinaryConvProblem& problem) { return devices().devices[size_t(problem.context->device_index)]; }

}  // namespace

std::string tensor_conv_reason_against(const BinaryConvProblem& problem) {
    if (problem.channels == 0) return "no channels";
    for (const ConvolutionAxis* axis : {&problem.down, &problem.across}) {
        if (axis->kernel > conv_most_taps) return core::join("a kernel of ", axis->kernel, " along an axis");
        if (axis->positions() > most_line) return core::join(axis->positions(), " positions along an axis");
        if (axis->stride > conv_most_taps) return core::join("a stride of ", axis->stride);
        if (axis->positions() > 0 && classes_of(*axis).empty()) return "padding cuts kernels in more ways than a table has room for";
        if (axis->dilation > INT16_MAX || axis->before > INT16_MAX) return "dilation or padding of more than 15 bits";
    }
    if (problem.groups > 65535) return core::join(problem.groups, " groups");
    if (problem.channels > INT32_MAX / 64 || problem.groups * problem.channels > INT32_MAX / 2)
        return core::join(problem.channels, " channels");
    if (problem.outputs > INT32_MAX / 4) return core::join(problem.outputs, " outputs");
    if (positions_of(problem) > most_positions) return "more positions than 30 bits count";
    if (problem.down.reach() * line_cells(problem.across) > most_positions / 64) return "a kernel that reaches far";
    if (problem.channels * problem.taps() >= most_bits) return core::join(problem.channels, " channels");
    TensorConvArgs args = describe(problem);
    if (int64_t(args.chunks) * 64 * conv_cell_bytes > device_of(problem).shared_bytes_per_block) return "a weight beyond shared memory";
    lay_out(args, 64);
    return args.at.total > device_of(problem).shared_bytes_per_block ? "tiles beyond shared memory" : "";
}

std::string tensor_conv_defers(const BinaryConvProblem& problem) {
    return problem.group_outputs() < fewest_outputs ? core::join("groups of ", problem.group_outputs(), " outputs") : "";
}

// Of all tiles that fit, the one that takes the least time, in units of what a block of 64 positions and 64 outputs takes: blocks of the
// grid run in rounds, those that share a multiprocessor share its time, and one alone there waits as much as it works.
ConvPlan plan_tensor_conv(const BinaryConvProblem& problem) {
    constexpr double tile_overhead = 0.7, first_overhead = 1.0, weight_overhead = 0.1;  // weight: for a step of 64 outputs
    ConvPlan plan{describe(problem), 64, 1, 1};
    const DeviceInfo& device = device_of(problem);
    const int64_t positions = positions_of(problem);
    double least = std::numeric_limits<double>::infinity();
    for (const int outputs : {64, 128})
        for (int blocks = 1; blocks <= 4; ++blocks) {
            ConvPlan now = plan;
            now.args.blocks = blocks, now.outputs = outputs;
            lay_out(now.args, outputs);
            if (now.args.at.total > device.shared_bytes_per_block) continue;
            constexpr int reserved = 1024;  // shared memory that every block takes besides
            const int resident =
                std::min((device.shared_bytes_per_block + reserved) / (now.args.at.total + reserved), conv_resident_blocks(outputs));
            now.args.tiles = int(core::ceil_div(positions, blocks * conv_groups * 64));
            now.output_tiles = int(core::ceil_div(now.args.outputs, outputs));
            const int64_t slots = int64_t(resident) * device.multiprocessors, rows = now.output_tiles * problem.groups;
            now.columns = int(std::clamp<int64_t>(slots / std::max<int64_t>(rows, 1), 1, std::max(now.args.tiles, 1)));
            const double size = outputs / 64.0;
            const auto waves = double(core::ceil_div(now.columns * rows, slots)),
                       rounds = double(core::ceil_div(now.args.tiles, now.columns));
            const double time = waves * std::max(resident, 2) *
                                (rounds * (blocks * size + tile_overhead) + first_overhead + weight_overhead * now.args.steps * size);
            if (time < least) least = time, plan = now;
        }
    return plan;
}

}  // namespace lowbit::cuda
