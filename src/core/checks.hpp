// What the checks of the verbs share: kinds of elements, names of devices, and memory that must not be written while it is read.
#pragma once
#include "core/convolution.hpp"
#include "core/problem.hpp"
#include "core/status.hpp"

namespace lowbit::core {

inline bool is_float(Element element) { return element == Element::fp32 || element == Element::fp16 || element == Element::bf16; }

inline void require_float(const char* verb, const char* argument, Element element) {
    require(is_float(element), verb, ": ", argument, " is ", element_name(element), "; use fp32, fp16 or bf16");
}

// The bytes a view reaches, for the aliasing check.
struct Extent {
    const char* name;
    uintptr_t begin = 0, end = 0;
};

inline Extent extent(const char* name, const void* data, int64_t bytes) {
    const auto begin = reinterpret_cast<uintptr_t>(data);
    return {name, begin, begin + uintptr_t(bytes)};
}

inline Extent extent(const char* name, const Tensor& tensor) {
    if (tensor.rows == 0 || tensor.columns == 0) return {name};
    const int64_t last = (tensor.rows - 1) * tensor.row_stride + (tensor.columns - 1) * tensor.column_stride;
    return extent(name, tensor.data, (last + 1) * element_bytes(tensor.element));
}

inline Extent extent(const char* name, const Images& numbers) {
    if (numbers.is_empty()) return {name};
    const int64_t last = numbers.offset(numbers.images - 1, numbers.channels - 1, numbers.height - 1, numbers.width - 1);
    return extent(name, numbers.data, (last + 1) * element_bytes(numbers.element));
}

inline void refuse_overlap(const char* verb, const Extent& written, const Extent& other) {
    const bool overlap = written.begin < written.end && other.begin < other.end && written.begin < other.end && other.begin < written.end;
    require(!overlap, verb, ": ", written.name, " overlaps ", other.name, "; the output needs memory of its own");
}

}  // namespace lowbit::core
