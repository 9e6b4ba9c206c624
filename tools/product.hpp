// A product of one weight and some tokens, timed with weights that no cache holds: what demo and bench measure.
#pragma once
#include <string>

#include "lowbit/lowbit.hpp"
#include "matrix.hpp"
#include "ring.hpp"
#include "timing.hpp"

namespace lowbit::tools {

// fp32, fp16 and bf16: numbers, not codes; a product takes them as a plain tensor.
bool is_plain(const Format& format);
// The codes of a plain format as the tensor they are.
Tensor as_tensor(const Quantized& quantized);

// Of the weight itself, in whichever form a product reads it.
void fill_ring(Ring& ring, const Context& context, const Quantized& weight);

struct TimedProduct {
    std::string kernel;
    Timing timing;
};

// Tokens that are quantized: before the time is taken, or inside each product.
enum class TokensQuantized { before, on_the_way };

// y = tokens . weight^T for the weights of the ring in turn. x_format: "" or the format that the tokens are quantized to.
TimedProduct time_product(const Context& context, const Matrix& tokens, Ring& ring, Matrix& y, const std::string& x_format,
                          TokensQuantized when, const TimingOptions& options);

// "chosen: cpu_avx512_int8; skipped: ..." -> "cpu_avx512_int8"
std::string chosen_kernel(const std::string& explanation);

}  // namespace lowbit::tools
