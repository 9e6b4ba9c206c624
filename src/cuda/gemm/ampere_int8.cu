#include "cuda/gemm/launch_ampere.cuh"

namespace lowbit::cuda {

AmpereRunner int8_runner(bool decoded, Groups groups) {
    using Mma = ptx::MmaInt8;
    if (!decoded) return runner<Mma, RowsSource, Groups::none>();
    return groups == Groups::none ? runner<Mma, DecodedSource, Groups::none>() : runner<Mma, DecodedSource, Groups::rows_and_tokens>();
}

}  // namespace lowbit::cuda
