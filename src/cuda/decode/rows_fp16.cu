#include "cuda/decode/rows_launch.cuh"

namespace lowbit::cuda {

RowsLaunch rows_fp16_launch(Element weight, int segments) { return rows_launch<ptx::MmaFp16>(weight, Element::fp16, segments); }

}  // namespace lowbit::cuda
