#include "cuda/decode/rows_launch.cuh"

namespace lowbit::cuda {

RowsLaunch rows_int8_launch(Element weight, int segments) {
    if (weight != Element::int8) return nullptr;
    return segments == 0   ? launch_decode_source<Int8Rows, 0, DecodeScales::none>
           : segments == 1 ? launch_decode_source<Int8Rows, 1, DecodeScales::rows>
                           : nullptr;
}

RowsLaunch rows_fp8_launch(Element weight, int segments) {
    if (segments != 0) return nullptr;
    if (weight == Element::fp8_e4m3)
        return launch_decode_source<WideningRows<ptx::MmaFp16, Element::fp8_e4m3, true>, 0, DecodeScales::none>;
    return weight == Element::fp8_e5m2 ? launch_decode_source<WideningRows<ptx::MmaFp16, Element::fp8_e5m2, true>, 0, DecodeScales::none>
                                       : nullptr;
}

}  // namespace lowbit::cuda
