// The GGML block types: runs of 32 or 256 values stored as one block of bytes that carries its own scales. One block at a time, scalar,
// to the bit as the files of llama.cpp hold them: this is what every faster path is compared with.
#pragma once
#include <cstdint>
#include <span>

#include "lowbit/types.hpp"

namespace lowbit::reference {

struct GgmlType {
    Element element;
    const char* name;
    int values;  // per block: 32 or 256
    int bytes;   // per block; a block may lie at any address
    // Any floats are safe. A NaN or an infinity in a block leaves that block's codes without meaning, never the program.
    void (*quantize)(const float* x, uint8_t* block);
    void (*dequantize)(const uint8_t* block, float* x);
};

// nullptr for an element that is not a GGML block type.
const GgmlType* find_ggml_type(Element element);

std::span<const GgmlType> ggml_types();

}  // namespace lowbit::reference
