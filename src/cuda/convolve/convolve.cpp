#include "cuda/convolve/convolve.hpp"

namespace lowbit::cuda {

void register_convolution_kernels(core::Registry& registry) {
    add_sign_bits(registry);
    add_hopper_conv(registry);
    add_tensor_conv(registry);
    add_any_conv(registry);
}

}  // namespace lowbit::cuda
