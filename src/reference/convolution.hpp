#pragma once
#include "core/convolution.hpp"

namespace lowbit::reference {

void sign_bits(const core::SignBitsProblem& problem);
void binary_conv2d(const core::BinaryConvProblem& problem);

}  // namespace lowbit::reference
