// GGML types whose tiles are not nibbles with one scale each: codes of 2 to 8 bits in planes, with the terms of their blocks.
//
//     stage of a k block     atoms of its 64 values | fp16 numbers of its blocks | K types: the bytes that they multiply
//
// A value is scale * (code - zero) or scale * code + minimum, in numbers of the tokens' type: scale and minimum are rounded to it once, and
// their product or sum with the exact integer once more. In bf16 that is one multiply-add (small_numbers.cuh).
#pragma once
#include "cuda/formats/tile_codes.cuh"
#include "cuda/hopper/launch.cuh"

namespace lowbit::cuda {

// Two fp16 numbers, of rows g and g + 8, that multiply pairs of bytes less Bias: exact products, rounded once.
template <class Mma, int Bias>
struct ByteFactors;

template <int Bias>
struct ByteFactors<ptx::MmaFp16, Bias> {
    using Read = Magic<ptx::MmaFp16>;
    uint32_t numbers;
    __device__ explicit ByteFactors(uint32_t halves) : numbers(halves) {}
    // Bytes `first` and first + 1 of the word.
    __device__ uint32_t times(uint32_t word, int first) const {
        const uint32_t read = __byte_perm(word, Read::bits, 0x5150u + uint32_t(first) * 0x101u);
        return PairsOf<ptx::MmaFp16>::multiply(as_bits(__hsub2(as_pair<__half2>(read), Read::pair(Bias))), numbers);
    }
};

// A byte in the mantissa of 2^15 is less 2^15 + Bias in the addition that the multiplication brings along. Nothing is rounded before the
// end: the number has 11 bits and 2^15 + Bias at most 9.
template <int Bias>
struct ByteFactors<ptx::MmaBf16, Bias> {
    float number[2], offset[2];
    __device__ explicit ByteFactors(uint32_t halves) {
        const float2 numbers = __half22float2(as_pair<__half2>(halves));
        number[0] = numbers.x, number[1] = numbers.y;
        offset[0] = -(32768.0f + Bias) * numbers.x, offset[1] = -(32768.0f + Bias) * numbers.y;
    }
    __device__ uint32_t times(uint32_t word, int first) const {
        float product[2];
#pragma unroll
        for (int i = 0; i < 2; ++i)
            product[i] = fmaf(__uint_as_float(__byte_perm(word, 0x47000000u, 0x7404u + uint32_t(first + i) * 16)), number[i], offset[i]);
        return as_bits(__floats2bfloat162_rn(product[0], product[1]));
    }
};

// What the codes of a k block are multiplied with, and what is added then: words of two numbers, of rows g and g + 8.
template <class Mma, Element E>
struct BlockFactors {
    static constexpr core::TileBlock block = core::tile_block(E);
    static constexpr int groups = int(core::TileGrid::columns_per_atom) / block.group;
    uint32_t scale[groups], minimum[block.minimums ? groups : 1];

    // Where rows g and g + 8 have their fp16 numbers and their bytes in shared memory.
    __device__ void load(uint32_t halves, uint32_t integers) {
        if constexpr (block.is_super()) {
            uint32_t numbers[2];
            load_halves(numbers, halves);
            const uint2 two = ptx::load_8(integers);
            set_products(numbers, {two.x, two.y});
        } else {
#pragma unroll
            for (int group = 0; group < groups; ++group) {
                uint32_t numbers[2];
                load_halves(numbers, halves + uint32_t(group * block.half_bytes()));
                scale[group] = from_halves(numbers[0]);
                if constexpr (block.minimums) minimum[group] = from_halves(numbers[1]);
            }
        }
    }

    // Two integers of row g (half 0) or g + 8 as the numbers they stand for.
    __device__ uint32_t value(uint32_t integers, int group, int half) const {
        using Pairs = PairsOf<Mma>;
        const uint32_t factor = Pairs::twice(scale[group], half);
        if constexpr (block.minimums)
            return Pairs::multiply_add(integers, factor, Pairs::twice(minimum[group], half));
        else
            return Pairs::multiply(integers, factor);
    }

private:
    __device__ static void load_halves(uint32_t (&numbers)[2], uint32_t place) {
        if constexpr (block.minimums) {
            const uint2 two = ptx::load_8(place);
            numbers[0] = two.x, numbers[1] = two.y;
        } else {
            numbers[0] = ptx::load_4(place);
        }
    }
    __device__ static uint32_t from_halves(uint32_t pair) { return std::is_same_v<Mma, ptx::MmaBf16> ? half_pair_to_bfloat(pair) : pair; }

    // K types. A word has the scales of the two rows and then their minimums, or the bytes of two groups: signed scales, or a scale with
    // the minimum above it.
    __device__ void set_products(const uint32_t (&numbers)[2], const uint32_t (&words)[2]) {
        constexpr bool word_each = block.integers == 2, nibbles = block.minimums && !word_each;
        constexpr int bias = block.minimums ? 0 : 128;
        const ByteFactors<Mma, bias> factors(numbers[0]);
#pragma unroll
        for (int group = 0; group < groups; ++group) {
            const uint32_t word = words[word_each ? group : group / 2];
            scale[group] = factors.times(nibbles ? word & 0x0f0f0f0fu : word ^ bias * 0x01010101u, word_each ? 0 : group % 2 * 2);
        }
        if constexpr (block.minimums) {
            const ByteFactors<Mma, 0> subtracted(numbers[1] ^ 0x80008000u);
#pragma unroll
            for (int group = 0; group < groups; ++group) {
                const uint32_t word = words[word_each ? group : group / 2];
                minimum[group] = subtracted.times(nibbles ? word >> 4 & 0x0f0f0f0fu : word, word_each ? 2 : group % 2 * 2);
            }
        }
    }
};

template <class Kind_, class Mma, Element E>
struct ScaledBlocks : SourceDefaults {
    using Kind = Kind_;
    static constexpr core::TileBlock block = core::tile_block(E);
    using Codes = AtomCodes<block.bits>;
    using Factors = BlockFactors<Mma, E>;
    using Small = SmallNumbers<Mma>;
    static constexpr float product_unit = Small::product_unit;
    // Against int4, from the number of instructions and what more of them cost nf4.
    static constexpr double decode_cost =
        1.0 + (Codes::high ? 0.1 : 0.0) + (block.is_super() ? 0.05 : 0.0) + (Factors::groups == 4 && block.minimums ? 0.1 : 0.0);

    template <int Rows, int Blocks>
    struct Tile : RegisterFragments<Kind, Blocks> {
        static constexpr int tiles = Rows / 16, atom_bytes = core::tile_atom_bytes(block.bits);
        static constexpr int half_bytes = block.half_bytes() * (block.is_super() ? 1 : Factors::groups);  // of 16 rows
        static constexpr int integer_bytes = block.is_super() ? 128 : 0;                                  // of 16 rows and 128 values
        static constexpr int halves_at = tiles * atom_bytes, integers_at = halves_at + tiles * half_bytes;
        static constexpr int stage_bytes = integers_at + tiles * integer_bytes;
        static_assert(stage_bytes % 128 == 0 && halves_at % 128 == 0 && integers_at % 128 == 0);

        __device__ static void copy(uint8_t* stage, const HopperArgs& args, int row, int k_block, ptx::Barrier* full) {
            const int tile = row / 16;
            ptx::copy_box(stage, args.weight, 0, k_block, tile, full);
            if constexpr (block.is_super()) {
                ptx::copy_box(stage + halves_at, args.scales, 0, k_block / 4, tile, full);
                // Columns count words. A box must begin at a multiple of 16 bytes: two k blocks have the same, and 8 bytes of 16 each.
                const int column = block.half_bytes() / 4 + k_block % 4 / 2 * 32;
                ptx::copy_box(stage + integers_at, args.integers, column, k_block / 4, tile, full);
            } else {
                ptx::copy_box(stage + halves_at, args.scales, 0, k_block * Factors::groups, tile, full);
            }
        }
        __device__ static uint32_t copied_bytes(const HopperArgs&, int) { return stage_bytes; }

        struct Raw {
            Codes codes[Blocks];
            Factors factors[Blocks];
        };
        __device__ static void fetch(Raw& raw, const uint8_t* stage, int first_block, int thread, int k_block, const HopperArgs&) {
            const int lane = thread % 32, warp = thread / 32, g = lane / 4;
            const uint32_t base = ptx::shared_address(stage);
            const int tile = first_block * 4 + warp;
            // Codes last: they are held until the tensor core is waited for, and registers are few while factors are computed.
#pragma unroll
            for (int i = 0; i < Blocks; ++i)
                raw.factors[i].load(base + uint32_t(halves_at + (tile + i * 4) * half_bytes + g * 4 * block.halves()),
                                    base + uint32_t(integers_at + (tile + i * 4) * integer_bytes + g * 16 + k_block % 2 * 8));
#pragma unroll
            for (int i = 0; i < Blocks; ++i) raw.codes[i].load(base + uint32_t((tile + i * 4) * atom_bytes), lane);
        }
        __device__ static void decode(typename Tile::Fragment& fragment, const Raw& raw, const HopperArgs&) {
#pragma unroll
            for (int i = 0; i < Blocks; ++i) {
                const auto numbers = numbers_of(raw.factors[i]);
#pragma unroll
                for (int slot = 0; slot < 2 * ptx::wgmma_steps_per_row; ++slot) {
                    const int step = slot / 2, half = slot % 2, group = step * Factors::groups / ptx::wgmma_steps_per_row;
                    uint32_t integers[2];
                    widen(raw.codes[i], slot, integers);
                    // Columns 2t, 2t + 1 and 2t + 8, 2t + 9 of the step.
                    fragment.a[i][step][half] = numbers.value(integers[0], group, half);
                    fragment.a[i][step][2 + half] = numbers.value(integers[1], group, half);
                }
            }
        }
    };

private:
    // Codes of 4 bits stay where they stand: those of row g + 8 four bits further up.
    static constexpr bool in_place = Small::possible && block.bits == 4;
    // Less what zero is kept as; bytes with a sign are read as code + 128.
    static constexpr float small_zero = block.bits == 8 ? 128.0f : float(block.zero);

    struct SmallFactors {
        uint32_t factor[2][Factors::groups], offset[Factors::groups];
        __device__ explicit SmallFactors(const Factors& factors) {
#pragma unroll
            for (int group = 0; group < Factors::groups; ++group) {
                factor[0][group] = Small::factor(factors.scale[group], 0);
                factor[1][group] = in_place ? Small::factor(factors.scale[group], 4) : factor[0][group];
                offset[group] = block.minimums ? Small::offset(factors.minimum[block.minimums ? group : 0], -1.0f)
                                               : Small::offset(factors.scale[group], small_zero);
            }
        }
        __device__ uint32_t value(uint32_t integers, int group, int half) const {
            return Small::weight(integers, PairsOf<Mma>::twice(factor[half][group], half), PairsOf<Mma>::twice(offset[group], half));
        }
    };
    __device__ static auto numbers_of(const Factors& factors) {
        if constexpr (Small::possible)
            return SmallFactors(factors);
        else
            return factors;
    }

    // The four codes of a slot (core/tile_layout.hpp), less the code of zero: exact. Small numbers: their bits.
    __device__ static void widen(const Codes& codes, int slot, uint32_t (&pairs)[2]) {
        if constexpr (in_place || (Small::possible && block.bits == 8)) {
            const uint32_t word = codes.low_words[slot * block.bits / 8];
#pragma unroll
            for (int i = 0; i < 2; ++i)
                pairs[i] =
                    in_place ? word >> (8 * i) & 0x000f000fu << (slot % 2 * 4) : ptx::mask_xor(word >> (8 * i), 0x00ff00ffu, 0x00800080u);
        } else if constexpr (Small::possible) {
            const uint32_t bytes = codes.fields(slot, 0, 0x01010101u, 0);
#pragma unroll
            for (int i = 0; i < 2; ++i) pairs[i] = __byte_perm(bytes, 0, i ? 0x4341 : 0x4240);
        } else if constexpr (block.bits == 8) {
            pairs[0] = widen_alternate_bytes<Mma>(codes.low_words[slot], 0);
            pairs[1] = widen_alternate_bytes<Mma>(codes.low_words[slot], 1);
        } else {
            using Read = Magic<Mma>;
            const uint32_t bytes = codes.fields(slot, 0, 0x01010101u, 0);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const uint32_t read = __byte_perm(bytes, Read::bits, i ? 0x5351 : 0x5250);
                pairs[i] = as_bits(__hsub2(as_pair<typename Read::Pair>(read), Read::pair(block.zero)));
            }
        }
    }
};

template <class Kind, class Mma>
HopperKernels blocks_kernels(Element element) {
    switch (element) {
    case Element::q8_0: return SomeTilesKernels<ScaledBlocks<Kind, Mma, Element::q8_0>>::all();
    case Element::q4_k: return SomeTilesKernels<ScaledBlocks<Kind, Mma, Element::q4_k>>::all();
    case Element::q5_k: return FewTilesKernels<ScaledBlocks<Kind, Mma, Element::q5_k>>::all();
    case Element::q6_k: return SomeTilesKernels<ScaledBlocks<Kind, Mma, Element::q6_k>>::all();
    case Element::q4_1: return FewTilesKernels<ScaledBlocks<Kind, Mma, Element::q4_1>>::all();
    case Element::q5_0: return FewTilesKernels<ScaledBlocks<Kind, Mma, Element::q5_0>>::all();
    case Element::q5_1: return FewTilesKernels<ScaledBlocks<Kind, Mma, Element::q5_1>>::all();
    case Element::q3_k: return FewTilesKernels<ScaledBlocks<Kind, Mma, Element::q3_k>>::all();
    case Element::q2_k: return FewTilesKernels<ScaledBlocks<Kind, Mma, Element::q2_k>>::all();
    default: return {};
    }
}

}  // namespace lowbit::cuda
