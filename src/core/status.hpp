// How a failure travels inside the library: as one exception type that the C ABI turns into a status and a text. A text names the
// argument, its value and what is accepted.
#pragma once
#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

#include "lowbit/types.hpp"

namespace lowbit::core {

class Failure : public std::runtime_error {
public:
    Failure(Status status, const std::string& text) : std::runtime_error(text), status_(status) {}
    Status status() const { return status_; }

private:
    Status status_;
};

// join("group size ", 96, " does not divide ", 100): GCC 12 has no std::format. Text and integers, which every refusal of a kernel is made
// of, do not take the way through a stream.
template <class Part>
void append(std::string& text, const Part& part) {
    if constexpr (std::is_convertible_v<const Part&, std::string_view>) {
        text += std::string_view(part);
    } else if constexpr (std::is_integral_v<Part> && !std::is_same_v<Part, bool> && sizeof(Part) > 1) {
        text += std::to_string(part);
    } else {
        std::ostringstream stream;
        stream << part;
        text += stream.str();
    }
}
template <class... Parts>
std::string join(const Parts&... parts) {
    std::string text;
    (append(text, parts), ...);
    return text;
}

template <class... Parts>
[[noreturn]] void fail(Status status, const Parts&... parts) {
    throw Failure(status, join(parts...));
}

template <class... Parts>
void require(bool condition, const Parts&... parts) {
    if (!condition) fail(Status::invalid_argument, parts...);
}

// Sizes come from callers and files: every product and sum of them goes through these two.
inline int64_t checked_multiply(int64_t a, int64_t b, const char* what) {
    int64_t result = 0;
    if (__builtin_mul_overflow(a, b, &result)) fail(Status::invalid_argument, what, ": ", a, " x ", b, " does not fit in 64 bits");
    return result;
}

inline int64_t checked_add(int64_t a, int64_t b, const char* what) {
    int64_t result = 0;
    if (__builtin_add_overflow(a, b, &result)) fail(Status::invalid_argument, what, ": ", a, " + ", b, " does not fit in 64 bits");
    return result;
}

constexpr int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

}  // namespace lowbit::core
