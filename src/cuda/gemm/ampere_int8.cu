#include "cuda/gemm/launch_ampere.cuh"

namespace lowbit::cuda {

AmpereRunner int8_runner(bool decoded, bool grouped) {
    using Mma = ptx::MmaInt8;
    if (!decoded) return runner<Mma, RowsSource, false>();
    return grouped ? runner<Mma, DecodedSource, true>() : runner<Mma, DecodedSource, false>();
}

}  // namespace lowbit::cuda
