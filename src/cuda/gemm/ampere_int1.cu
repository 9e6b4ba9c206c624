#include "cuda/gemm/launch_ampere.cuh"

namespace lowbit::cuda {

AmpereRunner int1_runner() { return runner<ptx::MmaInt1, RowsSource, false>(); }

}  // namespace lowbit::cuda
