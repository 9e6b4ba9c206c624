// lowbit inspect: what is in a safetensors file.
#include <CLI/CLI.hpp>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint.hpp"
#include "commands.hpp"
#include "table.hpp"
#include "text.hpp"

namespace lowbit::tools {
namespace {

using nlohmann::ordered_json;

// A tensor as its user thinks of it: the planes of a quantized one are one item.
struct Item {
    std::string name, dtype, format;  // format: "" where it is not quantized
    std::vector<int64_t> shape;
    int64_t bytes = 0;

    int64_t values() const {
        int64_t count = 1;
        for (const int64_t size : shape) count *= size;
        return count;
    }
};

struct Contents {
    std::vector<Item> items;  // in the order of their bytes
    io::Metadata metadata;    // without what describes the quantized tensors
    int64_t bytes = 0;        // of all tensors
    int64_t quantized = 0, quantized_values = 0, quantized_bytes = 0;
    int64_t values = 0;
};

int64_t bytes_of(const io::TensorInfo& tensor) { return int64_t(tensor.end - tensor.begin); }

Contents read(const io::SafetensorsFile& file) {
    Contents contents;
    const std::vector<io::QuantizedEntry> entries = io::list_quantized(file, planes_of_format);
    std::map<std::string, const io::QuantizedEntry*> of_plane;
    for (const io::QuantizedEntry& entry : entries)
        for (const io::TensorInfo* plane : {entry.codes, entry.scales, entry.zero_points, entry.tensor_scale})
            if (plane) of_plane[plane->name] = &entry;

    std::map<const io::QuantizedEntry*, size_t> place;
    for (const io::TensorInfo& tensor : file.tensors()) {
        contents.bytes += bytes_of(tensor);
        const auto found = of_plane.find(tensor.name);
        if (found == of_plane.end()) {
            contents.items.push_back({tensor.name, tensor.dtype, "", tensor.shape, bytes_of(tensor)});
            continue;
        }
        const io::QuantizedEntry& entry = *found->second;
        const auto [at, is_new] = place.emplace(&entry, contents.items.size());
        if (is_new) contents.items.push_back({entry.name, entry.dtype, entry.format, entry.shape, 0});
        contents.items[at->second].bytes += bytes_of(tensor);
    }
    for (const auto& [key, value] : file.metadata())
        if (key != "lowbit" && !key.starts_with("lowbit.")) contents.metadata[key] = value;
    for (const Item& item : contents.items) {
        contents.values += item.values();
        if (item.format.empty()) continue;
        contents.quantized += 1;
        contents.quantized_values += item.values();
        contents.quantized_bytes += item.bytes;
    }
    return contents;
}

double bits_per_weight(int64_t bytes, int64_t values) { return values == 0 ? 0 : 8 * double(bytes) / double(values); }

void print_json(const Contents& contents, const std::string& path) {
    ordered_json tensors = ordered_json::array();
    for (const Item& item : contents.items) {
        ordered_json tensor{{"name", item.name}, {"dtype", item.dtype}, {"shape", item.shape}, {"bytes", item.bytes}};
        if (!item.format.empty()) tensor["format"] = item.format;
        tensors.push_back(std::move(tensor));
    }
    const ordered_json all{{"file", path},
                           {"metadata", contents.metadata},
                           {"tensors", tensors},
                           {"total",
                            {{"tensors", contents.items.size()},
                             {"values", contents.values},
                             {"bytes", contents.bytes},
                             {"quantized_tensors", contents.quantized},
                             {"quantized_values", contents.quantized_values},
                             {"quantized_bytes", contents.quantized_bytes}}}};
    std::cout << all.dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
}

void print_metadata(const io::Metadata& metadata) {
    constexpr size_t value_width = 90;
    if (metadata.empty()) return;
    Table table({{"metadata", Align::left}, {"", Align::left}});
    for (const auto& [key, value] : metadata) table.row({shortened(key, 40), shortened(value, value_width)});
    table.print(std::cout);
    std::cout << '\n';
}

void print_table(const Contents& contents) {
    constexpr size_t name_width = 60;
    print_metadata(contents.metadata);
    Table table({{"tensor", Align::left}, {"stored as", Align::left}, {"was", Align::left}, {"shape"}, {"size"}, {"bits per\nweight"}});
    for (const Item& item : contents.items) {
        const bool is_quantized = !item.format.empty();
        table.row({shortened(item.name, name_width), is_quantized ? item.format : item.dtype, is_quantized ? item.dtype : "",
                   cross(item.shape), human_bytes(item.bytes), fixed(bits_per_weight(item.bytes, item.values()), 2)});
    }
    table.rule();
    table.row({std::to_string(contents.items.size()) + (contents.items.size() == 1 ? " tensor" : " tensors"), "", "",
               human_count(contents.values), human_bytes(contents.bytes), fixed(bits_per_weight(contents.bytes, contents.values), 2)});
    if (contents.quantized > 0)
        table.row({std::to_string(contents.quantized) + " of them quantized", "", "", human_count(contents.quantized_values),
                   human_bytes(contents.quantized_bytes), fixed(bits_per_weight(contents.quantized_bytes, contents.quantized_values), 2)});
    table.print(std::cout);
}

void run(const std::string& path, bool as_json) {
    const Contents contents = read(io::SafetensorsFile::open(path));
    as_json ? print_json(contents, path) : print_table(contents);
}

}  // namespace

void add_inspect(CLI::App& app) {
    struct Options {
        std::string path;
        bool as_json = false;
    };
    CLI::App* command = app.add_subcommand("inspect", "What is in a safetensors file");
    const auto options = std::make_shared<Options>();
    command->add_option("FILE", options->path, "The file to read")->required();
    command->add_flag("--json", options->as_json, "Print JSON");
    command->callback([options] { run(options->path, options->as_json); });
}

}  // namespace lowbit::tools
