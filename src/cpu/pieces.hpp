// How a product is cut up for the threads.
#pragma once
#include "core/problem.hpp"
#include "cpu/finish.hpp"

namespace lowbit::cpu {

// A grid of pieces that covers all rows of the weight and all tokens.
struct Pieces {
    int64_t rows = 0, tokens = 0;              // of the problem
    int64_t piece_rows = 0, piece_tokens = 0;  // of one piece, the last ones may be smaller

    int64_t token_pieces() const;
    int64_t count() const;
    Finisher::Piece operator[](int64_t index) const;
};

// Inner loops prepare their tokens once per call and read their rows once per call. Few tokens: a few pieces of rows per thread, so that a
// thread that was held up does not hold up all. Many tokens: one piece per thread, cut so that a thread has little of both to prepare.
Pieces cut(const core::MatmulProblem& problem);
// For tokens that were prepared once for all rows: pieces whose sums stay in the second-level cache until they are finished, with at most
// `most_tokens` tokens.
Pieces cut_small(const core::MatmulProblem& problem, int64_t most_tokens);
// For slabs: the same with fewer tokens, or for few tokens pieces of more rows, which are then read as one stream.
Pieces cut_slabs(const core::MatmulProblem& problem);

}  // namespace lowbit::cpu
