#include "cuda/decode/blocks_launch.cuh"

namespace lowbit::cuda {

template <Element E>
using BlocksTimesBf16 = BlocksTimesNumbers<ptx::MmaBf16, E>;

TilesLaunch blocks_bf16_launch(Element element) { return blocks_launch<BlocksTimesBf16>(element); }

}  // namespace lowbit::cuda
