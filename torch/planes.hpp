// Quantized matrices as torch tensors: up to four planes, in the layout of docs/formats.md.
#pragma once
#include <lowbit/lowbit.h>

#include <memory>
#include <string>

#include "tensors.hpp"

namespace lowbit_torch {

struct Planes {
    Tensor codes{nullptr};         // [..., row bytes]
    std::optional<Tensor> scales;  // absent, or empty, where the format has none
    std::optional<Tensor> zeros;
    std::optional<Tensor> tensor_scale;

    static Planes take(Stack& stack);
    void give(Stack& stack) const;
};

lowbit_format parse_format(const std::string& text);
lowbit_format_sizes measure(const lowbit_format& format, int64_t rows, int64_t columns);

// New planes for rows x columns; those that the format has not are empty tensors.
Planes allocate_planes(const lowbit_format& format, int64_t rows, int64_t columns, const Place& place);

// A view of planes that a caller brought; copies what does not lie in one piece, so `planes` must live as long as the view. Sizes and types
// that do not fit the format are refused.
lowbit_quantized_view view_planes(const char* verb, const char* argument, Planes& planes, const lowbit_format& format, int64_t columns);

struct DestroyQuantized {
    void operator()(lowbit_quantized* handle) const { lowbit_quantized_destroy(handle); }
};
struct DestroyPacked {
    void operator()(lowbit_packed* handle) const { lowbit_packed_destroy(handle); }
};
using QuantizedPointer = std::unique_ptr<lowbit_quantized, DestroyQuantized>;
using PackedPointer = std::unique_ptr<lowbit_packed, DestroyPacked>;

QuantizedPointer borrow(const lowbit_quantized_view& view);
// Over the bytes of a packed weight, wherever they lie.
PackedPointer borrow_packed(const char* verb, const Tensor& bytes, const lowbit_format& format, int64_t rows, int64_t columns,
                            int64_t layout);

}  // namespace lowbit_torch
