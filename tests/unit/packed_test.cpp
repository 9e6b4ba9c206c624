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

}  // namespace
}  // namespace lowbit
