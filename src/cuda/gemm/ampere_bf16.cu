#include "cuda/gemm/launch_ampere.cuh"

namespace lowbit::cuda {

AmpereRunner bf16_runner(bool decoded, Groups groups) {
    using Mma = ptx::MmaBf16;
    if (!decoded) return runner<Mma, RowsSource, Groups::none>();
    // Tokens in bf16 are plain numbers: their scales never change along K.
    return groups == Groups::none ? runner<Mma, DecodedSource, Groups::none>() : runner<Mma, DecodedSource, Groups::rows>();
}

bool has_bf16_product(int device) { return code_version<AmpereFamily<ptx::MmaBf16, RowsSource, Groups::none>::Few>(device) >= 80; }

}  // namespace lowbit::cuda
