#include "core/context.hpp"

#include <cstdlib>
#include <utility>

#include "core/status.hpp"

namespace lowbit::core {

Allocator Allocator::aligned_heap() {
    return {[](void*, size_t bytes, size_t alignment) {
                return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
            },
            [](void*, void* memory, size_t) { std::free(memory); }, nullptr};
}

int Context::threads() const {
    std::lock_guard lock(mutex_);
    return threads_;
}

void Context::set_threads(int threads) {
    constexpr int most = 1024;
    require(threads >= 0 && threads <= most, "threads = ", threads, "; use 1 to ", most, ", or 0 for all processors");
    std::lock_guard lock(mutex_);
    threads_ = threads == 0 ? available_threads() : threads;
    pool_.reset();
}

std::string Context::forced_kernel() const {
    {
        std::lock_guard lock(mutex_);
        if (!forced_kernel_.empty()) return forced_kernel_;
    }
    const char* name = std::getenv("LOWBIT_KERNEL");
    return name ? name : "";
}

void Context::force_kernel(std::string name) {
    std::lock_guard lock(mutex_);
    forced_kernel_ = std::move(name);
}

std::shared_ptr<ThreadPool> Context::pool() const {
    std::lock_guard lock(mutex_);
    if (!pool_) pool_ = std::make_shared<ThreadPool>(threads_);
    return pool_;
}

void Context::parallel(int64_t count, const std::function<void(int64_t)>& body) const { pool()->run(count, body); }

Buffer::Buffer(const Allocator& allocator, int64_t bytes) : allocator_(allocator), bytes_(bytes) {
    constexpr size_t alignment = 64;
    data_ = static_cast<std::byte*>(allocator_.allocate(allocator_.user, bytes > 0 ? size_t(bytes) : alignment, alignment));
    if (!data_) fail(Status::out_of_memory, "could not allocate ", bytes, " bytes");
}

Buffer::~Buffer() {
    if (data_) allocator_.release(allocator_.user, data_, size_t(bytes_));
}

Buffer::Buffer(Buffer&& other) noexcept
    : allocator_(other.allocator_), data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
    std::swap(allocator_, other.allocator_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

std::byte* Scratch::take(int64_t bytes) {
    if (context_.device == Device::cpu) {
        buffers_.emplace_back(context_.allocator, bytes);
        return buffers_.back().data();
    }
    const int64_t begin = used_;
    used_ = checked_add(used_, ceil_div(bytes, workspace_alignment) * workspace_alignment, "workspace");
    // An address that is not null and overlaps nothing real.
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    if (measuring()) return reinterpret_cast<std::byte*>(uintptr_t(workspace_alignment) + uintptr_t(begin));
    require(used_ <= context_.workspace_bytes, "workspace has ", context_.workspace_bytes, " bytes, but this call takes more than ",
            used_ - 1,
            "; ask lowbit_matmul_workspace, lowbit_quantize_workspace or lowbit_binary_conv2d_workspace, and lowbit_context_set_workspace");
    return context_.workspace + begin;
}

}  // namespace lowbit::core
