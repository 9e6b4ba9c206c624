// Images to test on.
#pragma once
#include "verify/verify.hpp"

namespace lowbit::verify {

// Numbers of these strides, without memory.
core::Images images_of(Element element, const std::array<int64_t, 4>& shape, Layout layout);
// From the first number to behind the last.
int64_t memory_bytes(const core::Images& images);

// It, with numbers in the order [image][channel][row][column], and NaN between them, whose bits are those of a sign.
std::vector<uint8_t> memory_of(const core::Images& images, const std::vector<float>& values);

// Numbers whose signs are not as plain as they look among ordinary ones.
std::vector<float> signed_numbers(int64_t count, uint64_t seed);

}  // namespace lowbit::verify
