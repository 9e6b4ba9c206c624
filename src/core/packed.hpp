// A packed weight: one run of bytes that says itself what it is, so that it can be written to a file and opened again.
//
//     header (128 bytes) | codes | scales | zero points | tensor scale        each plane starts at a multiple of 64 bytes
//
// Layout `rows` keeps the planes as they are: the CPU kernels read plain rows in place. Other layouts get numbers of their own.
#pragma once
#include <span>

#include "core/tensor.hpp"

namespace lowbit::core {

enum class PackedLayout : uint32_t { rows = 1 };

int64_t packed_bytes(const QuantizedView& view);

// `memory` is aligned to 64 and holds packed_bytes(view).
void pack_rows(const QuantizedView& view, std::byte* memory);

// The planes inside a packed weight; refuses bytes that are not one.
QuantizedView open_packed(std::span<const std::byte> bytes);

}  // namespace lowbit::core
