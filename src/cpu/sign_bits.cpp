#include <algorithm>
#include <cstring>

#include "core/status.hpp"
#include "cpu/convolve.hpp"

namespace lowbit::cpu {
namespace {

// What a number's bits say of its sign. Those below 0 are the patterns from the smallest negative one to that of -infinity: one comparison,
// which leaves out -0 and NaN.
template <class Word, Word infinity>
struct Numbers {
    using Type = Word;
    static constexpr Word first_negative = Word((Word(1) << (8 * sizeof(Word) - 1)) + 1);
    static uint8_t is_negative(Word number) { return Word(number - first_negative) < infinity; }
};
using Fp32 = Numbers<uint32_t, 0x7f800000>;
using Fp16 = Numbers<uint16_t, 0x7c00>;
using Bf16 = Numbers<uint16_t, 0x7f80>;

// Eight bytes of 0 or 1 as the bits of one, the first byte as the lowest: every product of a byte with the one power of two that takes it
// to the highest byte lands there, and no two land in one place.
uint8_t gather_bits(const uint8_t* flags) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, flags, 8);
    return uint8_t(bytes * 0x0102040810204080 >> 56);
}

// Rows, and images, that follow each other without a gap are one long row: loops along pixels are then long.
core::Images joined(core::Images x) {
    if (x.strides[2] == x.width * x.strides[3] || x.height == 1) x.width *= x.height, x.height = 1;
    if (x.height == 1 && (x.strides[0] == x.width * x.strides[3] || x.images == 1)) x.width *= x.images, x.images = 1;
    return x;
}

template <class Number>
class SignPacker {
public:
    using Word = typename Number::Type;

    SignPacker(const core::SignBitsProblem& problem, const core::Images& x)
        : x_(x), groups_(problem.groups), channels_(x.channels / problem.groups), bits_(problem.bits) {}

    // Pixels of one row.
    void pack(int64_t image, int64_t row, int64_t column, int64_t count) const {
        const Word* pixels = static_cast<const Word*>(x_.data) + x_.offset(image, 0, row, column);
        uint8_t* bits = bits_ + ((image * x_.height + row) * x_.width + column) * pixel_bytes();
        for (int64_t group = 0; group < groups_; ++group) {
            const Word* from = pixels + group * channels_ * x_.strides[1];
            uint8_t* to = bits + group * core::bytes_of_bits(channels_);
            if (x_.strides[1] == 1)
                along_channels(from, to, count);
            else
                along_pixels(from, to, count);
        }
    }

private:
    static constexpr int64_t block = 256;

    int64_t pixel_bytes() const { return groups_ * core::bytes_of_bits(channels_); }

    // Channels that lie side by side.
    void along_channels(const Word* from, uint8_t* to, int64_t count) const {
        alignas(64) uint8_t flags[block];
        for (int64_t pixel = 0; pixel < count; ++pixel)
            for (int64_t first = 0; first < channels_; first += block) {
                const int64_t here = std::min(block, channels_ - first);
                const Word* numbers = from + pixel * x_.strides[3] + first;
                for (int64_t i = 0; i < here; ++i) flags[i] = Number::is_negative(numbers[i]);
                for (int64_t i = here; i % 8 != 0; ++i) flags[i] = 0;
                uint8_t* bytes = to + pixel * pixel_bytes() + first / 8;
                for (int64_t i = 0; i < here; i += 8) bytes[i / 8] = gather_bits(flags + i);
            }
    }

    // Pixels that lie side by side, or nothing that does: a byte of many pixels at a time.
    void along_pixels(const Word* from, uint8_t* to, int64_t count) const {
        alignas(64) uint8_t bytes[block];
        for (int64_t first = 0; first < count; first += block) {
            const int64_t here = std::min(block, count - first), step = x_.strides[3];
            for (int64_t channel = 0; channel < channels_; channel += 8) {
                std::fill_n(bytes, here, uint8_t(0));
                for (int64_t bit = 0; bit < std::min<int64_t>(8, channels_ - channel); ++bit) {
                    const Word* numbers = from + (channel + bit) * x_.strides[1] + first * step;
                    if (step == 1)
                        for (int64_t i = 0; i < here; ++i) bytes[i] = uint8_t(bytes[i] | Number::is_negative(numbers[i]) << bit);
                    else
                        for (int64_t i = 0; i < here; ++i) bytes[i] = uint8_t(bytes[i] | Number::is_negative(numbers[i * step]) << bit);
                }
                uint8_t* column = to + first * pixel_bytes() + channel / 8;
                for (int64_t i = 0; i < here; ++i) column[i * pixel_bytes()] = bytes[i];
            }
        }
    }

    const core::Images& x_;
    int64_t groups_, channels_;  // of a group
    uint8_t* bits_;
};

template <class Number>
void pack(const core::SignBitsProblem& problem) {
    const core::Images x = joined(problem.x);
    const SignPacker<Number> packer(problem, x);
    // Parts of a row with about so many numbers: enough to be worth a thread's while.
    constexpr int64_t part_numbers = 1 << 15;
    const int64_t part = std::max<int64_t>(16, part_numbers / x.channels), parts = core::ceil_div(x.width, part);
    problem.context->parallel(x.images * x.height * parts, [&](int64_t index) {
        const int64_t row = index / parts, first = index % parts * part;
        packer.pack(row / x.height, row % x.height, first, std::min(part, x.width - first));
    });
}

}  // namespace

void run_sign_bits(const core::SignBitsProblem& problem) {
    if (problem.x.is_empty()) return;
    switch (problem.x.element) {
    case Element::fp16: return pack<Fp16>(problem);
    case Element::bf16: return pack<Bf16>(problem);
    default: return pack<Fp32>(problem);
    }
}

}  // namespace lowbit::cpu
