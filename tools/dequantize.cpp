// lowbit dequantize: a quantized file back as plain numbers.
#include <CLI/CLI.hpp>
#include <iostream>
#include <map>

#include "checkpoint.hpp"
#include "commands.hpp"
#include "core/status.hpp"
#include "core/tensor.hpp"
#include "io/json.hpp"
#include "terminal.hpp"
#include "text.hpp"
#include "timing.hpp"

namespace lowbit::tools {
namespace {

struct Options {
    std::string input, output, dtype;
    int threads = 0;
};

// Quantized tensors by the names of their planes; every plane but the codes stands for nothing.
using EntryOfPlane = std::map<std::string, const io::QuantizedEntry*>;

EntryOfPlane entries_of_planes(const std::vector<io::QuantizedEntry>& entries) {
    EntryOfPlane found;
    for (const io::QuantizedEntry& entry : entries) {
        for (const io::TensorInfo* plane : {entry.scales, entry.zero_points, entry.tensor_scale})
            if (plane) found[plane->name] = nullptr;
        found[entry.codes->name] = &entry;
    }
    return found;
}

Element element_of(const io::QuantizedEntry& entry, const std::string& dtype) {
    const std::optional<Element> element = float_element(dtype);
    core::require(element.has_value(), "tensor ", io::printable(entry.name), " was ", dtype,
                  " before, which cannot be written; use --dtype F32, F16 or BF16");
    return *element;
}

io::SafetensorsPlan make_plan(const io::SafetensorsFile& file, const EntryOfPlane& entries, const std::string& dtype) {
    io::SafetensorsPlan plan;
    for (const auto& [key, value] : file.metadata())
        if (key != "lowbit" && !key.starts_with("lowbit.")) plan.metadata[key] = value;
    for (const io::TensorInfo& tensor : file.tensors()) {
        const auto found = entries.find(tensor.name);
        if (found == entries.end())
            plan.tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
        else if (found->second)
            plan.tensors.push_back({found->second->name, dtype.empty() ? found->second->dtype : dtype, found->second->shape});
    }
    return plan;
}

// Returns the bytes written.
int64_t dequantize_entry(const Context& context, const io::SafetensorsFile& file, const io::QuantizedEntry& entry, Element element,
                         io::SafetensorsWriter& writer) {
    constexpr size_t widest = 4;
    const io::MatrixShape shape = io::matrix_shape(entry.shape);
    std::vector<FileBytes> planes;
    const auto plane = [&](const io::TensorInfo* tensor) -> void* {
        if (!tensor) return nullptr;
        return planes.emplace_back(file.data(*tensor), widest).data();
    };
    lowbit_quantized_view view = LOWBIT_QUANTIZED_VIEW_INIT;
    view.format = Format(entry.format).c();
    view.rows = shape.rows;
    view.columns = shape.columns;
    view.codes = plane(entry.codes);
    view.scales = plane(entry.scales);
    view.zero_points = static_cast<uint8_t*>(plane(entry.zero_points));
    view.tensor_scale = static_cast<float*>(plane(entry.tensor_scale));

    int64_t written = 0;
    for_row_pieces(view, [&](const lowbit_quantized_view& piece, int64_t) {
        std::vector<std::byte> values(size_t(piece.rows * piece.columns * core::element_bytes(element)));
        dequantize(context, Quantized::borrow(piece), Tensor(values.data(), element, {piece.rows, piece.columns}));
        writer.append(entry.name, values);
        written += int64_t(values.size());
    });
    return written;
}

void run(const Options& options) {
    refuse_same_file(options.input, options.output);
    const io::SafetensorsFile file = io::SafetensorsFile::open(options.input);
    const std::vector<io::QuantizedEntry> entries = io::list_quantized(file, planes_of_format);
    core::require(!entries.empty(), options.input, ": holds no quantized tensors; nothing to dequantize");
    Context context = Context::cpu();
    context.set_threads(options.threads);

    const EntryOfPlane by_plane = entries_of_planes(entries);
    for (const io::QuantizedEntry& entry : entries) element_of(entry, options.dtype.empty() ? entry.dtype : options.dtype);
    remove_unfinished_files_on_signals();
    int64_t bytes = 0;
    const double seconds = time_once([&] {
        io::SafetensorsWriter writer(options.output, make_plan(file, by_plane, options.dtype));
        ProgressBar bar("dequantize", file.tensors().empty() ? 0 : int64_t(file.tensors().back().end));
        for (const io::TensorInfo& tensor : file.tensors()) {
            bar.show(int64_t(tensor.begin), tensor.name);
            const auto found = by_plane.find(tensor.name);
            if (found == by_plane.end()) {
                copy_tensor(file, tensor, writer);
            } else if (const io::QuantizedEntry* entry = found->second) {
                const Element element = element_of(*entry, options.dtype.empty() ? entry->dtype : options.dtype);
                bytes += dequantize_entry(context, file, *entry, element, writer);
            }
        }
        writer.finish();
    });
    std::cout << options.output << ": " << entries.size() << (entries.size() == 1 ? " tensor" : " tensors") << " dequantized to "
              << human_bytes(bytes) << " in " << human_seconds(seconds) << '\n';
}

}  // namespace

void add_dequantize(CLI::App& app) {
    CLI::App* command = app.add_subcommand("dequantize", "A quantized file back as plain numbers");
    const auto options = std::make_shared<Options>();
    command->add_option("IN", options->input, "The file to read")->required();
    command->add_option("OUT", options->output, "The file to write")->required();
    command->add_option("--dtype", options->dtype, "F32, F16 or BF16; otherwise what each tensor was before")
        ->check(CLI::IsMember({"F32", "F16", "BF16"}));
    command->add_option("--threads", options->threads, "0: all processors")->capture_default_str();
    command->callback([options] { run(*options); });
}

}  // namespace lowbit::tools
