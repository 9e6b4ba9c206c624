// The sizes of the GGML block types; what stands inside a block is in reference/ggml.hpp.
#pragma once
#include "core/host_device.hpp"
#include "lowbit/types.hpp"

namespace lowbit::core {

struct BlockSize {
    int values = 0;  // 0: not a GGML type
    int bytes = 0;
};

LOWBIT_HOST_DEVICE constexpr BlockSize ggml_block(Element element) {
    switch (element) {
    case Element::q4_0: return {32, 18};
    case Element::q4_1: return {32, 20};
    case Element::q5_0: return {32, 22};
    case Element::q5_1: return {32, 24};
    case Element::q8_0: return {32, 34};
    case Element::q8_1: return {32, 36};
    case Element::q2_k: return {256, 84};
    case Element::q3_k: return {256, 110};
    case Element::q4_k: return {256, 144};
    case Element::q5_k: return {256, 176};
    case Element::q6_k: return {256, 210};
    case Element::iq4_nl: return {32, 18};
    default: return {};
    }
}

}  // namespace lowbit::core
