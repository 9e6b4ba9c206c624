// Memory of a GPU, for code that includes no CUDA header. In a build without CUDA every function here refuses.
#pragma once
#include "core/context.hpp"
#include "core/tensor.hpp"

namespace lowbit::cuda {

// What owning handles of a CUDA context take their memory from, unless the caller brings an allocator.
core::Allocator device_allocator(int device_index);

// On the context's stream, within the device.
void copy(const core::Context& context, void* destination, const void* source, int64_t bytes);

// Between a device and the CPU, complete on return: for tests and tools.
void copy_to_device(const core::Context& context, void* destination, const void* source, int64_t bytes);
void copy_to_host(const core::Context& context, void* destination, const void* source, int64_t bytes);
void wait(const core::Context& context);

// A matrix of bytes with any strides (an int8 tensor, or packed nibbles) as contiguous rows.
void gather_bytes(const core::Context& context, const core::Tensor& bytes, void* destination);

// Fills `memory` (packed_bytes of it), header and planes; and back.
void pack(const core::Context& context, const core::QuantizedView& plain, core::PackedLayout layout, std::byte* memory);
void unpack(const core::Context& context, const core::QuantizedView& packed, const core::QuantizedView& plain);

}  // namespace lowbit::cuda
