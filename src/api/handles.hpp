// What stands behind the handles and structs of lowbit.h, and how a failure becomes a status.
#pragma once
#include <cstddef>
#include <cstring>
#include <new>
#include <optional>

#include "core/context.hpp"
#include "core/format.hpp"
#include "core/status.hpp"
#include "core/tensor.hpp"
#include "lowbit/lowbit.h"

struct lowbit_context {
    lowbit::core::Context context;
};

struct lowbit_quantized {
    lowbit::core::QuantizedView view;
    lowbit::core::Buffer memory;  // empty when borrowed
};

struct lowbit_packed {
    lowbit::core::QuantizedView view;  // into `data`
    std::byte* data = nullptr;
    int64_t bytes = 0;
    lowbit::core::Buffer memory;  // empty when borrowed
};

namespace lowbit::api {

lowbit_status report(Status status, const char* text) noexcept;

// Runs the body of a C function; nothing it throws gets past here.
template <class Body>
lowbit_status guard(Body&& body) noexcept {
    try {
        body();
        return LOWBIT_OK;
    } catch (const core::Failure& failure) {
        return report(failure.status(), failure.what());
    } catch (const std::bad_alloc&) {
        return report(Status::out_of_memory, "out of memory");
    } catch (const std::exception& error) {
        return report(Status::internal_error, error.what());
    } catch (...) {
        return report(Status::internal_error, "unknown error");
    }
}

template <class Pointer>
Pointer* require_pointer(const char* verb, const char* argument, Pointer* pointer) {
    core::require(pointer != nullptr, verb, ": ", argument, " is a null pointer");
    return pointer;
}

// A caller's struct, of its compiler's size: a shorter, older one is completed from `defaults`; a longer, newer one may hold only zeros in
// what this library does not know.
template <class Struct>
Struct read_sized(const char* verb, const char* argument, const Struct* given, const Struct& defaults) {
    require_pointer(verb, argument, given);
    const size_t size = given->size;
    core::require(size >= 2 * sizeof(size_t) && size <= 65536, verb, ": ", argument, ".size = ", size, "; start from its LOWBIT_..._INIT");
    Struct known = defaults;
    std::memcpy(&known, given, size < sizeof(Struct) ? size : sizeof(Struct));
    for (size_t i = sizeof(Struct); i < size; ++i)
        core::require(reinterpret_cast<const unsigned char*>(given)[i] == 0, verb, ": ", argument,
                      " sets a field that this version of the library (", LOWBIT_VERSION_STRING, ") does not know");
    return known;
}

core::Format to_format(const lowbit_format& format);
lowbit_format from_format(const core::Format& format);
core::Tensor to_tensor(const char* verb, const char* argument, const lowbit_tensor& tensor);
core::QuantizedView to_view(const char* verb, const char* argument, const lowbit_quantized_view* view);
lowbit_quantized_view from_view(const core::QuantizedView& view);

// A quantized matrix with planes of its own, not yet filled.
lowbit_quantized allocate_quantized(const core::Context& context, const core::Format& format, int64_t rows, int64_t columns);

// The same in memory for the time of a call.
core::QuantizedView quantized_planes(const core::Context& context, const core::Format& format, int64_t rows, int64_t columns,
                                     core::Scratch& scratch);

// How the texts of lowbit_explain and lowbit_info reach the caller.
void copy_text(const char* verb, const std::string& text, char* destination, size_t capacity, size_t* length);

}  // namespace lowbit::api
