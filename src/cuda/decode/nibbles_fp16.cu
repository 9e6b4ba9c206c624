#include "cuda/decode/nibbles_launch.cuh"

namespace lowbit::cuda {

TilesLaunch nibbles_fp16_launch(const core::Format& format, int segments) { return nibbles_launch<ptx::MmaFp16>(format, segments); }

}  // namespace lowbit::cuda
