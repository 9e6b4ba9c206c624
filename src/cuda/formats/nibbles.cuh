// How a word of eight 4-bit codes becomes the four registers of a 16-row fragment. One struct per kind of code and type of number.
//
// Nibble j of the word, j = 0..3, is the even column of register j, nibble j + 4 the odd one; registers 0 and 2 belong to row g of the
// tile, 1 and 3 to row g + 8. What depends on the row and the group (zero points) is fetched as `GroupBits` and kept as `Group`.
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
    struct Group {};
    struct GroupBits {};
    __device__ static GroupBits fetch_group(const GroupScales&, int64_t, int) { return {}; }
    __device__ static void open_group(Group&, GroupBits) {}
};

// int4 and q4_0: code less 8.
template <class Mma>
struct SignedNibbles : AnyGroup {
    using Pairs = PairsOf<Mma>;
    __device__ static void decode(uint32_t (&a)[4], uint32_t word, const Group&) {
        using Pair = typename Magic<Mma>::Pair;
        const Pair bias = Magic<Mma>::pair(8);
#pragma unroll
        for (int j = 0; j < 4; ++j)
            a[j] = as_bits(__hsub2(as_pair<Pair>(ptx::mask_or(word >> (4 * j), 0x000f000fu, Magic<Mma>::bits)), bias));
    }
};

// uint4: code less its group's zero point.
template <class Mma>
struct UnsignedNibbles {
    using Pairs = PairsOf<Mma>;
    struct Group {
        typename Magic<Mma>::Pair bias[2];  // rows g and g + 8
    };
    using GroupBits = uint32_t;
    __device__ static GroupBits fetch_group(const GroupScales& scales, int64_t offset, int which) {
        return scales.zero_pair(offset, which);
    }
    __device__ static void open_group(Group& group, GroupBits zeros) {
        group.bias[0] = Magic<Mma>::pair(int(zeros & 0xff));
        group.bias[1] = Magic<Mma>::pair(int(zeros >> 8));
    }
    __device__ static void decode(uint32_t (&a)[4], uint32_t word, const Group& group) {
        using Pair = typename Magic<Mma>::Pair;
#pragma unroll
        for (int j = 0; j < 4; ++j)
            a[j] = as_bits(__hsub2(as_pair<Pair>(ptx::mask_or(word >> (4 * j), 0x000f000fu, Magic<Mma>::bits)), group.bias[j % 2]));
    }
};

// fp4, nf4, iq4_nl: sixteen levels, looked up eight bytes at a time. A level's low and high bytes are picked out of registers with byte
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
        constexpr float fp4[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
        if (E == Element::fp4_e2m1) return code < 8 ? fp4[code] : -fp4[code - 8];
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
            // Nibbles of a[2 pair] and a[2 pair + 1]: their even columns, then their odd ones.
            const uint32_t codes = __byte_perm(word, 0, pair ? 0x4431 : 0x4420);
            // For byte i of a result: byte i of `low`, or byte i of `high` (4 + i).
            const uint32_t entry = codes & 0x7777u, half = ptx::mask_or(codes >> 1, 0x4444u, 0x3210u);
            const uint32_t lower = look_up<0>(entry, half), upper = look_up<1>(entry, half);
            a[2 * pair] = __byte_perm(lower, upper, 0x6240);
            a[2 * pair + 1] = __byte_perm(lower, upper, 0x7351);
        }
    }
};

}  // namespace lowbit::cuda
