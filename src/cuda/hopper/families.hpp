// What the Hopper main loop multiplies: families of kernels with the same operands. For the files that ask whether a problem is one of
// theirs (families.cu) and that launch it (hopper.cu).
#pragma once
#include "cuda/hopper/hopper.hpp"
#include "cuda/tensor_map.hpp"

namespace lowbit::cuda {

constexpr int64_t copy_alignment = 16;  // of every row the copy engine reads or writes

// What the weight is: rows of the tokens' own type, tiles for tokens of 16 bits or of 8, or rows of 8 bits for tokens of 16.
enum class HopperWeight { rows, tiles, byte_tiles, widened };

struct FamilyTraits {
    const char* name;
    Element element;  // of the tokens
    int bytes;
    CUtensorMapDataType map_type;
    HopperWeight weight;
    bool scales_along_k = false;  // on both sides
};

FamilyTraits traits(HopperFamily family);

// Of int4 for tokens of 8 bits: a scale for a row; else for a group.
bool has_scales_of_rows(HopperFamily family);

// Rows that the copy engine can read as they are.
struct PlainMatrix {
    const void* data = nullptr;
    int64_t pitch = 0;  // bytes
};
std::optional<PlainMatrix> as_it_is(const core::Operand& operand, int bytes);

// Groups of a k block of 64 values: 1, 2 or 4; 0: groups that do not fit into k blocks.
int groups_of_block(const core::QuantizedView& weight);

// Of a token. Values of the copy engine's type: numbers, or bytes of codes.
int64_t row_values(const FamilyTraits& family, const core::MatmulProblem& problem);
int64_t k_blocks_of(const FamilyTraits& kind, const core::MatmulProblem& problem);

}  // namespace lowbit::cuda
