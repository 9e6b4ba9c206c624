// The 4-bit weights in bf16 tiles against the AVX-512 loop: sizes at the edges of tiles and batches, zero points, and tokens that three
// bf16 numbers cannot hold, which have to take the other way.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "cpu/features.hpp"
#include "cpu/isa.hpp"

namespace lowbit::cpu {
namespace {

#ifdef __x86_64__

struct Sizes {
    int64_t rows, columns, tokens, group;
    bool has_zeros;
};

struct Operands {
    std::vector<uint8_t> codes;
    std::vector<float> scales, zeros, tokens, values;
    Weight4 weight;
    FloatTokens x;

    explicit Operands(const Sizes& sizes) {
        std::mt19937 random(7);
        std::normal_distribution<float> normal;
        const int64_t bytes = (sizes.columns + 1) / 2, groups = (sizes.columns + sizes.group - 1) / sizes.group;
        for (int64_t i = 0; i < sizes.rows * bytes; ++i) codes.push_back(uint8_t(random()));
        for (int64_t i = 0; i < sizes.rows * groups; ++i) scales.push_back(normal(random));
        if (sizes.has_zeros)
            for (size_t i = 0; i < scales.size(); ++i) zeros.push_back(float(random() % 256));
        for (int i = 0; i < 16; ++i) values.push_back(float(i - 8));
        const int64_t stride = float_row_stride(sizes.columns);
        tokens.resize(size_t(sizes.tokens * stride));
        for (int64_t t = 0; t < sizes.tokens; ++t)
            for (int64_t i = 0; i < sizes.columns; ++i) tokens[size_t(t * stride + i)] = normal(random);
        weight.codes = codes.data();
        weight.row_stride = bytes;
        weight.rows = sizes.rows;
        weight.columns = sizes.columns;
        weight.group = sizes.group;
        weight.scales = scales.data();
        weight.zeros = zeros.empty() ? nullptr : zeros.data();
        weight.scale_stride = groups;
        weight.values = values.data();
        x = {tokens.data(), stride, sizes.tokens};
    }

    std::vector<float> product(const Isa& isa) const {
        std::vector<float> out(size_t(weight.rows * x.tokens));
        std::vector<uint8_t> packed(size_t(isa.packed4_bytes ? isa.packed4_bytes(weight, x) : 0));
        FloatTokens prepared = x;
        constexpr int64_t parts = 3;
        for (int64_t part = 0; !packed.empty() && part < parts; ++part) isa.pack4(x, weight.columns, part, parts, packed.data());
        if (!packed.empty()) prepared.packed = packed.data();
        isa.weight4(weight, prepared, out.data(), x.tokens);
        return out;
    }

    // The sum of |x w| is what an error is measured by.
    double magnitude(int64_t row, int64_t token) const {
        double largest_token = 0, largest_scale = 0;
        for (int64_t i = 0; i < weight.columns; ++i) largest_token += std::fabs(x.values[token * x.stride + i]);
        for (int64_t i = 0; i < weight.scale_stride; ++i)
            largest_scale = std::fmax(largest_scale, std::fabs(weight.scales[row * weight.scale_stride + i]));
        return largest_token * largest_scale * (zeros.empty() ? 8 : 263);
    }
};

TEST(Weight4Tiles, AgreesWithVectors) {
    if (!features().amx) GTEST_SKIP() << "this CPU has no AMX";
    for (const Sizes& sizes :
         {Sizes{1, 128, 2, 128, false}, Sizes{16, 256, 5, 128, false}, Sizes{17, 1000, 6, 256, false}, Sizes{33, 4096, 10, 128, true},
          Sizes{15, 333, 11, 333, true}, Sizes{40, 1280, 23, 1280, false}, Sizes{5, 31, 32, 31, false}, Sizes{48, 14336, 2, 128, false}}) {
        const Operands operands(sizes);
        ASSERT_GT(amx_isa().packed4_bytes(operands.weight, operands.x), 0);
        const std::vector<float> tiles = operands.product(amx_isa()), vectors = operands.product(avx512_isa());
        for (int64_t row = 0; row < sizes.rows; ++row)
            for (int64_t token = 0; token < sizes.tokens; ++token) {
                const size_t at = size_t(row * sizes.tokens + token);
                ASSERT_NEAR(tiles[at], vectors[at], 16 * 0x1p-24 * operands.magnitude(row, token))
                    << sizes.rows << " x " << sizes.columns << ", row " << row << ", token " << token;
            }
    }
}

TEST(Weight4Tiles, LeavesExtremeTokensToVectors) {
    if (!features().amx) GTEST_SKIP() << "this CPU has no AMX";
    for (const float extreme : {INFINITY, -INFINITY, float(NAN), 1e-40f, -0x1p-110f, 3e38f}) {
        Operands operands({3, 256, 2, 128, false});
        operands.tokens[5] = extreme;
        EXPECT_EQ(amx_isa().packed4_bytes(operands.weight, operands.x), 0) << extreme;
    }
    Operands inexact({3, 256, 2, 128, false});
    inexact.values[3] = 0.1f;  // no bf16 number
    EXPECT_EQ(inexact.product(amx_isa()), inexact.product(avx512_isa()));
}

#endif

}  // namespace
}  // namespace lowbit::cpu
