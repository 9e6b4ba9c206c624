// lowbit info: this machine, every kernel, and why one cannot run here.
#include <CLI/CLI.hpp>
#include <iostream>
#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "lowbit/lowbit.hpp"
#include "table.hpp"
#include "text.hpp"

namespace lowbit::tools {
namespace {

using nlohmann::ordered_json;

constexpr size_t label_width = 12;
constexpr size_t page_width = 110;

// "label       words words
//              words"
void print_entry(const std::string& label, const std::vector<std::string>& words) {
    std::string line = styled(label, Style::bold) + std::string(label_width - std::min(label_width, text_width(label)), ' ');
    size_t width = label_width;
    for (const std::string& word : words) {
        if (width > label_width && width + 1 + text_width(word) > page_width) {
            std::cout << line << '\n';
            line = std::string(label_width, ' ');
            width = label_width;
        }
        line += (width > label_width ? " " : "") + word;
        width += text_width(word) + (width > label_width);
    }
    std::cout << line << '\n';
}

std::string gpu_text(const ordered_json& device) {
    return device.at("name").get<std::string>() + ", compute capability " + device.at("compute_capability").get<std::string>() + ", " +
           std::to_string(device.at("multiprocessors").get<int>()) + " multiprocessors, " +
           human_bytes(device.at("memory_bytes").get<int64_t>());
}

void print_machine(const ordered_json& info) {
    const ordered_json &cpu = info.at("cpu"), &cuda = info.at("cuda");
    print_entry("lowbit", {info.at("version").get<std::string>()});
    print_entry("CPU", {cpu.at("name").get<std::string>()});
    print_entry("threads", {std::to_string(cpu.at("threads").get<int>())});
    print_entry("features", cpu.at("features").get<std::vector<std::string>>());
    for (const ordered_json& device : cuda.at("devices")) print_entry("GPU", {gpu_text(device)});
    if (cuda.at("devices").empty()) print_entry("GPU", {"none: " + cuda.at("problem").get<std::string>()});
}

// The kernels stand in the order in which they are tried.
void print_kernels(const ordered_json& kernels) {
    Table table({{"kernel", Align::left}, {"device", Align::left}, {"runs here", Align::left}, {"needs", Align::left}});
    std::string verb;
    for (const ordered_json& kernel : kernels) {
        if (kernel.at("verb") != verb) {
            verb = kernel.at("verb");
            table.section(verb);
        }
        const bool available = kernel.at("available");
        const Style style = available ? Style::plain : Style::dim;
        table.row({{kernel.at("name"), style},
                   {kernel.at("device"), style},
                   {available ? "yes" : "no: " + kernel.at("reason").get<std::string>(), available ? Style::good : Style::dim},
                   {kernel.at("needs"), style}});
    }
    table.print(std::cout);
    std::cout << "\nThe first kernel of a verb that runs here and takes the formats and shapes is chosen; LOWBIT_KERNEL=name forces one,\n"
                 "and LOWBIT_VERBOSE=1 prints each choice with its reasons.\n";
}

void run(bool as_json) {
    const auto parsed = ordered_json::parse(lowbit::info());
    if (as_json) {
        std::cout << parsed.dump(2) << '\n';
        return;
    }
    print_machine(parsed);
    std::cout << '\n';
    print_kernels(parsed.at("kernels"));
}

}  // namespace

void add_info(CLI::App& app) {
    CLI::App* command = app.add_subcommand("info", "This machine, every kernel, and why one cannot run here");
    const auto as_json = std::make_shared<bool>(false);
    command->add_flag("--json", *as_json, "Print JSON");
    command->callback([as_json] { run(*as_json); });
}

}  // namespace lowbit::tools
