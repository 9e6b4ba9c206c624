#include "reference/ggml.hpp"

#include "core/ggml_blocks.hpp"
#include "reference/ggml_simple.hpp"
#include "reference/ggml_super.hpp"

namespace lowbit::reference {

namespace {

template <typename Block>
void dequantize(const uint8_t* block, float* x) {
    for (int first = 0; first < Block::values; first += 32) Block::template decode<32>(block, first, x + first);
}

template <Element element, typename Block>
constexpr GgmlType describe(const char* name) {
    constexpr core::BlockSize size = core::ggml_block(element);
    static_assert(size.values == Block::values && size.bytes == Block::bytes);
    return {element, name, Block::values, Block::bytes, Block::quantize, dequantize<Block>};
}

constexpr GgmlType types[] = {
    describe<Element::q4_0, ggml::Q4_0>("q4_0"), describe<Element::q4_1, ggml::Q4_1>("q4_1"),
    describe<Element::q5_0, ggml::Q5_0>("q5_0"), describe<Element::q5_1, ggml::Q5_1>("q5_1"),
    describe<Element::q8_0, ggml::Q8_0>("q8_0"), describe<Element::q8_1, ggml::Q8_1>("q8_1"),
    describe<Element::q2_k, ggml::Q2_K>("q2_k"), describe<Element::q3_k, ggml::Q3_K>("q3_k"),
    describe<Element::q4_k, ggml::Q4_K>("q4_k"), describe<Element::q5_k, ggml::Q5_K>("q5_k"),
    describe<Element::q6_k, ggml::Q6_K>("q6_k"), describe<Element::iq4_nl, ggml::IQ4_NL>("iq4_nl"),
};

}  // namespace

const GgmlType* find_ggml_type(Element element) {
    for (const GgmlType& type : types) {
        if (type.element == element) return &type;
    }
    return nullptr;
}

std::span<const GgmlType> ggml_types() { return types; }

}  // namespace lowbit::reference
