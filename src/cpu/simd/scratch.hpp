// Working memory of one call, aligned to cache lines, not initialized.
#pragma once
#include <cstdint>
#include <new>

namespace lowbit::cpu {
namespace {

template <class T>
class Scratch {
public:
    explicit Scratch(int64_t count) : data_(static_cast<T*>(::operator new(size_t(count) * sizeof(T), alignment))) {}
    ~Scratch() { ::operator delete(data_, alignment); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    T* data() const { return data_; }

private:
    static constexpr std::align_val_t alignment{64};
    T* data_;
};

}  // namespace
}  // namespace lowbit::cpu
