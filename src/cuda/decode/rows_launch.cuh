// Which instantiation takes a weight of plain rows. Included by the files that instantiate it, one per type of tokens.
#pragma once
#include "cuda/decode/byte_rows.cuh"
#include "cuda/decode/launch.cuh"

namespace lowbit::cuda {

using RowsLaunch = void (*)(DecodeArgs, const ByteRowsArgs&, int64_t columns, const core::Context&);

// Segments: groups of 128 values that have scales; 0: the scale is the epilogue's. Null: no kernel for these. (Smaller groups do not lie
// together in the order in which K is taken.)
template <class Source>
RowsLaunch rows_launch_of(int segments) {
    switch (segments) {
    case 0: return launch_decode_source<Source, 0, DecodeScales::none>;
    case 1: return launch_decode_source<Source, 1, DecodeScales::rows>;
    default: return nullptr;
    }
}

template <class Mma>
RowsLaunch rows_launch(Element weight, Element number, int segments) {
    if (weight == number) return segments == 0 ? launch_decode_source<NumberRows<Mma>, 0, DecodeScales::none> : nullptr;
    switch (weight) {
    case Element::int8: return rows_launch_of<WideningRows<Mma, Element::int8, false>>(segments);
    case Element::fp8_e4m3: return rows_launch_of<WideningRows<Mma, Element::fp8_e4m3, false>>(segments);
    case Element::fp8_e5m2: return rows_launch_of<WideningRows<Mma, Element::fp8_e5m2, false>>(segments);
    default: return nullptr;
    }
}

RowsLaunch rows_bf16_launch(Element weight, int segments);
RowsLaunch rows_fp16_launch(Element weight, int segments);
RowsLaunch rows_int8_launch(Element weight, int segments);  // x int8
RowsLaunch rows_fp8_launch(Element weight, int segments);   // x fp8_e4m3

}  // namespace lowbit::cuda
