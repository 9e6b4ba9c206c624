#include "cuda/gemm/launch_ampere.cuh"

namespace lowbit::cuda {

AmpereRunner fp8_runner(Groups groups) {
    using Mma = ptx::MmaFp8;
    return groups == Groups::none ? runner<Mma, RowsSource, Groups::none>() : runner<Mma, RowsSource, Groups::rows_and_tokens>();
}

bool has_fp8_product(int device) { return code_version<AmpereFamily<ptx::MmaFp8, RowsSource, Groups::none>::Few>(device) >= 89; }

}  // namespace lowbit::cuda
