// Torch tensors as the views of lowbit.h.
#pragma once
#include <lowbit/lowbit.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "stack.hpp"

namespace lowbit_torch {

// A wrong argument: ValueError in Python.
[[noreturn]] void refuse(const std::string& text);
// Turns a status of lowbit into an exception that carries its text: ValueError for a wrong argument, else RuntimeError.
void check(lowbit_status status);

struct Place {
    lowbit_device device = LOWBIT_CPU;
    int32_t index = 0;
    bool operator==(const Place&) const = default;
};
// Throws for devices that are neither CPU nor CUDA.
Place place_of(const Tensor& tensor);
// All tensors of a call lie on one device; the error names both.
void require_place(const char* verb, const char* argument, const Tensor& tensor, const Place& place, const char* place_argument);

int32_t dtype_of(const Tensor& tensor);
lowbit_element element_of_dtype(const char* verb, const char* argument, int32_t dtype);
// The torch type in which a plane of this element is kept.
int32_t dtype_of_codes(lowbit_element element);
int32_t dtype_of_scales(lowbit_element element);

Tensor allocate(const std::vector<int64_t>& sizes, int32_t dtype, const Place& place);
Tensor allocate(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, int32_t dtype, const Place& place);

// A tensor of any rank >= 1 as a matrix: the last size is its columns, all others multiply to its rows. Copied when its strides have no
// such view; `held` keeps the memory.
struct Matrix {
    Tensor held{nullptr};
    lowbit_tensor view = LOWBIT_TENSOR_INIT;
};
Matrix as_matrix(const char* verb, const char* argument, const Tensor& tensor);
lowbit_tensor as_vector(const char* verb, const char* argument, const Tensor& tensor);

// The sizes of `tensor` with the last one replaced.
std::vector<int64_t> with_last_size(const Tensor& tensor, int64_t size);

}  // namespace lowbit_torch
