#include "io/safetensors_dtype.hpp"

#include <algorithm>
#include <iterator>

#include "core/status.hpp"
#include "io/json.hpp"

namespace lowbit::io {
namespace {

struct Dtype {
    std::string_view name;
    int bits;
};

constexpr Dtype dtypes[] = {
    {"BOOL", 8},    {"F4", 4},          {"F6_E2M3", 6},     {"F6_E3M2", 6}, {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},
    {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16}, {"F16", 16}, {"BF16", 16},   {"I32", 32},
    {"U32", 32},    {"F32", 32},        {"C64", 64},        {"F64", 64},    {"I64", 64}, {"U64", 64},
};

}  // namespace

int dtype_bits(std::string_view dtype) {
    const auto found = std::ranges::find(dtypes, dtype, &Dtype::name);
    return found == std::end(dtypes) ? 0 : found->bits;
}

std::string dtype_list() {
    std::string list;
    for (const Dtype& dtype : dtypes) {
        if (!list.empty()) list += ", ";
        list += dtype.name;
    }
    return list;
}

std::string shape_text(const std::vector<int64_t>& shape) {
    constexpr size_t longest = 16;
    std::string text = "[";
    for (size_t axis = 0; axis < std::min(shape.size(), longest); ++axis) {
        if (axis > 0) text += ", ";
        text += std::to_string(shape[axis]);
    }
    return text + (shape.size() > longest ? ", ...]" : "]");
}

uint64_t tensor_bytes(std::string_view dtype, const std::vector<int64_t>& shape, Status status, const std::string& subject) {
    const int bits = dtype_bits(dtype);
    if (bits == 0) core::fail(status, subject, ": unknown dtype ", printable(dtype), "; use one of ", dtype_list());
    // In bits rather than in bytes, for the types narrower than a byte. The order of the factors is that of the shape, so that
    // [2^63, 4, 0] overflows and [0, 2^63, 4] does not: the PyPI package draws the same line.
    uint64_t total = 1;
    bool overflow = false;
    for (const int64_t size : shape) {
        if (size < 0) core::fail(status, subject, ": shape ", shape_text(shape), " has a negative size");
        overflow = overflow || __builtin_mul_overflow(total, uint64_t(size), &total);
    }
    overflow = overflow || __builtin_mul_overflow(total, uint64_t(bits), &total);
    if (overflow) core::fail(status, subject, ": the bits of ", dtype, " ", shape_text(shape), " cannot be counted in 64 bits");
    if (total % 8 != 0)
        core::fail(status, subject, ": ", dtype, " ", shape_text(shape), " takes ", total, " bits, which is not a whole number of bytes");
    return total / 8;
}

}  // namespace lowbit::io
