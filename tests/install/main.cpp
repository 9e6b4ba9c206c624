#include <lowbit/lowbit.h>

#include <iostream>
#include <lowbit/lowbit.hpp>

int main() {
    lowbit_format format;
    if (lowbit_format_parse("int4:g128", &format) != LOWBIT_OK) {
        std::cerr << lowbit_last_error() << '\n';
        return 1;
    }
    std::cout << "lowbit " << lowbit_version() << ": groups of " << format.group_columns << '\n';
    return format.group_columns == 128 ? 0 : 1;
}
