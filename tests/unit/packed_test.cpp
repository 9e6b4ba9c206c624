#include "core/packed.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "core/format.hpp"
#include "lowbit/lowbit.hpp"
#include "verify/random.hpp"

namespace lowbit {
namespace {

TEST(Packed, GivesTheSameProductAsTheQuantizedWeight) {
    const Context context = Context::cpu();
    const std::vector<float> w = verify::normal_values(19 * 256, 1), x = verify::normal_values(3 * 256, 2);
    for (const core::Format& format : core::common_formats()) {
        const Quantized q = quantize(context, view(w.data(), {19, 256}), format.print());
        const Packed p = pack(context, q);
        std::vector<float> from_quantized(3 * 19), from_packed(3 * 19), from_file(3 * 19);
        matmul(context, view(x.data(), {3, 256}), q, view(from_quantized.data(), {3, 19}));
        matmul(context, view(x.data(), {3, 256}), p, view(from_packed.data(), {3, 19}));
        EXPECT_EQ(from_quantized, from_packed) << format.print();
        // The bytes alone are enough, as if read from a file.
        std::unique_ptr<void, void (*)(void*)> bytes(std::aligned_alloc(64, size_t(p.bytes())), std::free);
        std::memcpy(bytes.get(), p.data(), size_t(p.bytes()));
        matmul(context, view(x.data(), {3, 256}), Packed::borrow(bytes.get(), p.bytes()), view(from_file.data(), {3, 19}));
        EXPECT_EQ(from_quantized, from_file) << format.print();
        EXPECT_EQ(pack_bytes(context, q), p.bytes());
        const Packed into = pack_into(context, q, bytes.get(), p.bytes());
        EXPECT_EQ(std::memcmp(bytes.get(), p.data(), size_t(p.bytes())), 0);
    }
}

TEST(Packed, RefusesBytesThatAreNotOne) {
    const Context context = Context::cpu();
    const std::vector<float> w = verify::normal_values(4 * 64, 1);
    const Packed p = pack(context, quantize(context, view(w.data(), {4, 64}), "int4:g32"));
    const size_t size = size_t(p.bytes());
    std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(64, size + 64), std::free);
    auto* bytes = static_cast<unsigned char*>(memory.get());
    const auto refused = [&](size_t offset, unsigned char value, size_t length) {
        std::memcpy(bytes, p.data(), size);
        bytes[offset] = value;
        lowbit_packed* made = nullptr;
        const lowbit_status status = lowbit_packed_borrow(bytes, int64_t(length), &made);
        EXPECT_EQ(made, nullptr);
        return status == LOWBIT_INVALID_ARGUMENT;
    };
    EXPECT_TRUE(refused(0, 'x', size));       // magic
    EXPECT_TRUE(refused(8, 9, size));         // version
    EXPECT_TRUE(refused(12, 9, size));        // layout
    EXPECT_TRUE(refused(16, 99, size));       // element
    EXPECT_TRUE(refused(48, 99, size));       // rows
    EXPECT_TRUE(refused(55, 0x80, size));     // negative rows
    EXPECT_TRUE(refused(0, 'l', size - 64));  // truncated
    EXPECT_TRUE(refused(0, 'l', 5));
    EXPECT_TRUE(refused(0, 'l', size + 64));
    lowbit_packed* made = nullptr;
    EXPECT_EQ(lowbit_packed_borrow(bytes + 1, int64_t(size), &made), LOWBIT_INVALID_ARGUMENT);
    EXPECT_EQ(lowbit_packed_borrow(nullptr, 128, &made), LOWBIT_INVALID_ARGUMENT);
    EXPECT_EQ(lowbit_packed_borrow(bytes, -1, &made), LOWBIT_INVALID_ARGUMENT);
}

// Words of nibbles: the eight codes in the order of integers, and what elements that have an order of their own make of it.
TEST(Packed, WordsOfElementsWithTheirOwnOrder) {
    using core::arrange_word;
    using core::integer_order;
    EXPECT_EQ(arrange_word(Element::int4, 0x76543210u), 0x76543210u);
    EXPECT_EQ(arrange_word(Element::nf4, 0x76543210u), 0x73625140u);  // code j of both halves in byte j
    EXPECT_EQ(arrange_word(Element::iq4_nl, 0xfedc3210u), 0xf3e2d1c0u);
    // 1 (exponent and mantissa 1 in the lowest bit) and -6 (all four bits) in each of the four places.
    const uint32_t one[4] = {1u << 0, 1u << 3, 1u << 6, 1u << 13},
                   all[4] = {7u << 0 | 1u << 9, 7u << 3 | 1u << 12, 7u << 6 | 1u << 11, 7u << 13 | 1u << 10};
    for (int j = 0; j < 4; ++j)
        for (int half = 0; half < 2; ++half) {
            EXPECT_EQ(arrange_word(Element::fp4_e2m1, 1u << (16 * half + 4 * j)), one[j] << (16 * half));
            EXPECT_EQ(arrange_word(Element::fp4_e2m1, 15u << (16 * half + 4 * j)), all[j] << (16 * half));
        }
    uint32_t word = 1;
    for (int i = 0; i < 1000; ++i, word = word * 1664525u + 1013904223u)
        for (const Element element : {Element::int4, Element::nf4, Element::iq4_nl, Element::fp4_e2m1}) {
            EXPECT_EQ(integer_order(element, arrange_word(element, word)), word);
            EXPECT_EQ(arrange_word(element, integer_order(element, word)), word);
        }
}

// Weights in tiles: what was packed comes back.
TEST(Packed, TilesGiveTheCodesBack) {
    constexpr int64_t rows = 21, columns = 256;
    for (const char* name : {"int4:g32", "uint4:g64:asym", "nf4:g64", "mxfp4", "nvfp4", "iq4_nl", "q4_0", "q5_1", "q6_k", "q8_0"}) {
        const core::Format format = core::Format::parse(name);
        const core::PlaneSizes sizes = format.measure(rows, columns);
        struct Planes {
            std::vector<uint8_t> codes, scales, zero_points;
            float tensor_scale = 0.0f;
        };
        const auto view_of = [&](Planes& planes) {
            planes.codes.resize(size_t(sizes.code_bytes)), planes.scales.resize(size_t(sizes.scale_bytes));
            planes.zero_points.resize(size_t(sizes.zero_point_bytes));
            core::QuantizedView view;
            view.format = format, view.rows = rows, view.columns = columns, view.codes = planes.codes.data();
            view.scales = planes.scales.empty() ? nullptr : planes.scales.data();
            view.zero_points = planes.zero_points.empty() ? nullptr : planes.zero_points.data();
            view.tensor_scale = sizes.tensor_scale_bytes ? &planes.tensor_scale : nullptr;
            return view;
        };
        Planes given, back;
        const core::QuantizedView plain = view_of(given), unpacked = view_of(back);
        uint32_t random = 7;
        for (auto* plane : {&given.codes, &given.scales, &given.zero_points})
            for (uint8_t& byte : *plane) random = random * 1664525u + 1013904223u, byte = uint8_t(random >> 24);
        std::unique_ptr<void, void (*)(void*)> memory(
            std::aligned_alloc(256, size_t(core::packed_bytes(format, core::PackedLayout::tiles, rows, columns))), std::free);
        const core::QuantizedView packed =
            core::packed_planes(format, core::PackedLayout::tiles, rows, columns, static_cast<std::byte*>(memory.get()));
        core::pack_planes(plain, packed);
        core::unpack_planes(packed, unpacked);
        EXPECT_EQ(given.codes, back.codes) << name;
        EXPECT_EQ(given.scales, back.scales) << name;
        EXPECT_EQ(given.zero_points, back.zero_points) << name;
    }
}

}  // namespace
}  // namespace lowbit
