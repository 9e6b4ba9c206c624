#include "cuda/matmul/matmul.hpp"

namespace lowbit::cuda {

void register_matmul_kernels(core::Registry&) {}

}  // namespace lowbit::cuda
