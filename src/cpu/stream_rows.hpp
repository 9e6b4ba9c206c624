// A product of few tokens: the rows of the weight are split over the threads, and stream by.
#pragma once
#include <algorithm>
#include <memory>

#include "cpu/finish.hpp"
#include "cpu/pieces.hpp"
#include "cpu/prepare.hpp"
#include "cpu/row_scales.hpp"

namespace lowbit::cpu {

// multiply(piece, sums) multiplies the rows of a piece with all tokens.
template <class Multiply>
void stream_rows(const Isa& isa, const core::MatmulProblem& problem, const Multiply& multiply) {
    const Finisher finisher(problem, isa);
    Pieces pieces = cut(problem);
    pieces.piece_tokens = std::max<int64_t>(problem.m(), 1);  // a weight is decoded once
    problem.context->parallel(pieces.count(), [&](int64_t index) {
        const Finisher::Piece piece = pieces[index];
        const auto sums = std::make_unique_for_overwrite<float[]>(piece.sums());
        multiply(piece, sums.get());
        finisher.store(piece, sums.get());
    });
}

// By a loop for rows of 4-bit integers, or of GGML blocks, which has its tokens packed.
template <class Tokens, class Weight>
void stream_rows(const Isa& isa, const core::MatmulProblem& problem, const BlockLoop<Tokens, Weight>& loop, const Tokens& x) {
    const core::Buffer packed = pack_tokens(*problem.context, loop, x, problem.k());
    stream_rows(isa, problem, [&](const Finisher::Piece& piece, float* sums) {
        RowScales scales;
        loop.multiply(rows_of_weight<Weight>(isa, problem.weight.quantized, piece.first_row, piece.rows, scales),
                      reinterpret_cast<const uint8_t*>(packed.data()), problem.m(), sums, piece.stride());
    });
}

}  // namespace lowbit::cpu
