#include "cuda/gemm/launch_ampere.cuh"

namespace lowbit::cuda {

AmpereRunner fp16_runner(bool decoded, bool grouped) {
    using Mma = ptx::MmaFp16;
    if (!decoded) return runner<Mma, RowsSource, false>();
    return grouped ? runner<Mma, DecodedSource, true>() : runner<Mma, DecodedSource, false>();
}

}  // namespace lowbit::cuda
