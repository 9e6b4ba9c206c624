// Copies of one weight, so many that going round them finds none in the cache: a model has more layers than a cache holds.
#pragma once
#include <optional>
#include <vector>

#include "core/context.hpp"
#include "lowbit/lowbit.hpp"

namespace lowbit::tools {

class Ring {
public:
    // Twice the last-level cache, but no more than `most_bytes` unless a single copy is larger.
    explicit Ring(int64_t most_bytes);

    // Each forgets what was there before.
    void fill(const Context& context, const Quantized& weight);  // packed, as a matmul takes it
    void fill_plain(const Quantized& weight);                    // as a dequantize takes it
    void fill(const Tensor& weight);                             // contiguous

    int64_t copies() const { return int64_t(slots_.size()); }
    // The next copy; valid until the ring is filled again.
    Operand next();
    const Quantized& next_plain();
    const Tensor& next_tensor();

private:
    struct Slot {
        std::optional<Tensor> tensor{};
        std::optional<Quantized> quantized{};
        std::optional<Packed> packed{};
    };

    // Room for copies of `bytes` each, `bytes` rounded up so that each starts at a multiple of 64.
    int64_t make_room(int64_t bytes);
    Slot& turn() { return slots_[next_++ % slots_.size()]; }

    int64_t wanted_bytes_, most_bytes_;
    core::Buffer memory_;
    std::vector<Slot> slots_;
    size_t next_ = 0;
};

}  // namespace lowbit::tools
