#pragma once
#include "api/handles.hpp"
#include "core/problem.hpp"

namespace lowbit::api {

// A plain matrix of int8 or packed int4 codes without a scale, as an operand.
core::Operand unscaled_codes(Element element, const void* codes, int64_t rows, int64_t columns, Device device, int device_index);

}  // namespace lowbit::api
