#include "cuda/gemm/launch_ampere.cuh"

namespace lowbit::cuda {

AmpereRunner fp16_runner(bool decoded, Groups groups) {
    using Mma = ptx::MmaFp16;
    if (!decoded) return runner<Mma, RowsSource, Groups::none>();
    return groups == Groups::none ? runner<Mma, DecodedSource, Groups::none>() : runner<Mma, DecodedSource, Groups::rows_and_tokens>();
}

}  // namespace lowbit::cuda
