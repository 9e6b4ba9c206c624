#pragma once
#include "core/problem.hpp"

namespace lowbit::api {

// The quantize verb for the library's own calls: dynamic scales, into planes that exist. for_product: as in the problem.
void quantize_tensor(const core::Context& context, const core::Tensor& x, const core::QuantizedView& result, core::Scratch& scratch,
                     bool for_product);

}  // namespace lowbit::api
