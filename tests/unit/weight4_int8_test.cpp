// 4-bit weights times tokens in blocks of int8, in every instruction set of this CPU, against sums in double: groups within a step and of
// several steps, ends of rows that fill no step, zero points.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "cpu/features.hpp"
#include "cpu/isa.hpp"
#include "cpu/prepare.hpp"

namespace lowbit::cpu {
namespace {

struct Sizes {
    int64_t rows, columns, tokens, group;
    bool has_zeros;
};

void expect_exact_dots(const Isa& isa, const Sizes& sizes) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal;
    const int64_t groups = (sizes.columns + sizes.group - 1) / sizes.group, blocks = sizes.columns / 32;
    std::vector<uint8_t> codes(size_t(sizes.rows * sizes.columns / 2));
    std::vector<float> scales(size_t(sizes.rows * groups)), zeros(scales.size());
    std::vector<int8_t> token_codes(size_t(sizes.tokens * sizes.columns));
    std::vector<float> token_scales(size_t(sizes.tokens * blocks));
    for (uint8_t& code : codes) code = uint8_t(random());
    for (float& scale : scales) scale = normal(random);
    for (float& zero : zeros) zero = float(random() % 16);
    for (int8_t& code : token_codes) code = int8_t(random());
    for (float& scale : token_scales) scale = normal(random);
    Weight4 weight;
    weight.codes = codes.data();
    weight.row_stride = sizes.columns / 2;
    weight.rows = sizes.rows;
    weight.columns = sizes.columns;
    weight.group = sizes.group;
    weight.scales = scales.data();
    weight.zeros = sizes.has_zeros ? zeros.data() : nullptr;
    weight.scale_stride = groups;
    const BlockTokens x{token_codes.data(), token_scales.data(), nullptr, sizes.tokens, sizes.columns};
    std::vector<float> out(size_t(sizes.rows * sizes.tokens));
    const BlockLoop<BlockTokens, Weight4> loop = isa.weight4_int8(sizes.has_zeros);
    core::Context context;
    context.set_threads(2);
    const core::Buffer packed = pack_tokens(context, loop, x, sizes.columns);
    loop.multiply(weight, reinterpret_cast<const uint8_t*>(packed.data()), sizes.tokens, out.data(), sizes.tokens);
    for (int64_t row = 0; row < sizes.rows; ++row)
        for (int64_t token = 0; token < sizes.tokens; ++token) {
            double sum = 0, magnitude = 0;
            for (int64_t k = 0; k < sizes.columns; ++k) {
                const int nibble = codes[size_t((row * sizes.columns + k) / 2)] >> (k % 2 ? 4 : 0) & 15;
                const size_t group = size_t(row * groups + k / sizes.group);
                const double value = sizes.has_zeros ? nibble - double(zeros[group]) : (nibble ^ 8) - 8;
                const double term = value * scales[group] * token_codes[size_t(token * sizes.columns + k)] *
                                    double(token_scales[size_t(token * blocks + k / 32)]);
                sum += term;
                magnitude += std::fabs(term);
            }
            ASSERT_NEAR(out[size_t(row * sizes.tokens + token)], sum, 8 * 0x1p-24 * magnitude)
                << isa.name << ", " << sizes.rows << " x " << sizes.columns << ", groups of " << sizes.group << ", row " << row
                << ", token " << token;
        }
}

TEST(Weight4Int8, AgreesWithSums) {
    std::vector<const Isa*> isas{&portable_isa()};
#ifdef __x86_64__
    if (features().avx2) isas.push_back(&avx2_isa());
    if (features().avx512) isas.push_back(&avx512_isa());
#endif
    for (const Isa* isa : isas)
        for (const bool has_zeros : {false, true})
            for (const int64_t group : {32, 64, 128, 256, 4096})
                for (const Sizes& sizes : {Sizes{1, 32, 1, group, has_zeros}, Sizes{9, 96, 2, group, has_zeros},
                                           Sizes{13, 160, 7, group, has_zeros}, Sizes{8, 1312, 4, group, has_zeros}})
                    expect_exact_dots(*isa, sizes);
}

}  // namespace
}  // namespace lowbit::cpu
