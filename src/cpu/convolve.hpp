// The drivers of binary convolutions, and of the signs that they are made of.
#pragma once
#include <string>

#include "core/convolution.hpp"
#include "cpu/isa.hpp"

namespace lowbit::cpu {

void run_sign_bits(const core::SignBitsProblem& problem);

// A convolution as a product of bits: patches of the images, which are gathered in bands of the result, with the rows of the weight.
std::string supports_binary_conv(const core::BinaryConvProblem& problem);
void run_binary_conv(const Isa& isa, const core::BinaryConvProblem& problem);

// The same with so many bytes for the patches of a band; one pixel of the result is the least.
constexpr int64_t band_bytes = 4 << 20;
void run_binary_conv(const Isa& isa, const core::BinaryConvProblem& problem, int64_t patches_bytes);

}  // namespace lowbit::cpu
