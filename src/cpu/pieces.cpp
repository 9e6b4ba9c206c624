#include "cpu/pieces.hpp"

#include <algorithm>

#include "core/status.hpp"

namespace lowbit::cpu {
namespace {

constexpr int64_t row_unit = 16, token_unit = 32;  // what the widest inner loops take at once
constexpr int64_t few_tokens = 16;
constexpr int64_t small_row_unit = 32, most_rows = 256;
constexpr int64_t pieces_per_thread = 4;
constexpr int64_t most_slab_tokens = 256;  // what a slab meets of them fits the second-level cache, and so do their sums
// Preparing a token costs about as much as reading this many rows of the weight.
constexpr int64_t token_cost = 4;

int64_t share(int64_t count, int64_t parts, int64_t unit) {
    return std::max(unit, core::ceil_div(core::ceil_div(count, parts), unit) * unit);
}

}  // namespace

int64_t Pieces::token_pieces() const { return core::ceil_div(tokens, piece_tokens); }

int64_t Pieces::count() const { return core::ceil_div(rows, piece_rows) * token_pieces(); }

Finisher::Piece Pieces::operator[](int64_t index) const {
    const int64_t first_row = index / token_pieces() * piece_rows, first_token = index % token_pieces() * piece_tokens;
    return {first_row, std::min(piece_rows, rows - first_row), first_token, std::min(piece_tokens, tokens - first_token)};
}

Pieces cut(const core::MatmulProblem& problem) {
    const int64_t rows = problem.n(), tokens = problem.m(), threads = problem.context->threads();
    if (tokens <= few_tokens) return {rows, tokens, share(rows, pieces_per_thread * threads, row_unit), std::max<int64_t>(tokens, 1)};
    Pieces best{rows, tokens, share(rows, threads, row_unit), tokens};
    for (int64_t parts = 2; parts <= threads; ++parts) {
        if (threads % parts) continue;
        const Pieces other{rows, tokens, share(rows, threads / parts, row_unit), share(tokens, parts, token_unit)};
        const auto cost = [](const Pieces& p) { return p.piece_rows + token_cost * p.piece_tokens; };
        if (cost(other) < cost(best)) best = other;
    }
    return best;
}

Pieces cut_small(const core::MatmulProblem& problem, int64_t most_tokens) {
    const int64_t rows = problem.n(), tokens = problem.m(), threads = problem.context->threads();
    return {rows, tokens, std::min(most_rows, share(rows, threads, small_row_unit)), std::clamp<int64_t>(tokens, 1, most_tokens)};
}

Pieces cut_slabs(const core::MatmulProblem& problem) {
    const int64_t rows = problem.n(), tokens = problem.m(), threads = problem.context->threads();
    if (tokens > few_slab_tokens) return cut_small(problem, most_slab_tokens);
    return {rows, tokens, share(rows, pieces_per_thread * threads, small_row_unit), std::max<int64_t>(tokens, 1)};
}

}  // namespace lowbit::cpu
