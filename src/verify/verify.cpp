#include "verify/verify.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <optional>

#include "core/packed.hpp"
#include "reference/codes.hpp"
#include "reference/quantize.hpp"
#include "verify/mirror.hpp"
#include "verify/random.hpp"
#include "verify/storage.hpp"

namespace lowbit::verify {
namespace {

using core::Context;
using core::Format;
using core::MatmulProblem;

uint64_t seed_of(const std::string& text) {
    uint64_t hash = 1469598103934665603u;
    for (const char c : text) hash = (hash ^ uint64_t(static_cast<unsigned char>(c))) * 1099511628211u;
    return hash;
}

std::vector<float> nans(int64_t count) { return std::vector<float>(size_t(count), std::numeric_limits<float>::quiet_NaN()); }

// An operand with the memory behind it, to be quantized by the reference.
struct OperandStorage {
    MatrixStorage plain;
    QuantizedStorage quantized;
    core::Operand operand;

    OperandStorage(const Format& format, int64_t rows, int64_t columns, uint64_t seed)
        : plain(format.is_plain() ? format.element : Element::fp32, rows, columns),
          quantized(format, format.is_plain() ? 0 : rows, columns) {
        plain.fill(normal_values(rows * columns, seed));
        operand.is_quantized = !format.is_plain();
        operand.tensor = plain.tensor();
        operand.quantized = quantized.view();
    }

    void quantize(const Context& context) const {
        if (operand.is_quantized) reference::quantize({&context, plain.tensor(), quantized.view(), false});
    }

    std::vector<double> row(int64_t index) const {
        std::vector<double> values(size_t(operand.columns()));
        for (int64_t k = 0; k < operand.columns() && !operand.is_quantized; ++k) values[size_t(k)] = plain.at(index, k);
        if (operand.is_quantized) reference::decode_row(operand.quantized, index, 0, operand.columns(), values.data());
        return values;
    }

    // What a GGML type adds to scale * code in a row, without the sign; empty for all others.
    std::vector<double> minimums(int64_t index) const {
        const Element element = operand.is_quantized ? operand.quantized.format.element : Element::fp32;
        const core::TileBlock block = core::tile_block(element);
        if (!block.minimums) return {};
        const core::BlockSize size = core::ggml_block(element);
        std::vector<double> values;
        for (int64_t k = 0; k < operand.columns(); ++k) {
            const uint8_t* bytes = operand.quantized.row_codes(index) + k / size.values * size.bytes;
            uint16_t half;
            std::memcpy(&half, bytes + core::ggml_half(element, 1), sizeof half);
            double minimum = std::fabs(double(core::fp16_to_float(half)));
            if (block.is_super()) {
                const unsigned integer = core::ggml_integer(element, int(k % size.values) / block.group, 1).read(bytes);
                minimum *= block.integers == 1 ? integer >> 4 : integer;
            }
            values.push_back(minimum);
        }
        return values;
    }
};

struct EpilogueStorage {
    std::vector<float> bias, row_scale, column_scale;
    core::Epilogue epilogue;
    Element output = Element::fp32;
    bool transposed = false;

    EpilogueStorage(EpilogueKind kind, int64_t m, int64_t rows, int64_t k, uint64_t seed)
        : bias(normal_values(rows, seed + 1)), row_scale(normal_values(m, seed + 2)), column_scale(normal_values(rows, seed + 3)) {
        // Keeps results near 1 for any K, so that activations are met where they bend.
        epilogue.scale = 1.0f / std::sqrt(float(k + 1));
        const auto vector = [](std::vector<float>& values) {
            return core::Tensor{values.data(), Element::fp32, 1, int64_t(values.size()), 0, 1, Device::cpu, 0};
        };
        switch (kind) {
        case EpilogueKind::none:
        case EpilogueKind::raw: epilogue.scale = 1.0f; break;
        case EpilogueKind::bias_relu: epilogue.activation = Activation::relu; break;
        case EpilogueKind::scales_gelu:
            epilogue.activation = Activation::gelu;
            epilogue.row_scale = vector(row_scale);
            epilogue.column_scale = vector(column_scale);
            break;
        case EpilogueKind::gelu_tanh_bf16: epilogue.activation = Activation::gelu_tanh, output = Element::bf16; break;
        case EpilogueKind::silu_fp16: epilogue.activation = Activation::silu, output = Element::fp16; break;
        case EpilogueKind::int8_output: epilogue.output_scale = 0.03f, output = Element::int8; break;
        case EpilogueKind::transposed_output: transposed = true; break;
        case EpilogueKind::scales_bf16:
        case EpilogueKind::scales_fp16:
            epilogue.row_scale = vector(row_scale);
            epilogue.column_scale = vector(column_scale);
            output = kind == EpilogueKind::scales_bf16 ? Element::bf16 : Element::fp16;
            break;
        case EpilogueKind::gate_silu: epilogue.gate = true, epilogue.activation = Activation::silu; break;
        case EpilogueKind::gate_gelu_bf16:
            epilogue.gate = true, epilogue.activation = Activation::gelu;
            epilogue.row_scale = vector(row_scale);
            epilogue.column_scale = vector(column_scale);
            output = Element::bf16;
            break;
        case EpilogueKind::gate_int8: epilogue.gate = true, epilogue.output_scale = 0.03f, output = Element::int8, transposed = true; break;
        case EpilogueKind::gate_beta: epilogue.gate = true, epilogue.activation = Activation::silu, epilogue.beta = -1.5f; break;
        case EpilogueKind::beta_relu: epilogue.activation = Activation::relu, epilogue.beta = 0.75f; break;
        case EpilogueKind::beta_scales_bf16:
            epilogue.row_scale = vector(row_scale);
            epilogue.column_scale = vector(column_scale);
            epilogue.beta = 1.0f, output = Element::bf16;
            break;
        case EpilogueKind::beta_gelu_fp16:
            epilogue.activation = Activation::gelu, epilogue.beta = -0.3f, output = Element::fp16, transposed = true;
            break;
        }
        if (kind == EpilogueKind::raw) output = Element::int32;
        if (kind != EpilogueKind::none && kind != EpilogueKind::raw) epilogue.bias = vector(bias);
    }
};

struct WeightRow {
    std::vector<double> values, minimums;
};

// Its product with a token: what it is, and sums of |token * value| and |token * minimum|.
struct Product {
    double sum = 0, magnitude = 0, minimums = 0;

    Product(const std::vector<double>& token, const WeightRow& row) {
        for (size_t k = 0; k < row.values.size(); ++k) sum += token[k] * row.values[k], magnitude += std::fabs(token[k] * row.values[k]);
        for (size_t k = 0; k < row.minimums.size(); ++k) minimums += std::fabs(token[k]) * row.minimums[k];
    }
};

// How far a product may be from the reference's, before the output is rounded.
double allowed(const MatmulProblem& problem, const core::Kernel<MatmulProblem>& kernel, int64_t m, int64_t n, const Product& of,
               Activation activation) {
    const double magnitude = of.magnitude;
    const core::Epilogue& e = problem.epilogue;
    const double unit = 0x1p-24, rounding = kernel.operand_rounding ? kernel.operand_rounding(problem) : 0;
    double factor = std::fabs(double(e.scale));
    if (e.row_scale) factor *= std::fabs(double(core::load(*e.row_scale, 0, m)));
    if (e.column_scale) factor *= std::fabs(double(core::load(*e.column_scale, 0, n)));
    const double bias = e.bias ? std::fabs(double(core::load(*e.bias, 0, n))) : 0;
    const double before =
        factor * (magnitude * (double(problem.k() + 8) * kernel.addition_unit + rounding) + of.minimums * kernel.minimum_rounding) +
        (factor * magnitude + bias) * 2 * unit;
    const bool curved = activation != Activation::none && activation != Activation::relu;
    return curved ? 1.13 * before + 8 * unit * (factor * magnitude + bias) : before;
}

double output_unit(Element element, double value) {
    switch (element) {
    case Element::fp16: return std::max(std::fabs(value) * 0x1p-10, 0x1p-24);
    case Element::bf16: return std::fabs(value) * 0x1p-7;
    default: return std::fabs(value) * 0x1p-23;
    }
}

// `products`: those with the rows of the weight that the result is made of, one, or two with a gate; `before`: what the output held.
double bound(const MatmulProblem& problem, const core::Kernel<MatmulProblem>& kernel, int64_t m, int64_t n, const Product* products,
             double before, double expected) {
    if (problem.raw_integers()) return 0;
    const core::Epilogue& e = problem.epilogue;
    double product = allowed(problem, kernel, m, n, products[0], e.activation);
    if (e.gate) {
        const int64_t second = n + problem.n();
        const double other = allowed(problem, kernel, m, second, products[1], Activation::none);
        const double value = std::fabs(core::finish(e, m, n, products[0].sum)),
                     factor = std::fabs(core::scale_and_bias(e, m, second, products[1].sum));
        product = value * other + product * (factor + other) + value * factor * 0x1p-23;
    }
    if (problem.y.element == Element::int8) return 1 + std::floor(product / double(problem.epilogue.output_scale));
    if (e.beta != 0.0f) product += (std::fabs(double(e.beta) * before) + std::fabs(expected)) * 0x1p-23;
    return product + output_unit(problem.y.element, expected) + 1e-37;
}

void compare(const MatmulProblem& problem, const core::Kernel<MatmulProblem>& kernel, const std::vector<Product>& products,
             const MatrixStorage& before, const MatrixStorage& got, const MatrixStorage& expected, Outcome& outcome) {
    const int64_t each = problem.epilogue.gate ? 2 : 1;
    for (int64_t n = 0; n < problem.n(); ++n)
        for (int64_t m = 0; m < problem.m(); ++m) {
            const double difference = std::fabs(got.at(m, n) - expected.at(m, n)),
                         limit = bound(problem, kernel, m, n, &products[size_t((n * problem.m() + m) * each)], before.at(m, n),
                                       expected.at(m, n));
            const double error = difference == 0                   ? 0
                                 : difference <= limit             ? difference / limit
                                 : limit > 0 && difference > limit ? difference / limit
                                                                   : std::numeric_limits<double>::infinity();
            if (error <= outcome.error) continue;
            outcome.error = error;
            outcome.difference =
                core::join("y[", m, ",", n, "] = ", got.at(m, n), ", reference ", expected.at(m, n), ", allowed difference ", limit);
        }
}

void compare_bits(const MatrixStorage& got, const MatrixStorage& expected, Outcome& outcome) {
    const int64_t rows = expected.tensor().rows, columns = expected.tensor().columns;
    for (int64_t i = 0; i < rows * columns && outcome.difference.empty(); ++i) {
        const int64_t row = i / columns, column = i % columns;
        if (got.same_bits(expected, row, column)) continue;
        outcome.error = std::numeric_limits<double>::infinity();
        outcome.difference = core::join("y[", row, ",", column, "] = ", got.at(row, column), ", reference ", expected.at(row, column));
    }
}

// Values that quantizers stumble over, strewn among ordinary ones.
std::vector<float> quantize_input(const QuantizeCase& tested, uint64_t seed) {
    std::vector<float> values = normal_values(tested.rows * tested.columns, seed);
    if (!tested.special_values) return values;
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const float special[] = {0.0f, -0.0f, NAN, infinity, -infinity, 1e-40f, -1e-38f, 3e38f, -3e38f, 1e-8f, 0.5f, -2.5f, 65504.0f, 1e5f};
    Random random(seed + 7);
    for (size_t i = 0; i < values.size(); ++i) {
        // One row in three stays ordinary, one is all zero, one holds the special values.
        const int64_t row = int64_t(i) / std::max<int64_t>(tested.columns, 1);
        if (row % 3 == 1) values[i] = 0.0f;
        if (row % 3 == 2 && random.below(4) == 0) values[i] = special[random.below(std::size(special))];
        if (tested.rows == 1 && random.below(8) == 0) values[i] = special[random.below(std::size(special))];
    }
    return values;
}

// Scales a caller might bring: those of other data of the same shape.
void fill_static_scales(const Context& context, const QuantizeCase& tested, const core::QuantizedView& view, uint64_t seed) {
    MatrixStorage other(Element::fp32, tested.rows, tested.columns);
    other.fill(normal_values(tested.rows * tested.columns, seed + 99));
    reference::quantize({&context, other.tensor(), view, false});
}

// All of a case that no kernel changes: made once, since dozens of kernels are asked and the reference takes longer than all of them.
class PreparedMatmul {
public:
    PreparedMatmul(const Context& context, const MatmulCase& tested)
        : context_(context),
          tested_(tested),
          seed_(seed_of(tested.text())),
          x_(tested.x, tested.m, tested.k, seed_),
          weight_(tested.weight, tested.weight_rows(), tested.k, seed_ + 10),
          epilogue_(tested.epilogue, tested.m, tested.weight_rows(), tested.k, seed_),
          before_(output()),
          expected_(output()),
          mirror_(context_) {
        x_.quantize(context_);
        weight_.quantize(context_);
        mirrored_ = {&context_, mirror_.operand(x_.operand), mirror_.operand(weight_.operand), mirror_.tensor(before_.tensor()),
                     mirror_.epilogue(epilogue_.epilogue)};
        if (x_.operand.is_quantized) mirrored_.numbers = mirror_.tensor(x_.plain.tensor());
        // A weight that has a packed layout of its own is multiplied both ways, where a kernel takes both.
        if (weight_.operand.is_quantized && core::packed_layout(tested.weight, context.device) == core::PackedLayout::tiles)
            packed_ = mirror_.packed(mirrored_.weight.quantized);
    }
    PreparedMatmul(const PreparedMatmul&) = delete;
    PreparedMatmul& operator=(const PreparedMatmul&) = delete;

    Outcome run(const core::Kernel<MatmulProblem>& kernel, const Context& context) {
        Outcome outcome, other;
        const bool ran = run(kernel, context, false, outcome), ran_packed = packed_ && run(kernel, context, true, ran ? other : outcome);
        return ran && ran_packed && other.error > outcome.error ? other : outcome;
    }

private:
    // Numbers that beta is multiplied with, or NaN, which must not matter.
    MatrixStorage output() const {
        MatrixStorage made(epilogue_.output, tested_.m, tested_.n, epilogue_.transposed);
        const bool integers = epilogue_.output == Element::int8 || epilogue_.output == Element::int32;
        const int64_t count = tested_.m * tested_.n;
        if (!integers) made.fill(tested_.has_beta() ? normal_values(count, seed_ + 20) : nans(count));
        return made;
    }

    // False, with the reason in the outcome, where the kernel does not take it.
    bool run(const core::Kernel<MatmulProblem>& kernel, const Context& context, bool packed, Outcome& outcome) {
        const MatrixStorage got = output();
        MatmulProblem problem = mirrored_;
        problem.context = &context;
        if (context.device == Device::cpu) problem.y = got.tensor();
        if (packed) problem.weight.quantized = *packed_;
        core::check(problem);
        outcome.not_run = core::KernelList<MatmulProblem>::reason_against(kernel, problem);
        if (!outcome.not_run.empty()) return false;
        Mirror scratch(context);
        scratch.bring(got.tensor(), problem.y);
        run_on(scratch, kernel, problem);
        scratch.bring_back(got.tensor(), problem.y);
        find_products();
        compare(on_host(), kernel, products_, before_, got, expected_, outcome);
        return true;
    }

    MatmulProblem on_host() const { return {&context_, x_.operand, weight_.operand, expected_.tensor(), epilogue_.epilogue}; }

    // By the reference, and what bounds are made of: for every row of the weight and token, of both halves of a gate.
    void find_products() {
        if (found_) return;
        found_ = true;
        const MatmulProblem problem = on_host();
        reference::matmul(problem);
        std::vector<std::vector<double>> tokens;
        for (int64_t m = 0; m < problem.m(); ++m) tokens.push_back(x_.row(m));
        for (int64_t n = 0; n < problem.n(); ++n) {
            std::vector<WeightRow> rows{{weight_.row(n), weight_.minimums(n)}};
            if (tested_.gated()) rows.push_back({weight_.row(n + problem.n()), weight_.minimums(n + problem.n())});
            for (const std::vector<double>& token : tokens)
                for (const WeightRow& row : rows) products_.emplace_back(token, row);
        }
    }

    const Context& context_;
    MatmulCase tested_;
    uint64_t seed_;
    OperandStorage x_, weight_;
    EpilogueStorage epilogue_;
    MatrixStorage before_, expected_;
    Mirror mirror_;
    MatmulProblem mirrored_;
    std::optional<core::QuantizedView> packed_;
    bool found_ = false;
    std::vector<Product> products_;
};

// The cases that were met so far, for kernels of one device.
class PreparedCases {
public:
    static PreparedCases& on(Device device) {
        // Never destroyed: at the end of the program there may be no device left to free memory on.
        static auto* all = new std::map<Device, PreparedCases>;
        return all->try_emplace(device, device).first->second;
    }
    explicit PreparedCases(Device device) {
        context_.set_threads(2);
        use_device(context_, device);
    }
    PreparedMatmul& find(const MatmulCase& tested) {
        std::unique_ptr<PreparedMatmul>& found = cases_[tested.text()];
        if (!found) found = std::make_unique<PreparedMatmul>(context_, tested);
        return *found;
    }

private:
    Context context_;
    std::map<std::string, std::unique_ptr<PreparedMatmul>> cases_;
};

}  // namespace

Outcome verify(const core::Kernel<MatmulProblem>& kernel, const Context& context, const MatmulCase& tested) {
    if (tested.for_gpus && context.device == Device::cpu) return {.not_run = "for GPUs", .error = 0, .difference = ""};
    return PreparedCases::on(context.device).find(tested).run(kernel, context);
}

Outcome verify(const core::Kernel<core::QuantizeProblem>& kernel, const Context& context, const QuantizeCase& tested) {
    const uint64_t seed = seed_of(tested.text());
    MatrixStorage x(tested.element, tested.rows, tested.columns);
    x.fill(quantize_input(tested, seed));
    const QuantizedStorage got(tested.format, tested.rows, tested.columns), expected(tested.format, tested.rows, tested.columns);
    if (tested.static_scales) {
        fill_static_scales(context, tested, got.view(), seed);
        fill_static_scales(context, tested, expected.view(), seed);
    }
    Mirror mirror(context);
    const core::QuantizeProblem problem{&context, mirror.tensor(x.tensor()), mirror.quantized(got.view()), tested.static_scales};
    core::check(problem);
    Outcome outcome;
    outcome.not_run = core::KernelList<core::QuantizeProblem>::reason_against(kernel, problem);
    if (!outcome.not_run.empty()) return outcome;
    run_on(mirror, kernel, problem);
    mirror.bring_back(got.view(), problem.result);
    reference::quantize({&context, x.tensor(), expected.view(), tested.static_scales});
    if (!(got == expected)) {
        outcome.error = std::numeric_limits<double>::infinity();
        outcome.difference = got.first_difference(expected);
    }
    return outcome;
}

Outcome verify(const core::Kernel<core::DequantizeProblem>& kernel, const Context& context, const QuantizeCase& tested) {
    const uint64_t seed = seed_of(tested.text());
    MatrixStorage x(Element::fp32, tested.rows, tested.columns);
    x.fill(quantize_input(tested, seed));
    const QuantizedStorage quantized(tested.format, tested.rows, tested.columns);
    reference::quantize({&context, x.tensor(), quantized.view(), false});
    const MatrixStorage got(tested.element, tested.rows, tested.columns), expected(tested.element, tested.rows, tested.columns);
    Mirror mirror(context);
    const core::DequantizeProblem problem{&context, mirror.quantized(quantized.view()), mirror.tensor(got.tensor())};
    core::check(problem);
    Outcome outcome;
    outcome.not_run = core::KernelList<core::DequantizeProblem>::reason_against(kernel, problem);
    if (!outcome.not_run.empty()) return outcome;
    run_on(mirror, kernel, problem);
    mirror.bring_back(got.tensor(), problem.y);
    reference::dequantize({&context, quantized.view(), expected.tensor()});
    compare_bits(got, expected, outcome);
    return outcome;
}

Outcome verify(const core::Kernel<core::ConvertProblem>& kernel, const Context& context, const ConvertCase& tested) {
    MatrixStorage x(tested.from, tested.rows, tested.columns, tested.x_transposed);
    x.fill(quantize_input({Format(), tested.from, tested.rows, tested.columns, false, true}, seed_of(tested.text())));
    const MatrixStorage got(tested.to, tested.rows, tested.columns, tested.y_transposed),
        expected(tested.to, tested.rows, tested.columns, tested.y_transposed);
    Mirror mirror(context);
    const core::ConvertProblem problem{&context, mirror.tensor(x.tensor()), mirror.tensor(got.tensor())};
    core::check(problem);
    Outcome outcome;
    outcome.not_run = core::KernelList<core::ConvertProblem>::reason_against(kernel, problem);
    if (!outcome.not_run.empty()) return outcome;
    run_on(mirror, kernel, problem);
    mirror.bring_back(got.tensor(), problem.y);
    reference::convert({&context, x.tensor(), expected.tensor()});
    compare_bits(got, expected, outcome);
    return outcome;
}

}  // namespace lowbit::verify
