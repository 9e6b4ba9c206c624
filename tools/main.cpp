// lowbit: the command line program.
#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>
#include <new>

#include "commands.hpp"
#include "lowbit/lowbit.h"

namespace {

int report(const char* text) {
    std::cout.flush();
    std::cerr << "lowbit: " << text << '\n';
    return 1;
}

int run(int argc, char** argv) {
    CLI::App app{"Matrices in 1 to 16 bits, and their products.", "lowbit"};
    app.set_version_flag("--version", std::string("lowbit ") + lowbit_version());
    app.require_subcommand(1);
    lowbit::tools::add_demo(app);
    lowbit::tools::add_info(app);
    lowbit::tools::add_formats(app);
    lowbit::tools::add_quantize(app);
    lowbit::tools::add_dequantize(app);
    lowbit::tools::add_inspect(app);
    lowbit::tools::add_bench(app);
    lowbit::tools::add_verify(app);
    if (argc == 1) {
        std::cout << app.help();
        return 0;
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return app.exit(error);
    }
    std::cout.flush();
    return std::cout ? 0 : report("the standard output could not be written");
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return run(argc, argv);
    } catch (const std::bad_alloc&) {
        return report("out of memory");
    } catch (const std::exception& error) {
        return report(error.what());
    }
}
