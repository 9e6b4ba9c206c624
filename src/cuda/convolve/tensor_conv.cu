#include "cuda/convolve/launch_conv.cuh"

namespace lowbit::cuda {

void add_tensor_conv(core::Registry& registry) {
    registry.binary_conv.add(tensor_conv_kernel<ConvMma>("cuda_tensor_conv", "any CUDA device"));
}

}  // namespace lowbit::cuda
