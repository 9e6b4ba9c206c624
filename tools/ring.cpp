#include "ring.hpp"

#include <algorithm>
#include <cstring>

#include "core/status.hpp"
#include "core/tensor.hpp"
#include "machine.hpp"

namespace lowbit::tools {
namespace {

constexpr int64_t alignment = 64;
int64_t align(int64_t bytes) { return core::ceil_div(bytes, alignment) * alignment; }

// The planes one after the other, each at a multiple of 64.
int64_t plain_bytes(const lowbit_format_sizes& sizes) {
    return align(sizes.code_bytes) + align(sizes.scale_bytes) + align(sizes.zero_point_bytes) + align(sizes.tensor_scale_bytes);
}

Quantized copy_plain(const lowbit_quantized_view& source, const lowbit_format_sizes& sizes, std::byte* memory) {
    lowbit_quantized_view copy = source;
    const auto place = [&](const void* plane, int64_t bytes) -> void* {
        if (bytes == 0) return nullptr;
        std::memcpy(memory, plane, size_t(bytes));
        memory += align(bytes);
        return memory - align(bytes);
    };
    copy.codes = place(source.codes, sizes.code_bytes);
    copy.scales = place(source.scales, sizes.scale_bytes);
    copy.zero_points = static_cast<uint8_t*>(place(source.zero_points, sizes.zero_point_bytes));
    copy.tensor_scale = static_cast<float*>(place(source.tensor_scale, sizes.tensor_scale_bytes));
    return Quantized::borrow(copy);
}

}  // namespace

Ring::Ring(int64_t most_bytes) : wanted_bytes_(2 * last_level_cache_bytes()), most_bytes_(most_bytes) {}

int64_t Ring::make_room(int64_t bytes) {
    slots_.clear();
    next_ = 0;
    const int64_t each = std::max(align(bytes), alignment);
    constexpr int64_t most_copies = 4096;  // of a tiny weight, whose handles would weigh more than it does
    const int64_t wanted = std::min(core::ceil_div(wanted_bytes_, each), most_copies);
    const int64_t copies = std::clamp<int64_t>(wanted, 1, std::max<int64_t>(most_bytes_ / each, 1));
    if (memory_.bytes() < copies * each) {
        memory_ = core::Buffer();  // the old one goes before the new one comes
        memory_ = core::Buffer(core::Allocator::aligned_heap(), copies * each);
    }
    slots_.resize(size_t(copies));
    return each;
}

void Ring::fill(const Context& context, const Quantized& weight) {
    const int64_t bytes = pack_bytes(context, weight), each = make_room(bytes);
    std::byte* memory = memory_.data();
    for (Slot& slot : slots_) {
        slot.packed.emplace(pack_into(context, weight, memory, bytes));
        memory += each;
    }
}

void Ring::fill_plain(const Quantized& weight) {
    const lowbit_quantized_view view = weight.view();
    const lowbit_format_sizes sizes = weight.format().measure(view.rows, view.columns);
    const int64_t each = make_room(plain_bytes(sizes));
    std::byte* memory = memory_.data();
    for (Slot& slot : slots_) {
        slot.quantized.emplace(copy_plain(view, sizes, memory));
        memory += each;
    }
}

void Ring::fill(const Tensor& weight) {
    lowbit_tensor view = weight.c();
    const int64_t bytes = view.shape[0] * view.shape[1] * core::element_bytes(Element(view.element)), each = make_room(bytes);
    std::byte* memory = memory_.data();
    for (Slot& slot : slots_) {
        std::memcpy(memory, weight.c().data, size_t(bytes));
        view.data = memory;
        slot.tensor.emplace(view);
        memory += each;
    }
}

Operand Ring::next() {
    const Slot& slot = turn();
    return slot.packed ? Operand(*slot.packed) : slot.quantized ? Operand(*slot.quantized) : Operand(*slot.tensor);
}

const Quantized& Ring::next_plain() { return turn().quantized.value(); }
const Tensor& Ring::next_tensor() { return turn().tensor.value(); }

}  // namespace lowbit::tools
