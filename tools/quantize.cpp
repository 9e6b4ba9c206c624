// lowbit quantize: a safetensors file with its matrices in another format.
#include <CLI/CLI.hpp>
#include <iostream>
#include <set>

#include "checkpoint.hpp"
#include "commands.hpp"
#include "core/status.hpp"
#include "core/tensor.hpp"
#include "matrix.hpp"
#include "name_choice.hpp"
#include "table.hpp"
#include "text.hpp"
#include "timing.hpp"

namespace lowbit::tools {
namespace {

struct Options {
    std::string input, output, format;
    std::vector<std::string> include, exclude;
    int threads = 0;
};

struct Task {
    const io::TensorInfo* tensor = nullptr;
    bool is_quantized = false;
    std::string problem{};  // why a chosen matrix is copied nevertheless
};

struct Report {
    struct Row {
        const io::TensorInfo* tensor;
        int64_t bytes_after;
        double error;
    };
    std::vector<Row> rows;
    RelativeError error;
    int64_t quantized_before = 0, quantized_after = 0;
    int64_t copied = 0, copied_bytes = 0;
};

int64_t bytes_of(const io::TensorInfo& tensor) { return int64_t(tensor.end - tensor.begin); }

// The planes of what is quantized already: a second pass leaves them alone.
std::set<std::string> names_of_planes(const io::SafetensorsFile& file) {
    std::set<std::string> names;
    for (const io::QuantizedEntry& entry : io::list_quantized(file, planes_of_format))
        for (const io::TensorInfo* plane : {entry.codes, entry.scales, entry.zero_points, entry.tensor_scale})
            if (plane) names.insert(plane->name);
    return names;
}

// Decides about every tensor, and declares what the new file will hold.
std::vector<Task> plan_tasks(const io::SafetensorsFile& file, const NameChoice& is_chosen, const std::string& format,
                             io::SafetensorsPlan& plan) {
    const std::set<std::string> planes = names_of_planes(file);
    std::vector<Task> tasks;
    plan.metadata = file.metadata();
    for (const io::TensorInfo& tensor : file.tensors()) {
        Task task{&tensor};
        const bool is_matrix = tensor.shape.size() >= 2 && float_element(tensor.dtype) && bytes_of(tensor) > 0;
        if (is_matrix && !planes.contains(tensor.name) && is_chosen(tensor.name)) try {
                const io::MatrixShape shape = io::matrix_shape(tensor.shape);
                const io::PlaneSet needed = planes_of_format(format, shape.rows, shape.columns);
                io::declare_quantized(plan, {tensor.name, format, tensor.shape, tensor.dtype, needed});
                task.is_quantized = true;
            } catch (const core::Failure& failure) {
                task.problem = failure.what();
            }
        if (!task.is_quantized) plan.tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
        tasks.push_back(task);
    }
    return tasks;
}

void write_planes(const std::string& name, const lowbit_quantized_view& view, io::SafetensorsWriter& writer) {
    const lowbit_format_sizes sizes = Format(view.format).measure(view.rows, view.columns);
    const auto write = [&](const std::string& plane, const void* data, int64_t bytes) {
        if (bytes > 0) writer.append(plane, {static_cast<const std::byte*>(data), size_t(bytes)});
    };
    write(io::codes_name(name), view.codes, sizes.code_bytes);
    write(io::scales_name(name), view.scales, sizes.scale_bytes);
    write(io::zero_points_name(name), view.zero_points, sizes.zero_point_bytes);
    write(io::tensor_scale_name(name), view.tensor_scale, sizes.tensor_scale_bytes);
}

// Both sides of the comparison are decoded a few rows at a time. Plain numbers are a format too, and decode the same way.
RelativeError measure_error(const Context& context, const lowbit_quantized_view& quantized, const lowbit_quantized_view& original,
                            RelativeError& total) {
    RelativeError error;
    for_row_pieces(quantized, [&](const lowbit_quantized_view& piece, int64_t first) {
        const Matrix found(piece.rows, piece.columns), wanted(piece.rows, piece.columns);
        lowbit_quantized_view source = original;
        source.rows = piece.rows;
        source.codes =
            static_cast<std::byte*>(original.codes) + first * original.columns * core::element_bytes(Element(original.format.element));
        dequantize(context, Quantized::borrow(piece), found.view());
        dequantize(context, Quantized::borrow(source), wanted.view());
        error.add(found.values.get(), wanted.values.get(), found.size());
        total.add(found.values.get(), wanted.values.get(), found.size());
    });
    return error;
}

void quantize_tensor(const Context& context, const io::SafetensorsFile& file, const io::TensorInfo& tensor, const std::string& format,
                     io::SafetensorsWriter& writer, Report& report) {
    const io::MatrixShape shape = io::matrix_shape(tensor.shape);
    const Element element = float_element(tensor.dtype).value();
    const FileBytes bytes(file.data(tensor), size_t(core::element_bytes(element)));
    const Tensor values(bytes.data(), element, {shape.rows, shape.columns});
    const Quantized quantized = quantize(context, values, format);
    write_planes(tensor.name, quantized.view(), writer);

    lowbit_quantized_view original = LOWBIT_QUANTIZED_VIEW_INIT;
    original.format.element = lowbit_element(element);
    original.rows = shape.rows;
    original.columns = shape.columns;
    original.codes = bytes.data();
    const RelativeError error = measure_error(context, quantized.view(), original, report.error);
    report.rows.push_back({&tensor, quantized.bytes(), error.value()});
    report.quantized_before += bytes_of(tensor);
    report.quantized_after += quantized.bytes();
}

Report run_tasks(const Context& context, const io::SafetensorsFile& file, const std::vector<Task>& tasks, const std::string& format,
                 io::SafetensorsWriter& writer) {
    Report report;
    int64_t total = 0, done = 0;
    for (const Task& task : tasks) total += bytes_of(*task.tensor);
    ProgressBar bar("quantize", total);
    for (const Task& task : tasks) {
        bar.show(done, task.tensor->name);
        if (task.is_quantized) {
            quantize_tensor(context, file, *task.tensor, format, writer, report);
        } else {
            copy_tensor(file, *task.tensor, writer);
            report.copied += 1;
            report.copied_bytes += bytes_of(*task.tensor);
        }
        done += bytes_of(*task.tensor);
    }
    bar.show(done, "writing");
    writer.finish();
    return report;
}

void print_report(const Report& report, const std::vector<Task>& tasks, const std::string& format, const Options& options, double seconds) {
    constexpr size_t name_width = 50;
    Table table({{"tensor", Align::left}, {"shape"}, {"stored as", Align::left}, {"before"}, {"after"}, {"relative\nerror"}});
    for (const Report::Row& row : report.rows)
        table.row({shortened(row.tensor->name, name_width), cross(row.tensor->shape), row.tensor->dtype + " → " + format,
                   human_bytes(bytes_of(*row.tensor)), human_bytes(row.bytes_after), percent(row.error)});
    table.rule();
    if (!report.rows.empty())
        table.row({"quantized", std::to_string(report.rows.size()), "", human_bytes(report.quantized_before),
                   human_bytes(report.quantized_after), percent(report.error.value())});
    if (report.copied > 0)
        table.row(
            {"copied unchanged", std::to_string(report.copied), "", human_bytes(report.copied_bytes), human_bytes(report.copied_bytes)});
    table.row({"total", std::to_string(tasks.size()), "", human_bytes(report.quantized_before + report.copied_bytes),
               human_bytes(report.quantized_after + report.copied_bytes)});
    table.print(std::cout);
    for (const Task& task : tasks)
        if (!task.problem.empty()) std::cout << "copied unchanged: " << without_controls(task.tensor->name + ": " + task.problem) << '\n';
    std::cout << options.output << ": written in " << human_seconds(seconds) << '\n';
}

void run(const Options& options) {
    const std::string format = Format(options.format).print();
    const NameChoice is_chosen(options.include, options.exclude);
    refuse_same_file(options.input, options.output);
    const io::SafetensorsFile file = io::SafetensorsFile::open(options.input);
    Context context = Context::cpu();
    context.set_threads(options.threads);

    io::SafetensorsPlan plan;
    const std::vector<Task> tasks = plan_tasks(file, is_chosen, format, plan);
    remove_unfinished_files_on_signals();
    Report report;
    const double seconds = time_once([&] {
        io::SafetensorsWriter writer(options.output, plan);
        report = run_tasks(context, file, tasks, format, writer);
    });
    print_report(report, tasks, format, options, seconds);
}

}  // namespace

void add_quantize(CLI::App& app) {
    CLI::App* command = app.add_subcommand("quantize", "A safetensors file with its matrices in another format");
    const auto options = std::make_shared<Options>();
    command->add_option("IN", options->input, "The file to read")->required();
    command->add_option("OUT", options->output, "The file to write")->required();
    command->add_option("--format", options->format, "Such as int4:g128, int8:row or q4_0; `lowbit formats` lists them")->required();
    command->add_option("--include", options->include, "Quantize only tensors whose name matches this regular expression; may be repeated")
        ->type_name("RE")
        ->take_all();
    command->add_option("--exclude", options->exclude, "Leave tensors whose name matches alone; may be repeated")
        ->type_name("RE")
        ->take_all();
    command->add_option("--threads", options->threads, "0: all processors")->capture_default_str();
    command->callback([options] { run(*options); });
}

}  // namespace lowbit::tools
