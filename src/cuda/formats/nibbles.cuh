// How a word of eight 4-bit codes becomes the four registers of a 16-row fragment. One struct per kind of code and type of number.
//
// Nibble j of the word, j = 0..3, is the even column of register j, nibble j + 4 the odd one; registers 0 and 2 belong to row g of the
// tile, 1 and 3 to row g + 8. (fp4, nf4 and iq4_nl: as core/packed.hpp draws them.) What depends on the row and the group (zero points)
// is fetched as `GroupBits` and kept as `Group`.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <bit>

#include "cuda/gemm/group_scales.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/shared_memory.cuh"
#include "reference/ggml_simple.hpp"
#include "reference/values.hpp"

namespace lowbit::cuda {

// A code or-ed into the mantissa of a power of two whose last mantissa bit counts 1 reads as that power plus the code, exactly.
template <class Mma>
struct Magic;
template <>
struct Magic<ptx::MmaBf16> {
    static constexpr uint32_t bits = 0x43004300u;  // 128
    using Pair = __nv_bfloat162;
    static __device__ Pair pair(int integer) { return __float2bfloat162_rn(128.0f + float(integer)); }
};
template <>
struct Magic<ptx::MmaFp16> {
    static constexpr uint32_t bits = 0x64006400u;  // 1024
    using Pair = __half2;
    static __device__ Pair pair(int integer) { return __float2half2_rn(1024.0f + float(integer)); }
};

template <class Pair>
__device__ inline Pair as_pair(uint32_t bits) {
    return *reinterpret_cast<const Pair*>(&bits);
}
template <class Pair>
__device__ inline uint32_t as_bits(Pair pair) {
    return *reinterpret_cast<const uint32_t*>(&pair);
}

// Arithmetic on two numbers in a word.
template <class Mma>
struct PairsOf {
    using Pair = typename Magic<Mma>::Pair;
    __device__ static uint32_t both(float value) {
        if constexpr (std::is_same_v<Mma, ptx::MmaBf16>)
            return as_bits(__float2bfloat162_rn(value));
        else
            return as_bits(__float2half2_rn(value));
    }
    __device__ static uint32_t multiply(uint32_t a, uint32_t b) { return as_bits(__hmul2(as_pair<Pair>(a), as_pair<Pair>(b))); }
    __device__ static uint32_t multiply_add(uint32_t a, uint32_t b, uint32_t c) {
        return as_bits(__hfma2(as_pair<Pair>(a), as_pair<Pair>(b), as_pair<Pair>(c)));
    }
    // One of the two, as both: many instructions take it so by themselves.
    __device__ static uint32_t twice(uint32_t pair, int which) {
        const Pair numbers = as_pair<Pair>(pair);
        return as_bits(Pair(which ? numbers.y : numbers.x, which ? numbers.y : numbers.x));
    }
};

// Decoders that need nothing of a group.
struct AnyGroup {
    static constexpr bool less_eight = false;
    struct Group {};
    struct GroupBits {};
    __device__ static GroupBits fetch_group(const GroupScales&, int64_t, int) { return {}; }
    __device__ static void open_group(Group&, GroupBits) {}
};

// How two codes of a half word become numbers less a zero, exactly, without a shift: the one in its lowest four bits, and the one above.
// (The other two need one shift for both.) A code in the mantissa of a power of two whose last bit counts 1 reads as that power plus the
// code, and one subtraction takes off the power and the zero.
template <class Mma>
struct NibbleNumber;
template <>
struct NibbleNumber<ptx::MmaFp16> {
    __device__ static constexpr float unit(int) { return 1.0f; }
    __device__ static constexpr uint32_t magic(int j) { return j ? 0x54005400u : 0x64006400u; }
    __device__ static uint32_t offset(int j, float zero) { return PairsOf<ptx::MmaFp16>::both(-(j ? 64.0f : 1024.0f) - zero); }
    // Of two zero points in bytes, without a conversion.
    __device__ static void set_offsets(uint32_t (&offset)[2], uint32_t zeros) {
        offset[0] = 0xe400e400u | (zeros & 0xffu) * 0x10001u;
        offset[1] = 0xd400d400u | (zeros >> 8) * 0x100010u;
    }
    __device__ static uint32_t number(int, uint32_t bits, uint32_t offset) {
        return as_bits(__hadd2(as_pair<__half2>(bits), as_pair<__half2>(offset)));
    }
};
// The mantissa of bf16 is too short for the upper code: its highest bit falls into the exponent. But the numbers around the smallest normal
// one count evenly: those eight bits alone are code * 2^-129, and one multiplication and addition makes it a quarter of the code less the
// zero.
template <>
struct NibbleNumber<ptx::MmaBf16> {
    __device__ static constexpr float unit(int j) { return j ? 4.0f : 1.0f; }
    __device__ static constexpr uint32_t magic(int j) { return j ? 0 : 0x43004300u; }
    __device__ static uint32_t offset(int j, float zero) { return PairsOf<ptx::MmaBf16>::both(j ? -0.25f * zero : -128.0f - zero); }
    // Of two zero points in bytes, without a conversion.
    __device__ static void set_offsets(uint32_t (&offset)[2], uint32_t zeros) {
        offset[0] = 0xc300c300u | (zeros & 0xffu) * 0x10001u;
#if !LOWBIT_TURING
        offset[1] = PairsOf<ptx::MmaBf16>::multiply((zeros >> 8) * 0x100010u, 0xff00ff00u);  // by -2^127
#endif
    }
    __device__ static uint32_t number(int j, uint32_t bits, uint32_t offset) {
        if (!j) return as_bits(__hadd2(as_pair<__nv_bfloat162>(bits), as_pair<__nv_bfloat162>(offset)));
#if LOWBIT_TURING
        return 0;  // no product of bf16 runs there
#else
        constexpr uint32_t power = 0x7f007f00u;  // 2^127
        return PairsOf<ptx::MmaBf16>::multiply_add(bits, power, offset);
#endif
    }
};

// The codes of a word, less the zeros of rows g and g + 8 that are in `offset`.
template <class Mma>
__device__ inline void decode_nibbles(uint32_t (&a)[4], uint32_t word, const uint32_t (&offset)[2]) {
    using Number = NibbleNumber<Mma>;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const uint32_t mask = j % 2 ? 0x00f000f0u : 0x000f000fu;
        a[j] = Number::number(j % 2, ptx::mask_or(word >> (j / 2 * 8), mask, Number::magic(j % 2)), offset[j % 2]);
    }
}

// int4 and q4_0: code less 8.
template <class Mma>
struct SignedNibbles : AnyGroup {
    using Pairs = PairsOf<Mma>;
    static constexpr bool less_eight = true;
    __device__ static constexpr float code_unit(int half) { return NibbleNumber<Mma>::unit(half); }
    __device__ static void decode(uint32_t (&a)[4], uint32_t word, const Group&) {
        const uint32_t offset[2] = {NibbleNumber<Mma>::offset(0, 8.0f), NibbleNumber<Mma>::offset(1, 8.0f)};
        decode_nibbles<Mma>(a, word, offset);
    }
};

// uint4: code less its group's zero point.
template <class Mma>
struct UnsignedNibbles {
    using Pairs = PairsOf<Mma>;
    static constexpr bool less_eight = false;
    struct Group {
        uint32_t offset[2];  // rows g and g + 8
    };
    using GroupBits = uint32_t;
    __device__ static constexpr float code_unit(int half) { return NibbleNumber<Mma>::unit(half); }
    __device__ static GroupBits fetch_group(const GroupScales& scales, int64_t offset, int which) {
        return scales.zero_pair(offset, which);
    }
    __device__ static void open_group(Group& group, GroupBits zeros) {
        group.offset[0] = NibbleNumber<Mma>::offset(0, float(int(zeros & 0xff)));
        group.offset[1] = NibbleNumber<Mma>::offset(1, float(int(zeros >> 8)));
    }
    __device__ static void decode(uint32_t (&a)[4], uint32_t word, const Group& group) { decode_nibbles<Mma>(a, word, group.offset); }
};

// fp4 (e2m1): sign, exponent and mantissa in the places that 16-bit numbers have for them (the lowest bits of the exponent, the highest of
// the mantissa) are its value / unit. The order of its bits in a word is made for bf16: two codes take one mask, two two.
template <class Mma>
struct Fp4Number;
template <>
struct Fp4Number<ptx::MmaBf16> {
    static constexpr float unit = 0x1p126f;
    __device__ static void decode(uint32_t (&a)[4], uint32_t word) {
        constexpr uint32_t sign = 0x80008000u, rest = 0x01c001c0u;
        a[0] = word << 6 & (sign | rest);
        a[1] = word << 3 & (sign | rest);
        a[2] = ptx::mask_or(word << 4, sign, word & rest);
        a[3] = ptx::mask_or(word << 5, sign, word >> 7 & rest);
    }
};
template <>
struct Fp4Number<ptx::MmaFp16> {
    static constexpr float unit = 0x1p14f;
    __device__ static void decode(uint32_t (&a)[4], uint32_t word) {
        constexpr uint32_t sign = 0x80008000u, rest = 0x0e000e00u;
        a[0] = ptx::mask_or(word << 6, sign, word << 9 & rest);
        a[1] = ptx::mask_or(word << 3, sign, word << 6 & rest);
        a[2] = ptx::mask_or(word << 4, sign, word << 3 & rest);
        a[3] = ptx::mask_or(word << 5, sign, word >> 4 & rest);
    }
};
template <class Mma>
struct Fp4Nibbles : AnyGroup {
    using Pairs = PairsOf<Mma>;
    __device__ static void decode(uint32_t (&a)[4], uint32_t word, const Group&) {
        Fp4Number<Mma>::decode(a, word);
#if !LOWBIT_TURING  // where no product of bf16 runs
        constexpr bool decodes = true;
#else
        constexpr bool decodes = std::is_same_v<Mma, ptx::MmaFp16>;
#endif
        if constexpr (decodes)
#pragma unroll
            for (int j = 0; j < 4; ++j) a[j] = Pairs::multiply(a[j], Pairs::both(Fp4Number<Mma>::unit));
    }
};

// nf4, iq4_nl: sixteen levels, looked up eight bytes at a time. A level's low and high bytes are picked out of registers with byte
// permutes: the table never touches memory. Bit 3 of a code says which half of the table, bits 0..2 the entry.
template <class Mma, Element E>
struct LevelNibbles : AnyGroup {
    using Pairs = PairsOf<Mma>;
    static constexpr uint16_t level_bits(int code) {
        const float value = level(code);
        const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
        if (std::is_same_v<Mma, ptx::MmaBf16>) return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        // No level is a subnormal of fp16.
        return magnitude == 0 ? uint16_t(0)
                              : uint16_t((bits >> 16 & 0x8000) | ((magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13) - (112u << 10));
    }
    static constexpr float level(int code) {
        return E == Element::nf4 ? reference::nf4_levels.values[code] : reference::ggml::iq4_nl_levels.values[code];
    }
    // Four bytes of the table: byte `part` of levels first .. first + 3.
    static constexpr uint32_t table(int first, int part) {
        uint32_t word = 0;
        for (int i = 0; i < 4; ++i) word |= uint32_t(level_bits(first + i) >> (8 * part) & 0xff) << (8 * i);
        return word;
    }
    template <int First, int Part>
    struct TableWord {
        static constexpr uint32_t value = table(First, Part);
    };
    // The byte `Part` of four levels: `entry` has bits 0..2 of their codes, `half` picks by bit 3 from the lower or the upper eight.
    template <int Part>
    __device__ static uint32_t look_up(uint32_t entry, uint32_t half) {
        const uint32_t low = __byte_perm(TableWord<0, Part>::value, TableWord<4, Part>::value, entry);
        const uint32_t high = __byte_perm(TableWord<8, Part>::value, TableWord<12, Part>::value, entry);
        return __byte_perm(low, high, half);
    }
    __device__ static void decode(uint32_t (&a)[4], uint32_t word, const Group&) {
#pragma unroll
        for (int pair = 0; pair < 2; ++pair) {
            // Two nibbles of a[2 pair], then two of a[2 pair + 1]. (Byte permutes ignore the upper half.)
            const uint32_t codes = pair ? word >> 16 : word;
            // For byte i of a result: byte i of `low`, or byte i of `high` (4 + i).
            const uint32_t entry = codes & 0x7777u, half = ptx::mask_or(codes >> 1, 0x4444u, 0x3210u);
            const uint32_t lower = look_up<0>(entry, half), upper = look_up<1>(entry, half);
            a[2 * pair] = __byte_perm(lower, upper, 0x5140);
            a[2 * pair + 1] = __byte_perm(lower, upper, 0x7362);
        }
    }
};

// The same out of shared memory, two levels at a time: a byte of a word holds the codes of neighbouring columns, a register of the
// fragment. A table of all 256 bytes stands there once for every lane, in a bank of its own: four loads and eight instructions for eight
// codes, where byte permutes take 23.
template <class Mma, Element E>
struct LevelTable {
    static constexpr int bytes = 256 * 128;
    // By `threads` threads.
    __device__ static void fill(uint8_t* table, int thread, int threads) {
        for (int index = thread; index < bytes / 16; index += threads) {
            const int codes = index / 8;
            uint32_t pair[4];  // the first: of nibbles 0 and 1
            LevelNibbles<Mma, E>::decode(pair, uint32_t(codes), {});
            *reinterpret_cast<uint4*>(table + index * 16) = make_uint4(pair[0], pair[0], pair[0], pair[0]);
        }
    }
    // `table`: its address in shared memory.
    __device__ static void decode(uint32_t (&a)[4], uint32_t word, uint32_t table) {
        const uint32_t lane = threadIdx.x % 32 * 4;
        const auto look_up = [&](uint32_t moved) { return ptx::load_4(table + ptx::mask_or(moved, 0x7f80u, lane)); };
        a[0] = look_up(word << 7), a[1] = look_up(word >> 1), a[2] = look_up(word >> 9), a[3] = look_up(word >> 17);
    }
};

}  // namespace lowbit::cuda
