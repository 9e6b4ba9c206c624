// How a product is cut into tiles of registers: four tokens at a time, then two, then one, and as many rows as Shape::rows<Tokens> says.
#pragma once
#include <new>

#include "cpu/simd/arithmetic.hpp"

namespace lowbit::cpu {
namespace {

// How many of the tokens left the next tile takes.
inline int64_t tile_width(int64_t tokens) { return tokens >= 4 ? 4 : tokens >= 2 ? 2 : 1; }

template <class Shape, int Tokens, class Tile>
void cover_rows(int64_t rows, int64_t token, const Tile& tile) {
    constexpr int tile_rows = Shape::template rows<Tokens>;
    int64_t row = 0;
    for (; row + tile_rows <= rows; row += tile_rows) tile.template operator()<tile_rows, Tokens>(row, token);
    for (; row < rows; ++row) tile.template operator()<1, Tokens>(row, token);
}

// Calls tile<Rows, Tokens>(row, token) for tiles that cover rows x tokens.
template <class Shape, class Tile>
void cover(int64_t rows, int64_t tokens, const Tile& tile) {
    int64_t token = 0;
    for (; token + 4 <= tokens; token += 4) cover_rows<Shape, 4>(rows, token, tile);
    for (; token + 2 <= tokens; token += 2) cover_rows<Shape, 2>(rows, token, tile);
    for (; token < tokens; ++token) cover_rows<Shape, 1>(rows, token, tile);
}

// Tokens packed for such tiles, in units along K: [tile][unit][token of the tile]. pack(to, token, unit) fills one of them, a part of
// `parts` some of the units.
template <class Unit, class Pack>
void pack_tiles(int64_t tokens, int64_t units, int64_t part, int64_t parts, uint8_t* packed, const Pack& pack) {
    const int64_t first = units * part / parts, end = units * (part + 1) / parts;
    auto* all = reinterpret_cast<Unit*>(packed);
    for (int64_t token = 0, width; token < tokens; token += width) {
        width = tile_width(tokens - token);
        for (int64_t unit = first; unit < end; ++unit)
            for (int64_t t = 0; t < width; ++t) pack(*new (all + token * units + unit * width + t) Unit, token + t, unit);
    }
}

}  // namespace
}  // namespace lowbit::cpu
