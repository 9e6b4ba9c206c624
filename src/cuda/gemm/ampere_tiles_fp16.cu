#include "cuda/gemm/tiles_runner.cuh"

namespace lowbit::cuda {

AmpereRunner tiles_fp16_runner(Element element) { return tiles_runner<ptx::MmaFp16>(element); }

}  // namespace lowbit::cuda
