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

    // sums[row][token] for `rows` rows of the weight from first_row on and all tokens; row stride `stride`.
    void store(int64_t first_row, int64_t rows, const float* sums, int64_t stride) const { store_any(first_row, rows, sums, stride); }
    void store(int64_t first_row, int64_t rows, const int32_t* sums, int64_t stride) const { store_any(first_row, rows, sums, stride); }

private:
    static constexpr int64_t width = 64;  // rows of the weight finished at a time

    template <class Sum>
    void store_any(int64_t first_row, int64_t rows, const Sum* sums, int64_t stride) const;
    void finish_line(float* line, int64_t token, int64_t first_row, int64_t count) const;
    void write_line(const float* line, int64_t token, int64_t first_row, int64_t count) const;

    const core::MatmulProblem& problem_;
    const Isa& isa_;
    std::vector<float> token_factor_, row_factor_, bias_;
};

}  // namespace lowbit::cpu
