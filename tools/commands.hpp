// The subcommands of the program. Each file adds its own, with its options and what it does.
#pragma once

namespace CLI {
class App;
}

namespace lowbit::tools {

void add_info(CLI::App& app);
void add_formats(CLI::App& app);
void add_demo(CLI::App& app);
void add_bench(CLI::App& app);
void add_verify(CLI::App& app);
void add_quantize(CLI::App& app);
void add_dequantize(CLI::App& app);
void add_inspect(CLI::App& app);

}  // namespace lowbit::tools
