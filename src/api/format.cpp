#include "api/handles.hpp"

using namespace lowbit;
using namespace lowbit::api;

lowbit_status lowbit_format_parse(const char* text, lowbit_format* format) {
    return guard([&] {
        require_pointer("format_parse", "text", text);
        require_pointer("format_parse", "format", format);
        *format = from_format(core::Format::parse(text));
    });
}

lowbit_status lowbit_format_print(const lowbit_format* format, char* text, size_t capacity) {
    return guard([&] {
        const std::string name = to_format(*require_pointer("format_print", "format", format)).print();
        require_pointer("format_print", "text", text);
        core::require(name.size() < capacity, "format_print: capacity = ", capacity, ", but \"", name, "\" takes ", name.size() + 1);
        std::memcpy(text, name.c_str(), name.size() + 1);
    });
}

lowbit_status lowbit_format_measure(const lowbit_format* format, int64_t rows, int64_t columns, lowbit_format_sizes* sizes) {
    return guard([&] {
        constexpr const char* verb = "format_measure";
        const core::Format f = to_format(*require_pointer(verb, "format", format));
        require_pointer(verb, "sizes", sizes);
        core::require(sizes->size == sizeof(lowbit_format_sizes), verb, ": sizes.size = ", sizes->size,
                      "; start from LOWBIT_FORMAT_SIZES_INIT");
        const core::PlaneSizes s = f.measure(rows, columns);
        *sizes = {sizeof(lowbit_format_sizes),
                  f.bits_per_weight(rows, columns),
                  s.row_bytes,
                  s.code_bytes,
                  s.scale_rows,
                  s.scale_columns,
                  s.scale_bytes,
                  s.zero_point_bytes,
                  s.tensor_scale_bytes,
                  s.total()};
    });
}

lowbit_tensor lowbit_matrix(void* data, lowbit_element element, int64_t rows, int64_t columns) {
    return {sizeof(lowbit_tensor), data, element, 2, {rows, columns}, {columns, 1}, LOWBIT_CPU, 0};
}

lowbit_tensor lowbit_vector(void* data, lowbit_element element, int64_t length) {
    return {sizeof(lowbit_tensor), data, element, 1, {length, 0}, {1, 0}, LOWBIT_CPU, 0};
}
