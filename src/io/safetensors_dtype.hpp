// The element types of the safetensors format, by the names they have in a file.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lowbit/types.hpp"

namespace lowbit::io {

// Bits of one element, as in "BF16" -> 16; 0 for a name the format does not have.
int dtype_bits(std::string_view dtype);

// Every dtype in one line, for error texts.
std::string dtype_list();

// "[2, 3]"; a long shape is cut.
std::string shape_text(const std::vector<int64_t>& shape);

// Bytes of a tensor. An unknown dtype, a negative size, a product that passes 64 bits and a number of bits that is not whole bytes throw
// `status` with a text that starts with `subject`.
uint64_t tensor_bytes(std::string_view dtype, const std::vector<int64_t>& shape, Status status, const std::string& subject);

}  // namespace lowbit::io
