#include "cuda/gemm/tiles_runner.cuh"

namespace lowbit::cuda {

AmpereRunner tiles_bf16_runner(Element element) { return tiles_runner<ptx::MmaBf16>(element); }

}  // namespace lowbit::cuda
