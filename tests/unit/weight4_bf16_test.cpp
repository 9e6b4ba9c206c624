// 4-bit weights in bf16, in tiles and in vectors, against the AVX-512 loop of fp32: sizes at the edges of tiles and batches, zero points,
// and tokens that a few bf16 numbers cannot hold, which have to take the other way.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "cpu/features.hpp"
#include "cpu/isa.hpp"
#include "cpu/simd/scratch.hpp"

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

    // Makes every token value the sum of so many bf16 numbers.
    void cut(int parts) {
        for (float& value : tokens) {
            uint32_t bits;
            std::memcpy(&bits, &value, sizeof bits);
            bits &= parts == 1 ? 0xffff0000 : 0xffffff00;
            std::memcpy(&value, &bits, sizeof bits);
        }
        x.bf16_parts = parts;
    }

    std::vector<float> product(const Isa& isa) const {
        std::vector<float> out(size_t(weight.rows * x.tokens));
        const int64_t bytes = isa.packed4_bytes ? isa.packed4_bytes(weight, x) : 0;
        const Scratch<uint8_t> packed(bytes);
        FloatTokens prepared = x;
        constexpr int64_t parts = 3;
        for (int64_t part = 0; bytes && part < parts; ++part) isa.pack4(x, weight.columns, part, parts, packed.data());
        if (bytes) prepared.packed = packed.data();
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

void expect_like_vectors(const Operands& operands, const Isa& isa) {
    ASSERT_GT(isa.packed4_bytes(operands.weight, operands.x), 0);
    const std::vector<float> found = operands.product(isa), vectors = operands.product(avx512_isa());
    for (int64_t row = 0; row < operands.weight.rows; ++row)
        for (int64_t token = 0; token < operands.x.tokens; ++token) {
            const size_t at = size_t(row * operands.x.tokens + token);
            ASSERT_NEAR(found[at], vectors[at], 16 * 0x1p-24 * operands.magnitude(row, token))
                << operands.weight.rows << " x " << operands.weight.columns << ", row " << row << ", token " << token;
        }
}

// Tokens and codes that bf16 cannot hold go to the vectors of fp32.
void expect_extremes_left_alone(const Isa& isa, int parts) {
    for (const float extreme : {INFINITY, -INFINITY, float(NAN), 1e-40f, -0x1p-110f, 3e38f}) {
        Operands operands({3, 256, 2, 128, false});
        operands.cut(parts);
        operands.tokens[5] = extreme;
        EXPECT_EQ(isa.packed4_bytes(operands.weight, operands.x), 0) << extreme;
    }
    Operands inexact({3, 256, 2, 128, false});
    inexact.cut(parts);
    inexact.values[3] = 0.1f;  // no bf16 number
    EXPECT_EQ(inexact.product(isa), inexact.product(avx512_isa()));
}

TEST(Weight4Tiles, AgreesWithVectors) {
    if (!features().amx) GTEST_SKIP() << "this CPU has no AMX";
    for (const Sizes& sizes :
         {Sizes{1, 128, 2, 128, false}, Sizes{16, 256, 5, 128, false}, Sizes{17, 1000, 6, 256, false}, Sizes{33, 4096, 10, 128, true},
          Sizes{15, 333, 11, 333, true}, Sizes{40, 1280, 23, 1280, false}, Sizes{5, 31, 32, 31, false}, Sizes{48, 14336, 2, 128, false}})
        expect_like_vectors(Operands(sizes), amx_isa());
}

TEST(Weight4Tiles, LeavesExtremeTokensToVectors) {
    if (!features().amx) GTEST_SKIP() << "this CPU has no AMX";
    expect_extremes_left_alone(amx_isa(), 3);
}

TEST(Weight4Parts, AgreesWithVectors) {
    if (!features().avx512_bf16) GTEST_SKIP() << "this CPU has no AVX512_BF16";
    for (const int parts : {1, 2})
        for (const Sizes& sizes :
             {Sizes{1, 128, 1, 128, false}, Sizes{16, 256, 5, 128, false}, Sizes{17, 1000, 7, 256, false}, Sizes{33, 4096, 3, 128, true},
              Sizes{15, 333, 11, 333, true}, Sizes{9, 1280, 2, 32, false}, Sizes{8, 1312, 1, 64, false}, Sizes{13, 97, 4, 32, false},
              Sizes{5, 31, 32, 31, false}, Sizes{48, 14336, 1, 128, false}}) {
            Operands operands(sizes);
            operands.cut(parts);
            expect_like_vectors(operands, avx512_bf16_isa());
        }
}

TEST(Weight4Parts, LeavesExtremeTokensToVectors) {
    if (!features().avx512_bf16) GTEST_SKIP() << "this CPU has no AVX512_BF16";
    for (const int parts : {1, 2}) expect_extremes_left_alone(avx512_bf16_isa(), parts);
    const Operands thirds({3, 256, 2, 128, false});
    EXPECT_EQ(avx512_bf16_isa().packed4_bytes(thirds.weight, thirds.x), 0);
}

#endif

}  // namespace
}  // namespace lowbit::cpu
