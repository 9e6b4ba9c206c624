// From the sums of an inner loop to the output: operand scales and epilogue folded into one factor per token and one per row of the weight.
#pragma once
#include <cstdint>
#include <vector>

#include "core/problem.hpp"
#include "cpu/isa.hpp"

namespace lowbit::cpu {

class Finisher {
public:
    // The scales of an operand that the inner loop left out (integer products); empty: the sums are complete.
    struct OperandScales {
        std::vector<float> tokens, rows;
    };

    Finisher(const core::MatmulProblem& problem, const Isa& isa, const OperandScales& scales = {});

    // Which outputs a block of sums belongs to.
    struct Piece {
        int64_t first_row = 0, rows = 0;  // of the weight
        int64_t first_token = 0, tokens = 0;
        bool by_tokens = false;  // sums[token][row] instead of sums[row][token]

        // Rows of sums lie an odd number of cache lines apart: a column of them would otherwise crowd into a few sets of the cache.
        int64_t stride() const { return by_tokens ? padded_rows() + 16 : tokens <= 16 ? tokens : ((tokens + 15) / 16 | 1) * 16; }
        int64_t index(int64_t row, int64_t token) const { return by_tokens ? token * stride() + row : row * stride() + token; }
        size_t sums() const { return size_t((by_tokens ? tokens : rows) * stride()); }
        int64_t padded_rows() const { return (rows + slab_rows - 1) / slab_rows * slab_rows; }
    };

    // sums[row][token] of a piece, or [token][row]; the outer ones lie piece.stride() apart.
    void store(const Piece& piece, const float* sums) const { store_any(piece, sums); }
    void store(const Piece& piece, const int32_t* sums) const { store_any(piece, sums); }

private:
    static constexpr int64_t width = 64;   // rows of the weight finished at a time
    static constexpr int64_t height = 16;  // tokens

    template <class Sum>
    void store_any(const Piece& piece, const Sum* sums) const;
    template <class Sum>
    bool has_lines() const;
    // Some rows and tokens of a piece, with their factors and bias.
    template <class Sum>
    void load_lines(const Piece& piece, int64_t row, int64_t rows, int64_t token, int64_t tokens, const Sum* sums, float* lines,
                    int64_t line_stride) const;
    void activate_line(float* line, int64_t count) const;
    void write_line(float* line, int64_t token, int64_t first_row, int64_t count) const;

    const core::MatmulProblem& problem_;
    const Isa& isa_;
    std::vector<float> token_factor_, row_factor_, bias_;
};

}  // namespace lowbit::cpu
