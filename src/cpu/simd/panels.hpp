// The loop nest of products with many tokens. What differs between them (how a weight is decoded, how a tile is multiplied, what a sum
// becomes) is a Kernel:
//
//     using Sum;                                       a vector of partial sums of one (row, token)
//     static constexpr int64_t chunk;                  steps along K that a panel of decoded rows covers
//     template <int Tokens> static constexpr int rows  how many rows a tile of so many tokens takes (the registers decide)
//     begin_tokens(token, count)                       the tokens of the next batch
//     decode(row, count, first, steps)                 rows of the weight into the panel, steps first .. first + steps of each
//     multiply<Rows, Tokens>(row, token, first, steps, sums)   adds to a tile; row and token count from the start of panel and batch
//     finish(row, token, sum)                          stores one result
//
// A panel of rows is decoded once for all tokens of a batch, and stays in L1 with the tokens it meets. The order in which the products of
// one (row, token) are added does not depend on how many other rows and tokens there are.
#pragma once
#include "cpu/simd/tiles.hpp"

namespace lowbit::cpu {
namespace {

constexpr int64_t panel_rows = 8;
constexpr int64_t batch_tokens = 32;

// One tile, its sums in registers.
template <int Rows, int Tokens, class Kernel>
void multiply_tile(const Kernel& kernel, int64_t row, int64_t token, int64_t first, int64_t steps, typename Kernel::Sum* panel_sums) {
    typename Kernel::Sum sums[Rows][Tokens];
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
        for (int t = 0; t < Tokens; ++t) sums[r][t] = panel_sums[(row + r) * batch_tokens + token + t];
    kernel.template multiply<Rows, Tokens>(row, token, first, steps, sums);
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 8
        for (int t = 0; t < Tokens; ++t) panel_sums[(row + r) * batch_tokens + token + t] = sums[r][t];
}

template <class Kernel>
void multiply_panels(Kernel& kernel, int64_t rows, int64_t steps, int64_t tokens) {
    typename Kernel::Sum sums[panel_rows * batch_tokens];
    for (int64_t token = 0; token < tokens; token += batch_tokens) {
        const int64_t tokens_here = smaller(batch_tokens, tokens - token);
        kernel.begin_tokens(token, tokens_here);
        for (int64_t row = 0; row < rows; row += panel_rows) {
            const int64_t rows_here = smaller(panel_rows, rows - row);
            for (int64_t r = 0; r < rows_here; ++r)
                for (int64_t t = 0; t < tokens_here; ++t) sums[r * batch_tokens + t] = typename Kernel::Sum{};
            for (int64_t first = 0; first < steps; first += Kernel::chunk) {
                const int64_t steps_here = smaller(Kernel::chunk, steps - first);
                kernel.decode(row, rows_here, first, steps_here);
                cover<Kernel>(rows_here, tokens_here, [&]<int Rows, int Tokens>(int64_t r, int64_t t) {
                    multiply_tile<Rows, Tokens>(kernel, r, t, first, steps_here, sums);
                });
            }
            for (int64_t r = 0; r < rows_here; ++r)
                for (int64_t t = 0; t < tokens_here; ++t) kernel.finish(row + r, token + t, sums[r * batch_tokens + t]);
        }
    }
}

}  // namespace
}  // namespace lowbit::cpu
