#include "cuda/decode/blocks_launch.cuh"

namespace lowbit::cuda {

TilesLaunch blocks_int8_launch(Element element) { return blocks_launch<BlocksTimesInt8>(element); }

}  // namespace lowbit::cuda
