// Stands in for src/cuda in a build without nvcc. No CUDA context can be made there, so nothing here is ever reached.
#include "cuda/memory.hpp"

#include "core/status.hpp"
#include "cuda/devices.hpp"
#include "cuda/kernels.hpp"

namespace lowbit::cuda {
namespace {

[[noreturn]] void refuse() { core::fail(Status::unsupported, devices().problem); }

}  // namespace

core::Allocator device_allocator(int) { refuse(); }
void gate(const core::MatmulProblem&, const core::Tensor&) { refuse(); }
void copy(const core::Context&, void*, const void*, int64_t) { refuse(); }
void copy_to_device(const core::Context&, void*, const void*, int64_t) { refuse(); }
void copy_to_host(const core::Context&, void*, const void*, int64_t) { refuse(); }
void wait(const core::Context&) { refuse(); }
void gather_bytes(const core::Context&, const core::Tensor&, void*) { refuse(); }
void pack(const core::Context&, const core::QuantizedView&, core::PackedLayout, std::byte*) { refuse(); }
void unpack(const core::Context&, const core::QuantizedView&, const core::QuantizedView&) { refuse(); }
void register_kernels(core::Registry&) {}

}  // namespace lowbit::cuda
