#include "measure.hpp"

#include "core/registry.hpp"

namespace lowbit::tools {
namespace {

constexpr int64_t most_ring_bytes = 1'500'000'000;

TimingOptions timing_options(double seconds) { return {.seconds = seconds, .least_runs = 5}; }

// There is no explain() for these two verbs, but the registry answers from formats and shapes alone.
template <class Problem>
std::string kernel_name(const Problem& problem) {
    const core::Choice<Problem> choice = core::choose(problem);
    return choice.kernel ? choice.kernel->name : "none";
}

core::Tensor plain_tensor(const Matrix& matrix) {
    return {.data = matrix.values.get(), .rows = matrix.rows, .columns = matrix.columns, .row_stride = matrix.columns};
}

core::QuantizedView shape_of(const Case& what) {
    return {.format = core::Format::parse(what.format), .rows = what.shape.n, .columns = what.shape.k};
}

int64_t quantized_bytes(const Case& what) { return Format(what.format).measure(what.shape.n, what.shape.k).total_bytes; }
int64_t fp32_bytes(int64_t rows, int64_t columns) { return rows * columns * int64_t(sizeof(float)); }

}  // namespace

const char* op_name(Op op) { return op == Op::matmul ? "matmul" : op == Op::quantize ? "quantize" : "dequantize"; }

Bench::Bench(const MeasureOptions& options)
    : options_(options), context_(Context::cpu()), free_context_(Context::cpu()), ring_(most_ring_bytes) {
    context_.set_threads(options.threads);
    free_context_.set_threads(options.threads);
    context_.set_kernel(options.kernel);
}

const Matrix& Bench::numbers(const Shape& shape) {
    if (numbers_.rows != shape.n || numbers_.columns != shape.k) numbers_ = normal_matrix(shape.n, shape.k, 1);
    return numbers_;
}

double Bench::fp32_seconds(const Shape& shape) {
    double& seconds = fp32_seconds_[{shape.m, shape.n, shape.k}];
    if (seconds == 0) {
        ring_.fill(numbers(shape).view());
        const Matrix tokens = normal_matrix(shape.m, shape.k, 2);
        Matrix y(shape.m, shape.n);
        seconds =
            time_product(free_context_, tokens, ring_, y, "", TokensQuantized::before, timing_options(options_.seconds)).timing.median;
    }
    return seconds;
}

Measurement Bench::measure(const Case& what) {
    switch (what.op) {
    case Op::matmul: return measure_matmul(what);
    case Op::quantize: return measure_quantize(what);
    case Op::dequantize: return measure_dequantize(what);
    }
    return {};
}

Measurement Bench::measure_matmul(const Case& what) {
    const auto [m, n, k] = what.shape;
    Measurement result{.what = what, .fp32_seconds = fp32_seconds(what.shape)};
    fill_ring(ring_, context_, quantize(free_context_, numbers(what.shape).view(), what.format));
    const Matrix tokens = normal_matrix(m, k, 2);
    Matrix y(m, n);
    const TokensQuantized when = options_.quantize_on_the_way ? TokensQuantized::on_the_way : TokensQuantized::before;
    const TimedProduct product = time_product(context_, tokens, ring_, y, what.x_format, when, timing_options(options_.seconds));
    result.kernel = product.kernel;
    result.timing = product.timing;
    result.matrix_bytes = quantized_bytes(what);
    result.moved_bytes = result.rated_bytes = result.matrix_bytes + fp32_bytes(m, k) + fp32_bytes(m, n);
    result.operations = 2 * double(m) * double(n) * double(k);
    return result;
}

Measurement Bench::measure_quantize(const Case& what) {
    const Matrix& source = numbers(what.shape);
    ring_.fill(source.view());
    const Quantized destination = quantize(free_context_, source.view(), what.format);
    const lowbit_quantized_view view = destination.view();
    Measurement result{.what = what};
    core::Context probe;
    probe.force_kernel(options_.kernel);
    result.kernel = kernel_name(core::QuantizeProblem{&probe, plain_tensor(source), shape_of(what), false});
    result.timing = time_runs(timing_options(options_.seconds), [&] { quantize_into(context_, ring_.next_tensor(), view); });
    result.matrix_bytes = quantized_bytes(what);
    result.rated_bytes = fp32_bytes(what.shape.n, what.shape.k);
    result.moved_bytes = result.matrix_bytes + result.rated_bytes;
    return result;
}

Measurement Bench::measure_dequantize(const Case& what) {
    const Matrix& source = numbers(what.shape);
    ring_.fill_plain(quantize(free_context_, source.view(), what.format));
    const Matrix destination(source.rows, source.columns);
    const Tensor y = destination.view();
    Measurement result{.what = what};
    core::Context probe;
    probe.force_kernel(options_.kernel);
    result.kernel = kernel_name(core::DequantizeProblem{&probe, shape_of(what), plain_tensor(destination)});
    result.timing = time_runs(timing_options(options_.seconds), [&] { dequantize(context_, ring_.next_plain(), y); });
    result.matrix_bytes = quantized_bytes(what);
    result.rated_bytes = fp32_bytes(what.shape.n, what.shape.k);
    result.moved_bytes = result.matrix_bytes + result.rated_bytes;
    return result;
}

}  // namespace lowbit::tools
