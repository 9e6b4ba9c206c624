#include "cuda/decode/blocks_launch.cuh"

namespace lowbit::cuda {

template <Element E>
using BlocksTimesFp16 = BlocksTimesNumbers<ptx::MmaFp16, E>;

TilesLaunch blocks_fp16_launch(Element element) { return blocks_launch<BlocksTimesFp16>(element); }

}  // namespace lowbit::cuda
