// The weights that slabs.hpp multiplies: running codes in groups, and GGML blocks.
//
// Bytes of sixteen rows are turned over as they lie, 64 of each row, and taken apart into codes afterwards: there are fewer of them, and
// what has to be done to a vector is done to sixteen rows at once. Where that leaves the codes in another order than the row's, the tokens
// are brought into it.
#pragma once
#include "core/ggml_blocks.hpp"
#include "cpu/avx512/slabs.hpp"

namespace lowbit::cpu {
namespace {

inline __m256i load_32(const uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline __m512i join_halves(__m256i first, __m256i second) { return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1); }
// The first `count` words of 4 bytes.
inline __mmask16 first_words(int64_t count) { return __mmask16((uint32_t(1) << (count < 0 ? 0 : smaller(count, 16))) - 1); }

inline __mmask64 first_bytes(int64_t count) { return count >= 64 ? ~__mmask64(0) : (__mmask64(1) << (count < 0 ? 0 : count)) - 1; }

// 64 bytes of each row as words of 4: word w of all sixteen in words[w].
template <class Load>
[[gnu::always_inline]] inline void turn_rows(const SixteenRows& rows, __m512i (&words)[16], const Load& load) {
#pragma GCC unroll 16
    for (int64_t i = 0; i < 16; ++i) words[i] = load(rows.codes[i], i);
    transpose(words);
}

// The same for 16 bytes, of which the mask says which are there.
template <class Bytes>
void turn_rows(const SixteenRows& rows, __m512i (&words)[4], __mmask16 there, const Bytes& bytes_of) {
    __m512i fours[4];  // lane l of fours[i] is row 4 l + i
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) {
        const auto row = [&](int64_t lane) { return _mm_maskz_loadu_epi8(there, bytes_of(rows.codes[4 * lane + i])); };
        fours[i] = join_halves(_mm256_set_m128i(row(1), row(0)), _mm256_set_m128i(row(3), row(2)));
    }
    const __m512i first = _mm512_unpacklo_epi32(fours[0], fours[1]), second = _mm512_unpacklo_epi32(fours[2], fours[3]);
    const __m512i third = _mm512_unpackhi_epi32(fours[0], fours[1]), fourth = _mm512_unpackhi_epi32(fours[2], fours[3]);
    words[0] = _mm512_unpacklo_epi64(first, second);
    words[1] = _mm512_unpackhi_epi64(first, second);
    words[2] = _mm512_unpacklo_epi64(third, fourth);
    words[3] = _mm512_unpackhi_epi64(third, fourth);
}

// One fp16 number of each row, put together in the scalar units.
template <class Bytes>
__m512 row_halves(const SixteenRows& rows, const Bytes& bytes_of) {
    const auto four = [&](int64_t i) {
        const auto half = [&](int64_t j) { return uint64_t(Avx512::load_half(bytes_of(rows.codes[i + j]))) << 16 * j; };
        return int64_t(half(0) | half(1) | half(2) | half(3));
    };
    return _mm512_cvtph_ps(_mm256_set_epi64x(four(12), four(8), four(4), four(0)));
}
inline __m512 lower_halves(__m512i words) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words)); }
inline __m512 upper_halves(__m512i words) { return lower_halves(_mm512_srli_epi32(words, 16)); }

template <int Span, Extra Kind, int32_t Offset>
struct SlabSource {
    static constexpr int span = Span;
    static constexpr Extra extra = Kind;
    static constexpr int32_t offset = Offset;
    static constexpr bool pairs = false;  // of each eight values, those with even places come first

    const CodedWeight& weight;

    explicit SlabSource(const CodedWeight& w) : weight(w) {}

    // Four neighbouring codes of sixteen rows, from column `k` of the slab on.
    static void put(Slab<span>& slab, const SixteenRows& rows, int64_t k, __m512i codes) {
        _mm512_store_si512(slab.codes[k / 4][rows.at], codes);
    }
    static void put_scale(Slab<span>& slab, const SixteenRows& rows, int64_t s, __m512 scale) {
        _mm512_store_ps(slab.scales[s] + rows.at, scale);
    }
    static void put_extra(Slab<span>& slab, const SixteenRows& rows, int64_t s, __m512 number) {
        _mm512_store_ps(slab.extras[s] + rows.at, number);
    }
};

// What nibbles and bytes of running codes mean.
struct Int4Codes {
    static constexpr int bits = 4;
    static constexpr int32_t offset = 8;
    static __m512i before(__m512i packed) { return _mm512_xor_si512(packed, _mm512_set1_epi8(char(0x88))); }
    static __m512i after(__m512i codes) { return codes; }
};
struct Uint4Codes : Int4Codes {
    static constexpr int32_t offset = 0;
    static __m512i before(__m512i packed) { return packed; }
};
// Twice a number is an integer of -12 .. 12.
struct Fp4Codes : Uint4Codes {
    static constexpr int32_t offset = 12;
    static constexpr float unit = 0.5f;
    static __m512i after(__m512i codes) {
        const __m128i numbers = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(numbers), codes);
    }
};
struct Uint8Codes {
    static constexpr int bits = 8;
    static constexpr int32_t offset = 0;
    static __m512i before(__m512i codes) { return codes; }
};
struct Int8Codes : Uint8Codes {
    static constexpr int32_t offset = 128;
    static __m512i before(__m512i codes) { return Avx512::add_offset(codes); }
};

template <class Codes, int Span, Extra Kind>
struct RunningSource : SlabSource<Span, Kind, Codes::offset> {
    using Base = SlabSource<Span, Kind, Codes::offset>;
    using Base::Base;
    using Base::weight;
    using Numbers = Codes;
    static constexpr bool pairs = Codes::bits == 4;
    static constexpr int64_t step = 512 / Codes::bits;
    static constexpr int64_t bytes(int64_t values) { return values * Codes::bits / 8; }

    void codes(Slab<Span>& slab, const SixteenRows& rows, int64_t k, int64_t at, int64_t there) const {
        __m512i words[16];
        const __mmask64 mask = first_bytes(there * Codes::bits / 8);
        turn_rows(rows, words, [&](const uint8_t* row, int64_t) { return _mm512_maskz_loadu_epi8(mask, row + bytes(k)); });
#pragma GCC unroll 16
        for (int64_t w = 0; w < 16; ++w) {
            const __m512i packed = Codes::before(words[w]);
            if constexpr (pairs) {
                this->put(slab, rows, at + 8 * w, Codes::after(Avx512::low_nibbles(packed)));
                this->put(slab, rows, at + 8 * w + 4, Codes::after(Avx512::high_nibbles(packed)));
            } else {
                this->put(slab, rows, at + 4 * w, packed);
            }
        }
    }
    // Groups of sixteen rows, sixteen at a time; a span may be the whole of a group or a part.
    void scales(Slab<Span>& slab, const SixteenRows& rows, int64_t first, int64_t columns) const {
        if constexpr (Kind == Extra::exact) return;
        const int64_t end = (first + columns - 1) / weight.group + 1;
        int64_t s = 0, group = first / weight.group;
        for (int64_t from = group; from < end; from += 16) {
            const auto turn = [&](const float* numbers, __m512i(&words)[16]) {
                const __mmask16 mask = first_words(end - from);
                turn_rows(rows, words, [&](const uint8_t*, int64_t i) {
                    return _mm512_maskz_loadu_epi32(mask, numbers + rows.numbers[i] * weight.scale_stride + from);
                });
            };
            __m512i scales[16], zeros[16];
            turn(weight.scales, scales);
            if constexpr (Kind == Extra::zeros) turn(weight.zeros, zeros);
            for (; s * Span < columns; ++s) {
                if (first + s * Span >= (group + 1) * weight.group) ++group;
                if (group >= from + 16) break;
                __m512 scale = _mm512_castsi512_ps(scales[group - from]);
                if constexpr (requires { Codes::unit; }) scale = _mm512_mul_ps(scale, _mm512_set1_ps(Codes::unit));
                this->put_scale(slab, rows, s, scale);
                if constexpr (Kind == Extra::zeros)
                    this->put_extra(slab, rows, s, _mm512_sub_ps(_mm512_setzero_ps(), _mm512_castsi512_ps(zeros[group - from])));
            }
        }
    }
};

template <Element type, int Span, Extra Kind, int32_t Offset>
struct BlockSource : SlabSource<Span, Kind, Offset> {
    using SlabSource<Span, Kind, Offset>::SlabSource;
    static constexpr int64_t block_values = core::ggml_block(type).values, block_bytes = core::ggml_block(type).bytes;

    // To ask for memory ahead: within a block of 256 its bytes are taken for evenly spread.
    static constexpr int64_t bytes(int64_t values) { return values * block_bytes / block_values; }
    static const uint8_t* block(const uint8_t* row, int64_t k) { return row + k / block_values * block_bytes; }
};

// Blocks of 32 values: fp16 numbers, and behind them, where there are five bits, the fifth ones, and the nibbles or bytes.
template <Element type, Extra Kind, int32_t Offset>
struct SmallSource : BlockSource<type, 32, Kind, Offset> {
    using Base = BlockSource<type, 32, Kind, Offset>;
    using Base::Base;
    static constexpr bool has_minimum = Kind == Extra::minimums;
    static constexpr bool has_fifth_bits = type == Element::q5_0 || type == Element::q5_1;
    static constexpr bool has_bytes = type == Element::q8_0;
    static constexpr int64_t step = has_fifth_bits || has_bytes ? 64 : 128;

    // The fp16 numbers come along: one permutation puts those of two blocks of a row where they belong among those of all rows.
    void codes(Slab<32>& slab, const SixteenRows& rows, int64_t k, int64_t at, int64_t there) const {
        __m512i words[16], numbers[step / 64] = {}, others[step / 64] = {};
        const __mmask16 mask = first_words(there / 32 * Base::block_bytes / 4);
        turn_rows(rows, words, [&](const uint8_t* row, int64_t i) {
            const uint8_t* block = this->block(row, k);
            const __m512i bytes = _mm512_maskz_loadu_epi32(mask, block);
            const auto place = __mmask32(0x10001u << i);
            for (int64_t two = 0; two < step / 64; ++two) {
                numbers[two] = _mm512_mask_permutexvar_epi16(numbers[two], place, halves_of_two(two, 0), bytes);
                if constexpr (has_minimum) others[two] = _mm512_mask_permutexvar_epi16(others[two], place, halves_of_two(two, 1), bytes);
            }
            if constexpr (has_fifth_bits || has_bytes) return two_blocks(block, there > 32);
            return four_blocks(block, there / 32);
        });
        for (int64_t two = 0; two < step / 64; ++two) {
            put_two(slab.scales, rows, at / 32 + 2 * two, numbers[two]);
            if constexpr (has_minimum) put_two(slab.extras, rows, at / 32 + 2 * two, others[two]);
        }
#pragma GCC unroll 16
        for (int64_t w = 0; w < 16; ++w) {
            if constexpr (has_fifth_bits || has_bytes) {
                this->put(slab, rows, at + 4 * w, has_bytes ? Avx512::add_offset(words[w]) : words[w]);
            } else {
                const int64_t to = at + w / 4 * 32 + w % 4 * 4;
                this->put(slab, rows, to, levels(Avx512::low_nibbles(words[w])));
                this->put(slab, rows, to + 16, levels(Avx512::high_nibbles(words[w])));
            }
        }
    }
    void scales(Slab<32>&, const SixteenRows&, int64_t, int64_t) const {}

private:
    // Where in 64 bytes number `which` of two blocks stands, sixteen times each.
    static __m512i halves_of_two(int64_t two, int64_t which) {
        const int64_t first = 2 * two * Base::block_bytes / 2 + which, second = first + Base::block_bytes / 2;
        return join_halves(_mm256_set1_epi16(short(first)), _mm256_set1_epi16(short(second)));
    }
    static void put_two(float (&numbers)[Slab<32>::spans][slab_rows], const SixteenRows& rows, int64_t s, __m512i halves) {
        _mm512_store_ps(numbers[s] + rows.at, _mm512_cvtph_ps(_mm512_castsi512_si256(halves)));
        _mm512_store_ps(numbers[s + 1] + rows.at, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1)));
    }
    // The nibbles of four blocks as they lie, or of the first `count`.
    static __m512i four_blocks(const uint8_t* block, int64_t count) {
        const uint8_t* nibbles = block + Base::block_bytes - 16;
        return Avx512::gather_lanes(nibbles, Base::block_bytes, int(smaller(count, 4)));
    }
    static __m512i two_blocks(const uint8_t* block, bool both) {
        return join_halves(block_codes(block), both ? block_codes(block + Base::block_bytes) : _mm256_setzero_si256());
    }
    static __m256i block_codes(const uint8_t* block) {
        if constexpr (has_bytes) return load_32(block + Base::block_bytes - 32);
        const __m128i packed = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + Base::block_bytes - 16));
        const __m256i nibbles = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(packed, 4), packed), _mm256_set1_epi8(15));
        uint32_t fifth;
        std::memcpy(&fifth, block + Base::block_bytes - 20, sizeof fifth);
        return _mm256_mask_add_epi8(nibbles, fifth, nibbles, _mm256_set1_epi8(16));
    }
    // iq4_nl: what a nibble means, 128 more.
    static __m512i levels(__m512i nibbles) {
        if constexpr (type != Element::iq4_nl) return nibbles;
        const __m128i numbers = _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, -127, -115, -103, -90, -75, -59, -39, -15);
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(numbers), nibbles);
    }
};

// K types: 256 values.
template <Element type, int Span, Extra Kind, int32_t Offset>
struct SuperSource : BlockSource<type, Span, Kind, Offset> {
    using Base = BlockSource<type, Span, Kind, Offset>;
    using Base::Base;
    static constexpr int64_t step = 256;

    void codes(Slab<Span>& slab, const SixteenRows& rows, int64_t k, int64_t at, int64_t) const {
        const auto turn = [&](int64_t from, __m512i(&words)[16], int64_t bytes = 64) {
            const __mmask16 mask = first_words(bytes / 4);
            turn_rows(rows, words, [&](const uint8_t* row, int64_t) { return _mm512_maskz_loadu_epi32(mask, this->block(row, k) + from); });
        };
        __m512i words[16], bits[16];
        if constexpr (type == Element::q4_k) {
            // 32 bytes hold 64 values, the second half of them in the upper nibbles.
            for (int64_t half = 0; half < 2; ++half) {
                turn(16 + 64 * half, words);
#pragma GCC unroll 16
                for (int64_t w = 0; w < 16; ++w) {
                    const int64_t to = at + 128 * half + w / 8 * 64 + w % 8 * 4;
                    this->put(slab, rows, to, Avx512::low_nibbles(words[w]));
                    this->put(slab, rows, to + 32, Avx512::high_nibbles(words[w]));
                }
            }
        } else if constexpr (type == Element::q5_k) {
            // The same; bit j of byte i is the fifth one of value 32 j + i.
            turn(16, bits, 32);
            for (int64_t half = 0; half < 2; ++half) {
                turn(48 + 64 * half, words);
#pragma GCC unroll 16
                for (int64_t w = 0; w < 16; ++w) {
                    const int64_t sub = 4 * half + w / 8 * 2, to = at + sub * 32 + w % 8 * 4;
                    const __m512i fifth = bits[w % 8];
                    this->put(slab, rows, to, merge_moved(Avx512::low_nibbles(words[w]), fifth, sub, 4, 0x10));
                    this->put(slab, rows, to + 32, merge_moved(Avx512::high_nibbles(words[w]), fifth, sub + 1, 4, 0x10));
                }
            }
        } else if constexpr (type == Element::q6_k) {
            // Of 128 values, 64 bytes hold the lower four bits and 32 bytes the upper two, those of all four quarters in each.
            turn(128, bits);
            for (int64_t half = 0; half < 2; ++half) {
                turn(64 * half, words);
#pragma GCC unroll 16
                for (int64_t w = 0; w < 16; ++w) {
                    const int64_t quarter = w / 8, to = at + 128 * half + w * 4;
                    const __m512i upper = bits[8 * half + w % 8];
                    this->put(slab, rows, to, merge_moved(Avx512::low_nibbles(words[w]), upper, 2 * quarter, 4, 0x30));
                    this->put(slab, rows, to + 64, merge_moved(Avx512::high_nibbles(words[w]), upper, 2 * quarter + 4, 4, 0x30));
                }
            }
        } else {
            // q2_k and q3_k: of 128 values, 32 bytes hold two bits of each quarter; q3_k has a third as q5_k has its fifth.
            turn(type == Element::q2_k ? 16 : 32, words);
            if constexpr (type == Element::q3_k) turn(0, bits, 32);
#pragma GCC unroll 16
            for (int64_t w = 0; w < 16; ++w)
#pragma GCC unroll 4
                for (int64_t quarter = 0; quarter < 4; ++quarter) {
                    const int64_t sub = w / 8 * 4 + quarter;
                    __m512i code = Avx512::keep(moved(words[w], 2 * quarter, 0), 3);
                    if constexpr (type == Element::q3_k) code = merge_moved(code, bits[w % 8], sub, 2, 4);
                    this->put(slab, rows, at + sub * 32 + w % 8 * 4, code);
                }
        }
    }

    void scales(Slab<Span>& slab, const SixteenRows& rows, int64_t first, int64_t columns) const {
        for (int64_t k = 0; k < columns; k += 256) block_scales(slab, rows, first + k, k / Span);
    }

private:
    // Bits that stand from `from` on in each byte, moved so that they stand from `to` on, with others around them.
    static __m512i moved(__m512i bytes, int64_t from, int64_t to) {
        return _mm512_rorv_epi32(bytes, _mm512_set1_epi32(int((from - to + 32) % 32)));
    }
    static __m512i merge_moved(__m512i codes, __m512i bytes, int64_t from, int64_t to, int mask) {
        return Avx512::merge(codes, moved(bytes, from, to), mask);
    }

    // Four numbers, in the bytes of words and so much too large, times what scales them.
    template <int zero = 0, class Put>
    static void put_bytes(__m512i bytes, __m512 unit, int64_t s, const Put& put) {
        put(s, _mm512_mul_ps(Avx512::byte_numbers<0, zero>(bytes), unit));
        put(s + 1, _mm512_mul_ps(Avx512::byte_numbers<1, zero>(bytes), unit));
        put(s + 2, _mm512_mul_ps(Avx512::byte_numbers<2, zero>(bytes), unit));
        put(s + 3, _mm512_mul_ps(Avx512::byte_numbers<3, zero>(bytes), unit));
    }
    static __m512 negative(__m512 v) { return _mm512_xor_ps(v, _mm512_set1_ps(-0.0f)); }

    void block_scales(Slab<Span>& slab, const SixteenRows& rows, int64_t k, int64_t s) const {
        const auto part = [&](int64_t at) { return [k, at](const uint8_t* row) { return Base::block(row, k) + at; }; };
        const auto scale = [&](int64_t at, __m512 number) { this->put_scale(slab, rows, at, number); };
        const auto minimum = [&](int64_t at, __m512 number) { this->put_extra(slab, rows, at, number); };
        const __m512i four = _mm512_set1_epi8(15), six = _mm512_set1_epi8(63), upper_two = _mm512_set1_epi8(48);
        const auto keep = [](__m512i v, __m512i mask) { return _mm512_and_si512(v, mask); };
        __m512i words[4];
        if constexpr (type == Element::q4_k || type == Element::q5_k) {
            turn_rows(rows, words, 0xffff, part(0));
            const __m512 unit = lower_halves(words[0]), minimum_unit = negative(upper_halves(words[0]));
            const __m512i a = words[1], b = words[2], c = words[3];
            put_bytes(keep(a, six), unit, s, scale);
            put_bytes(Avx512::merge(keep(c, four), _mm512_srli_epi32(a, 2), 48), unit, s + 4, scale);
            put_bytes(keep(b, six), minimum_unit, s, minimum);
            put_bytes(Avx512::merge(keep(_mm512_srli_epi32(c, 4), four), _mm512_srli_epi32(b, 2), 48), minimum_unit, s + 4, minimum);
        } else if constexpr (type == Element::q6_k) {
            turn_rows(rows, words, 0xffff, part(192));
            const __m512 unit = row_halves(rows, part(208));
            for (int64_t w = 0; w < 4; ++w) put_bytes<128>(Avx512::add_offset(words[w]), unit, s + 4 * w, scale);
        } else if constexpr (type == Element::q3_k) {
            turn_rows(rows, words, 0x3fff, part(96));
            const __m512i a = words[0], b = words[1], c = words[2];
            const __m512 unit = lower_halves(words[3]);
            const auto join = [&](__m512i low, __m512i high) { return _mm512_or_si512(keep(low, four), keep(high, upper_two)); };
            put_bytes<32>(join(a, _mm512_slli_epi32(c, 4)), unit, s, scale);
            put_bytes<32>(join(b, _mm512_slli_epi32(c, 2)), unit, s + 4, scale);
            put_bytes<32>(join(_mm512_srli_epi32(a, 4), c), unit, s + 8, scale);
            put_bytes<32>(join(_mm512_srli_epi32(b, 4), _mm512_srli_epi32(c, 2)), unit, s + 12, scale);
        } else {
            turn_rows(rows, words, 0xffff, part(0));
            const __m512 unit = row_halves(rows, part(80)), minimum_unit = negative(row_halves(rows, part(82)));
            for (int64_t w = 0; w < 4; ++w) {
                put_bytes(keep(words[w], four), unit, s + 4 * w, scale);
                put_bytes(keep(_mm512_srli_epi32(words[w], 4), four), minimum_unit, s + 4 * w, minimum);
            }
        }
    }
};

// use<Source>() for the source that decodes a weight of this kind; long_spans: tokens have no scales that change every 32 values.
template <class Codes, Extra extra, class Use>
auto with_running_source(const CodedWeight& kind, bool long_spans, const Use& use) {
    const auto shares = [&](int64_t span) { return kind.group >= kind.columns || kind.group % span == 0; };
    if (long_spans && shares(128)) return use.template operator()<RunningSource<Codes, 128, extra>>();
    if (shares(32)) return use.template operator()<RunningSource<Codes, 32, extra>>();
    return use.template operator()<RunningSource<Codes, 16, extra>>();
}

template <class Use>
auto with_source(const CodedWeight& kind, bool long_spans, const Use& use) {
    switch (kind.element) {
    case Element::int4: return with_running_source<Int4Codes, Extra::none>(kind, long_spans, use);
    case Element::uint4: return with_running_source<Uint4Codes, Extra::zeros>(kind, long_spans, use);
    case Element::fp4_e2m1: return with_running_source<Fp4Codes, Extra::none>(kind, long_spans, use);
    case Element::int8: return with_running_source<Int8Codes, Extra::none>(kind, long_spans, use);
    case Element::uint8: return with_running_source<Uint8Codes, Extra::zeros>(kind, long_spans, use);
    case Element::q4_0: return use.template operator()<SmallSource<Element::q4_0, Extra::none, 8>>();
    case Element::q4_1: return use.template operator()<SmallSource<Element::q4_1, Extra::minimums, 0>>();
    case Element::q5_0: return use.template operator()<SmallSource<Element::q5_0, Extra::none, 16>>();
    case Element::q5_1: return use.template operator()<SmallSource<Element::q5_1, Extra::minimums, 0>>();
    case Element::q8_0: return use.template operator()<SmallSource<Element::q8_0, Extra::none, 128>>();
    case Element::iq4_nl: return use.template operator()<SmallSource<Element::iq4_nl, Extra::none, 128>>();
    case Element::q2_k: return use.template operator()<SuperSource<Element::q2_k, 16, Extra::minimums, 0>>();
    case Element::q3_k: return use.template operator()<SuperSource<Element::q3_k, 16, Extra::none, 4>>();
    case Element::q4_k: return use.template operator()<SuperSource<Element::q4_k, 32, Extra::minimums, 0>>();
    case Element::q5_k: return use.template operator()<SuperSource<Element::q5_k, 32, Extra::minimums, 0>>();
    default: return use.template operator()<SuperSource<Element::q6_k, 16, Extra::none, 32>>();
    }
}

}  // namespace
}  // namespace lowbit::cpu
