#include "cuda/decode/rows_launch.cuh"

namespace lowbit::cuda {

RowsLaunch rows_bf16_launch(Element weight, int segments) { return rows_launch<ptx::MmaBf16>(weight, Element::bf16, segments); }

}  // namespace lowbit::cuda
