// Device, stream, threads and memory of a series of calls. Owned by the caller; the library keeps no state beside it.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/threads.hpp"
#include "lowbit/types.hpp"

namespace lowbit::core {

constexpr int64_t workspace_alignment = 256;

struct Allocator {
    void* (*allocate)(void* user, size_t bytes, size_t alignment);
    void (*release)(void* user, void* memory, size_t bytes);
    void* user;

    static Allocator aligned_heap();
};

class Context {
public:
    Device device = Device::cpu;
    int device_index = 0;
    void* stream = nullptr;
    std::byte* workspace = nullptr;  // device memory of the caller's, aligned to workspace_alignment
    int64_t workspace_bytes = 0;
    bool dependent_launch = false;  // CUDA: kernels may begin, and read weights, before the one before them has ended
    Allocator allocator = Allocator::aligned_heap();

    int threads() const;
    void set_threads(int threads);  // 0: available_threads()

    std::string forced_kernel() const;  // of this context, else LOWBIT_KERNEL, else ""
    void force_kernel(std::string name);

    // body(0) ... body(count - 1) on the context's threads.
    void parallel(int64_t count, const std::function<void(int64_t)>& body) const;

private:
    std::shared_ptr<ThreadPool> pool() const;

    mutable std::mutex mutex_;
    int threads_ = available_threads();
    std::string forced_kernel_;
    mutable std::shared_ptr<ThreadPool> pool_;  // made at the first parallel call
};

// Memory of an owning handle, from a context's allocator.
class Buffer {
public:
    Buffer() = default;
    Buffer(const Allocator& allocator, int64_t bytes);
    ~Buffer();
    Buffer(Buffer&& other) noexcept;
    Buffer& operator=(Buffer&& other) noexcept;

    std::byte* data() const { return data_; }
    int64_t bytes() const { return bytes_; }

private:
    Allocator allocator_ = Allocator::aligned_heap();
    std::byte* data_ = nullptr;
    int64_t bytes_ = 0;
};

// Memory for the time of one call: buffers of its own on the CPU, pieces of the caller's workspace on a GPU.
class Scratch {
public:
    enum class Purpose { run, measure };  // measure: pieces that must not be touched, only to learn what a call takes
    explicit Scratch(const Context& context, Purpose purpose = Purpose::run) : context_(context), purpose_(purpose) {}

    bool measuring() const { return purpose_ == Purpose::measure; }
    std::byte* take(int64_t bytes);
    int64_t used() const { return used_; }  // of the workspace

private:
    const Context& context_;
    Purpose purpose_;
    int64_t used_ = 0;
    std::vector<Buffer> buffers_;
};

}  // namespace lowbit::core
