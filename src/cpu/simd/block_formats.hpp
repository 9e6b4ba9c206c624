// How the GGML types that block_products.hpp multiplies are decoded.
//
// A row is cut into units: one super-block of 256 values, or S::lanes blocks of 32. A unit is decoded in steps of 2 * S::lanes runs of 16
// values that share a scale, "sixteens": each 128-bit lane of `low` and of `high` holds the codes of one of them, in order. Which sixteen a
// lane holds follows from how the type packs its bits (`sixteen`), and the tokens are brought into the same order.
//
// A format has
//     element, zero                          the code that means 0
//     sixteen(step, half, lane)              which of the unit's sixteens stands there; half 0 is `low`, 1 is `high`
//     terms(unit, count)                     scales and minimums of a unit's blocks, of which `count` are there
//     codes<step>(unit, count)               unsigned codes
//     scale<step, half>(terms)               the scale of each lane
//     minimum_vectors, minimum(terms, v)     what is added to every value; minimum_group(v, i): the group of values that element i of a
//     vector
//                                            is for; negative: for none
#pragma once
#include <cstring>

#include "core/ggml_fields.hpp"
#include "cpu/simd/arithmetic.hpp"

namespace lowbit::cpu {
namespace {

// Indices into 16 numbers, one per lane; the lanes that a vector does not have are not looked at.
struct LaneIndices {
    int at[4];
};

template <class S>
struct BlockCodes {
    typename S::Bytes low, high;
    typename S::Bytes packed = {};  // formats of nibbles: both in one byte

    [[gnu::always_inline]] typename S::Bytes of(int half) const { return half ? high : low; }
};

inline uint32_t load_word(const uint8_t* p) {
    uint32_t word;
    std::memcpy(&word, p, sizeof word);
    return word;
}
inline uint64_t load_long(const uint8_t* p) {
    uint64_t word;
    std::memcpy(&word, p, sizeof word);
    return word;
}
// Hidden from the compiler, which would do what led here in vectors: those are busy, and scalar units are not.
inline uint64_t join_words(uint32_t low, uint32_t high) {
    uint64_t both = uint64_t(high) << 32 | low;
    asm("" : "+r"(both));
    return both;
}
inline uint32_t twice(uint32_t half) { return half | half << 16; }

template <Element type, int zero_code>
struct BlockFormat {
    static constexpr Element element = type;
    static constexpr int zero = zero_code;
    static constexpr int64_t block_values = core::ggml_block(type).values, block_bytes = core::ggml_block(type).bytes;
    static constexpr bool nibbles = false;  // BlockCodes::packed is there
    static constexpr int minimum_vectors = 0;
    static constexpr int group = 32;              // values that a minimum covers
    static constexpr float minimum_sign = -1.0f;  // value = scale * code - minimum
    static constexpr bool has_numbers = false;    // Terms are 16 numbers: a scale for each of eight groups of 32, and a minimum
    static constexpr bool halves_share_scales = false;
    static constexpr bool paired = false;  // steps 2 i and 2 i + 1 have the two sixteens of the same groups
};

// Indices of the numbers of a step: its sixteens, or pairs of them.
template <class Format, int lanes, int step, int half, int sixteens>
constexpr LaneIndices lane_indices() {
    LaneIndices indices{};
    for (int lane = 0; lane < 4; ++lane) indices.at[lane] = Format::sixteen(step, half, lane % lanes) / sixteens;
    return indices;
}

// q4_k and q5_k: 32 bytes hold the nibbles of 64 values, the second 32 in their high halves; eight scales and minimums of 6 bits.
// q4_k is paired: lanes 0, 2, .. of two steps' bytes come first, the others second.
template <class S, Element type>
struct AffineBlock : BlockFormat<type, 0> {
    static constexpr int64_t unit_blocks = 1;
    static constexpr int steps = 8 / S::lanes;
    static constexpr int nibbles_at = type == Element::q4_k ? 16 : 48;
    static constexpr bool has_numbers = true;
    static constexpr bool paired = type == Element::q4_k;

    // The number of a sub-block: chunk / 2 * 2 + half.
    static constexpr int sixteen(int step, int half, int lane) {
        const int chunk = paired ? step / 2 * 2 * S::lanes + 2 * lane + step % 2 : step * S::lanes + lane;
        return chunk / 2 * 4 + chunk % 2 + 2 * half;
    }

    struct Terms {
        alignas(64) float numbers[16];  // eight scales, then eight minimums
    };
    static Terms terms(const uint8_t* block, int) {
        const uint32_t a = load_word(block + 4), b = load_word(block + 8), c = load_word(block + 12);
        constexpr uint32_t six = 0x3f3f3f3f, four = 0x0f0f0f0f, upper_two = 0x30303030;
        Terms terms;
        S::template scale_bytes<false>(join_words(a & six, (c & four) | (a >> 2 & upper_two)),
                                       join_words(b & six, (c >> 4 & four) | (b >> 2 & upper_two)), load_word(block), terms.numbers);
        return terms;
    }
    // Of four rows at once, where vectors hold the first 16 bytes of four blocks.
    static void terms(const uint8_t* block, int64_t stride, Terms (&terms)[4]) requires(S::lanes == 4) {
        float* numbers[4] = {terms[0].numbers, terms[1].numbers, terms[2].numbers, terms[3].numbers};
        S::affine_numbers(block, stride, numbers);
    }
    template <int step, int half>
    static typename S::Float scale(const Terms& terms) {
        return S::template spread<lane_indices<AffineBlock, S::lanes, step, half, 2>()>(terms.numbers);
    }

    static constexpr int minimums_at = S::width > 8 ? 0 : 8;
    static constexpr int minimum_vectors = (16 - minimums_at) / S::width;
    static typename S::Float minimum(const Terms& terms, int v) { return S::load(terms.numbers + minimums_at + v * S::width); }
    static constexpr int minimum_group(int v, int i) { return minimums_at + v * S::width + i - 8; }

    template <int step>
    static BlockCodes<S> packed_codes(const uint8_t* block) {
        const auto load = [&](int which) { return S::load_bytes(block + nibbles_at + which * 16 * S::lanes); };
        typename S::Bytes packed;
        if constexpr (paired)
            packed = S::template every_second_lane<step % 2>(load(step / 2 * 2), load(step / 2 * 2 + 1));
        else
            packed = load(step);
        return {S::low_nibbles(packed), S::high_nibbles(packed), packed};
    }
};

template <class S>
struct Q4_K : AffineBlock<S, Element::q4_k> {
    static constexpr bool nibbles = true;
    template <int step>
    static BlockCodes<S> codes(const uint8_t* block, int) {
        return Q4_K::template packed_codes<step>(block);
    }
};

template <class S>
struct Q5_K : AffineBlock<S, Element::q5_k> {
    template <int step>
    static BlockCodes<S> codes(const uint8_t* block, int) {
        BlockCodes<S> codes = Q5_K::template packed_codes<step>(block);
        // The fifth bits of sub-block j are bit j of 32 bytes; they belong at bit 4.
        const typename S::Bytes run = S::load_run(block + 16, step * S::lanes);
        constexpr int first = step * S::lanes / 2 * 2 - 4, second = (step * S::lanes + S::lanes / 2) / 2 * 2 - 4;
        codes.low = S::merge(codes.low, S::template move_bits<first, second>(run), 0x10);
        codes.high = S::merge(codes.high, S::template move_bits<first + 1, second + 1>(run), 0x10);
        return codes;
    }
};

// q2_k, q3_k and q6_k: of each 128 values four quarters of 32 share bytes, and 16 values share a scale.
template <class S, Element type, int zero_code>
struct QuarteredBlock : BlockFormat<type, zero_code> {
    static constexpr int64_t unit_blocks = 1;
    static constexpr int steps = 8 / S::lanes;
    static constexpr int group = 16;

    static constexpr int sixteen(int step, int half, int lane) {
        const int chunk = step * S::lanes + lane;
        return chunk / 4 * 8 + chunk % 4 + 4 * half;
    }

    // A run of 32 bytes holds `bits` of each of four quarters, or of eight, of which the first is the number `first`: brings those of each
    // lane's quarter to bit `to`, with others around them.
    template <int step, int half, int bits, int to, int first = 0>
    static typename S::Bytes quarter_bits(typename S::Bytes run) {
        constexpr int chunk = step * S::lanes;
        constexpr int lower = chunk % 4 / 2 + 2 * half + first, upper = (chunk + S::lanes / 2) % 4 / 2 + 2 * half + first;
        return S::template move_bits<bits * lower - to, bits * upper - to>(run);
    }

    struct Terms {
        alignas(64) float scales[16];
        alignas(64) float minimums[type == Element::q2_k ? 16 : 1];
    };
    template <int step, int half>
    static typename S::Float scale(const Terms& terms) {
        return S::template spread<lane_indices<QuarteredBlock, S::lanes, step, half, 1>()>(terms.scales);
    }
};

template <class S>
struct Q6_K : QuarteredBlock<S, Element::q6_k, 32> {
    using typename QuarteredBlock<S, Element::q6_k, 32>::Terms;
    static Terms terms(const uint8_t* block, int) {
        Terms terms;
        S::template scale_bytes<true>(load_long(block + 192), load_long(block + 200), twice(S::load_half(block + 208)), terms.scales);
        return terms;
    }
    template <int step>
    static BlockCodes<S> codes(const uint8_t* block, int) {
        const typename S::Bytes nibbles = S::load_bytes(block + step * 16 * S::lanes);
        const typename S::Bytes run = S::load_run(block + 128 + step * S::lanes / 4 * 32, step * S::lanes);
        return {S::merge(S::low_nibbles(nibbles), Q6_K::template quarter_bits<step, 0, 2, 4>(run), 0x30),
                S::merge(S::high_nibbles(nibbles), Q6_K::template quarter_bits<step, 1, 2, 4>(run), 0x30)};
    }
};

template <class S>
struct Q3_K : QuarteredBlock<S, Element::q3_k, 4> {
    using typename QuarteredBlock<S, Element::q3_k, 4>::Terms;
    static Terms terms(const uint8_t* block, int) {
        const uint32_t a = load_word(block + 96), b = load_word(block + 100), c = load_word(block + 104);
        constexpr uint32_t four = 0x0f0f0f0f, upper_two = 0x30303030;
        const uint64_t first = join_words((a & four) | (c << 4 & upper_two), (b & four) | (c << 2 & upper_two));
        const uint64_t last = join_words((a >> 4 & four) | (c & upper_two), (b >> 4 & four) | (c >> 2 & upper_two));
        // Each byte less 32, without a borrow between them.
        const auto centered = [](uint64_t bytes) { return (bytes + 0x6060606060606060) ^ 0x8080808080808080; };
        Terms terms;
        S::template scale_bytes<true>(centered(first), centered(last), twice(S::load_half(block + 108)), terms.scales);
        return terms;
    }
    template <int step>
    static BlockCodes<S> codes(const uint8_t* block, int) {
        constexpr int half_block = step * S::lanes / 4;
        const typename S::Bytes pairs = S::load_run(block + 32 + half_block * 32, step * S::lanes);
        const typename S::Bytes bits = S::load_run(block, step * S::lanes);
        const auto code = [&]<int half>() {
            return S::merge(S::keep(Q3_K::template quarter_bits<step, half, 2, 0>(pairs), 3),
                            Q3_K::template quarter_bits<step, half, 1, 2, 4 * half_block>(bits), 4);
        };
        return {code.template operator()<0>(), code.template operator()<1>()};
    }
};

template <class S>
struct Q2_K : QuarteredBlock<S, Element::q2_k, 0> {
    using typename QuarteredBlock<S, Element::q2_k, 0>::Terms;
    static Terms terms(const uint8_t* block, int) {
        constexpr uint64_t four = 0x0f0f0f0f0f0f0f0f;
        const uint64_t first = load_long(block), last = load_long(block + 8);
        Terms terms;
        S::template scale_bytes<false>(first & four, last & four, twice(S::load_half(block + 80)), terms.scales);
        S::template scale_bytes<false>(first >> 4 & four, last >> 4 & four, twice(S::load_half(block + 82)), terms.minimums);
        return terms;
    }
    static constexpr int minimum_vectors = 16 / S::width;
    static typename S::Float minimum(const Terms& terms, int v) { return S::load(terms.minimums + v * S::width); }
    static constexpr int minimum_group(int v, int i) { return v * S::width + i; }

    template <int step>
    static BlockCodes<S> codes(const uint8_t* block, int) {
        const typename S::Bytes pairs = S::load_run(block + 16 + step * S::lanes / 4 * 32, step * S::lanes);
        return {S::keep(Q2_K::template quarter_bits<step, 0, 2, 0>(pairs), 3),
                S::keep(Q2_K::template quarter_bits<step, 1, 2, 0>(pairs), 3)};
    }
};

// Blocks of 32 values, one per lane: nibbles, where there are five bits the fifth ones before them, and in front of all the fp16 numbers.
template <class S, Element type, int zero_code, bool has_minimums, bool has_fifth_bits>
struct SmallBlock : BlockFormat<type, zero_code> {
    static constexpr int64_t unit_blocks = S::lanes;
    static constexpr int steps = 1;
    static constexpr bool nibbles = !has_fifth_bits && zero_code == 0;
    static constexpr bool halves_share_scales = true;
    static constexpr int64_t bytes = core::ggml_block(type).bytes, bits_at = has_minimums ? 4 : 2;

    static constexpr int sixteen(int, int half, int lane) { return 2 * lane + half; }

    struct Terms {
        typename S::Float scales, minimums;
    };
    static Terms terms(const uint8_t* unit, int count) {
        return {S::spread_halves(unit, bytes, count), has_minimums ? S::spread_halves(unit + 2, bytes, count) : S::set(0.0f)};
    }
    template <int step, int half>
    static typename S::Float scale(const Terms& terms) {
        return terms.scales;
    }

    static constexpr int minimum_vectors = has_minimums ? 1 : 0;
    static constexpr float minimum_sign = 1.0f;
    static typename S::Float minimum(const Terms& terms, int) { return terms.minimums; }
    static constexpr int minimum_group(int, int i) { return i % 4 == 0 ? i / 4 : -1; }

    template <int step>
    static BlockCodes<S> codes(const uint8_t* unit, int count) {
        const typename S::Bytes packed = S::gather_lanes(unit + bytes - 16, bytes, count);
        BlockCodes<S> codes{S::low_nibbles(packed), S::high_nibbles(packed), packed};
        if constexpr (has_fifth_bits) {
            codes.low = S::add_fifth_bits(codes.low, unit + bits_at, bytes, count);
            codes.high = S::add_fifth_bits(codes.high, unit + bits_at + 2, bytes, count);
        }
        return codes;
    }
};

template <class S>
using Q4_1 = SmallBlock<S, Element::q4_1, 0, true, false>;
template <class S>
using Q5_0 = SmallBlock<S, Element::q5_0, 16, false, true>;
template <class S>
using Q5_1 = SmallBlock<S, Element::q5_1, 0, true, true>;

}  // namespace
}  // namespace lowbit::cpu
