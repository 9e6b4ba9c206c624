// Some rows of a matrix, as a view of their own.
#pragma once
#include "core/tensor.hpp"

namespace lowbit::core {

Tensor some_rows(const Tensor& matrix, int64_t first, int64_t count);

// In the plain layout; `first` is the first row of a block, where rows share scales.
QuantizedView some_rows(const QuantizedView& matrix, int64_t first, int64_t count);

}  // namespace lowbit::core
