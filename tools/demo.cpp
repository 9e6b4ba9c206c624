// lowbit demo: what every format costs and loses on this machine.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>

#include "commands.hpp"
#include "core/format.hpp"
#include "core/status.hpp"
#include "machine.hpp"
#include "product.hpp"
#include "table.hpp"
#include "text.hpp"

namespace lowbit::tools {
namespace {

struct Options {
    int64_t rows = 4096, columns = 14336, tokens = 2;
    int threads = 0;
};

constexpr double outlier_fraction = 0.001;
constexpr float outlier_factor = 8;
constexpr int64_t outlier_channels = 8;
constexpr float channel_factor = 20;

// Encoders that try many scales for each block: they get so many rows, which then stand for all.
constexpr int64_t searched_rows = 512;
bool is_searched(const core::Format& format) {
    switch (format.element) {
    case Element::q2_k:
    case Element::q3_k:
    case Element::q4_k:
    case Element::q5_k:
    case Element::q6_k:
    case Element::iq4_nl: return true;
    default: return false;
    }
}

std::string family(const core::Format& format) {
    switch (format.element) {
    case Element::fp32:
    case Element::fp16:
    case Element::bf16: return "Plain floating point";
    case Element::int8:
    case Element::uint8: return "8-bit integers";
    case Element::int4:
    case Element::uint4: return "4-bit integers";
    case Element::int1: return "1 bit";
    case Element::fp8_e4m3:
    case Element::fp8_e5m2: return "8-bit floating point";
    case Element::nf4:
    case Element::fp4_e2m1: return "4-bit floating point";
    default: return is_searched(format) ? "GGML blocks with searched scales" : "GGML blocks of 32";
    }
}

// Formats that tokens are quantized to on the way, so that codes meet codes.
std::vector<std::string> token_formats(const core::Format& format) {
    if (format.element == Element::q4_0 || format.element == Element::q8_0) return {"", "q8_1"};
    if (format.print() == "int8:row") return {"", "int8:row"};
    return {""};
}

struct Weight {
    std::vector<std::byte> repeated{};  // the codes, where they are copies of fewer rows
    Quantized quantized;
    int64_t own_rows = 0;  // rows that are what they claim to be: the rest are copies
};

struct Result {
    std::string label;
    double bits_per_weight = 0, error = 0, speed = 0;
    bool is_weight_only = false;
};

// One cell per factor of 1.
std::string bar(double speed) {
    constexpr double most = 12;
    static constexpr const char* eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const auto filled = int(std::lround(std::clamp(speed, 0.0, most) * 8));
    std::string text;
    for (int i = 0; i < filled / 8; ++i) text += "█";
    return text + eighths[filled % 8];
}

Style error_style(double error) { return error < 0.02 ? Style::good : error < 0.15 ? Style::fair : Style::poor; }

class Demo {
public:
    explicit Demo(const Options& options)
        : options_(options),
          context_(Context::cpu()),
          weight_(normal_matrix(options.rows, options.columns, 1)),
          tokens_(normal_matrix(options.tokens, options.columns, 2)),
          exact_(options.tokens, options.rows),
          y_(options.tokens, options.rows),
          ring_(most_ring_bytes),
          table_(std::cout, {{"format", Align::left, 19},
                             {"MB", Align::right, 6},
                             {"bits per\nweight"},
                             {"error of\nthe product"},
                             {"time of\nthe product"},
                             {"speed over\nfp32"},
                             {"", Align::left, 12},
                             {"kernel", Align::left, 18}}) {
        context_.set_threads(options.threads);
        add_outliers(weight_, outlier_fraction, outlier_factor, 3);
        add_outlier_columns(tokens_, outlier_channels, channel_factor, 4);
        matmul(context_, tokens_.view(), weight_.view(), exact_.view());
    }

    void run() {
        const double seconds = time_once([&] {
            print_introduction();
            std::string last_family;
            table_.headings();
            for (const core::Format& format : core::common_formats()) {
                if (const std::string name = family(format); name != last_family) table_.section(last_family = name);
                show(format);
            }
        });
        print_conclusion(seconds);
    }

private:
    static constexpr int64_t most_ring_bytes = 768'000'000;

    Weight make_weight(const core::Format& format) const {
        const std::string name = format.print();
        const int64_t rows = weight_.rows;
        if (!is_searched(format) || rows <= searched_rows) return {.quantized = quantize(context_, weight_.view(), name), .own_rows = rows};
        // These formats have no plane but the codes, so whole rows can be repeated.
        const Quantized slice = quantize(context_, weight_.first_rows(searched_rows), name);
        lowbit_quantized_view view = slice.view();
        const int64_t row_bytes = slice.format().measure(1, view.columns).row_bytes;
        std::vector<std::byte> codes(size_t(rows * row_bytes));
        for (int64_t row = 0; row < rows; row += searched_rows)
            std::memcpy(codes.data() + row * row_bytes, view.codes, size_t(std::min(searched_rows, rows - row) * row_bytes));
        view.codes = codes.data();
        view.rows = rows;
        return {.repeated = std::move(codes), .quantized = Quantized::borrow(view), .own_rows = searched_rows};
    }

    void show(const core::Format& format) {
        try {
            const Weight weight = make_weight(format);
            fill_ring(ring_, context_, weight.quantized);
            for (const std::string& x_format : token_formats(format)) show_product(format, weight, x_format);
        } catch (const Error& error) {
            table_.note(format.print(), error.what());
        }
    }

    void show_product(const core::Format& format, const Weight& weight, const std::string& x_format) {
        const TimedProduct product = time_product(context_, tokens_, ring_, y_, x_format, TokensQuantized::on_the_way,
                                                  {.seconds = 0.15, .least_runs = 3, .most_runs = 100});
        if (fp32_seconds_ == 0) fp32_seconds_ = product.timing.median;
        RelativeError error;
        for (int64_t token = 0; token < tokens_.rows; ++token) error.add(y_.row(token), exact_.row(token), weight.own_rows);
        const core::PlaneSizes sizes = format.measure(weight_.rows, weight_.columns);
        const bool is_repeated = weight.own_rows < weight_.rows;
        has_repeated_ |= is_repeated;
        const Result result{.label = format.print() + (x_format.empty() ? "" : " x " + x_format),
                            .bits_per_weight = format.bits_per_weight(weight_.rows, weight_.columns),
                            .error = error.value(),
                            .speed = fp32_seconds_ / product.timing.median,
                            .is_weight_only = x_format.empty()};
        table_.row({result.label + (is_repeated ? " *" : ""),
                    megabytes(sizes.total()),
                    fixed(result.bits_per_weight, 2),
                    {percent(result.error), error_style(result.error)},
                    human_seconds(product.timing.median),
                    fixed(result.speed, 2),
                    {bar(result.speed), result.speed >= 1 ? Style::good : Style::dim},
                    {product.kernel, Style::dim}});
        results_.push_back(result);
    }

    void print_introduction() const {
        std::cout << styled("y = x Wᵀ", Style::bold) << ", a layer of a language model on " << processor_name() << ", "
                  << context_.threads() << (context_.threads() == 1 ? " thread" : " threads") << ".\n"
                  << "W is " << cross({weight_.rows, weight_.columns}) << ": " << human_count(weight_.size()) << " weights, 0.1 % of them "
                  << outlier_factor << " times as large as the rest.\n"
                  << "x is " << tokens_.rows << (tokens_.rows == 1 ? " token" : " tokens") << " in fp32, with " << outlier_channels
                  << " of " << tokens_.columns << " channels " << channel_factor
                  << " times as large. \"a x b\": the tokens are quantized to b on the way.\n"
                  << "W comes from memory each time, as in a model that is larger than the cache.\n\n";
    }

    void print_conclusion(double seconds) const;

    Options options_;
    Context context_;
    Matrix weight_, tokens_, exact_, y_;
    Ring ring_;
    LiveTable table_;
    double fp32_seconds_ = 0;
    bool has_repeated_ = false;
    std::vector<Result> results_;
};

void Demo::print_conclusion(double seconds) const {
    std::cout << '\n';
    if (has_repeated_)
        std::cout << "* " << searched_rows << " rows, quantized and repeated to fill the " << weight_.rows
                  << ": the search for their scales takes long. The error is that of the " << searched_rows << ".\n\n";
    std::cout
        << "How to read it: with few tokens a product waits for its weights to arrive, so a kernel that reads a format as it lies is\n"
           "about as much faster as the format is smaller. Kernels named ..._dense decode to fp32 first: they save memory, not time.\n";
    constexpr double tolerable = 0.2;
    const Result* fastest = nullptr;
    for (const Result& result : results_)
        if (result.error < tolerable && (!fastest || result.speed > fastest->speed)) fastest = &result;
    const auto most_exact_below = [&](double bits) -> const Result* {
        const Result* best = nullptr;
        for (const Result& result : results_)
            if (result.is_weight_only && result.bits_per_weight < bits && (!best || result.error < best->error)) best = &result;
        return best;
    };
    const Result *four = most_exact_below(5), *eight = most_exact_below(9);
    if (fastest)
        std::cout << "Fastest here at an error below 20 %: " << fastest->label << ", " << fixed(fastest->speed, 1)
                  << " times as fast as fp32 (" << percent(fastest->error) << ").\n";
    if (four && eight)
        std::cout << "Smallest error below 5 bits per weight: " << four->label << " (" << percent(four->error)
                  << "); below 9 bits: " << eight->label << " (" << percent(eight->error) << ").\n";
    std::cout << styled("Measured in " + human_seconds(seconds) + ".", Style::dim) << '\n';
}

}  // namespace

void add_demo(CLI::App& app) {
    CLI::App* command = app.add_subcommand("demo", "What every format costs and loses on this machine");
    const auto options = std::make_shared<Options>();
    command->add_option("--rows", options->rows, "Rows of the weight")->check(CLI::PositiveNumber)->capture_default_str();
    command->add_option("--columns", options->columns, "Columns of the weight")->check(CLI::PositiveNumber)->capture_default_str();
    command->add_option("--tokens", options->tokens, "Rows of x")->check(CLI::PositiveNumber)->capture_default_str();
    command->add_option("--threads", options->threads, "0: all processors")->capture_default_str();
    command->callback([options] { Demo(*options).run(); });
}

}  // namespace lowbit::tools
