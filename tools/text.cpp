#include "text.hpp"

#include <cmath>
#include <cstdio>

namespace lowbit::tools {
namespace {

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// The first byte after `count` characters.
size_t after_characters(std::string_view text, size_t count) {
    size_t position = 0;
    for (; position < text.size(); ++position)
        if (!is_continuation(text[position]) && count-- == 0) break;
    return position;
}

struct Unit {
    double size;
    const char* name;
};

template <size_t count>
std::string in_units(double value, const Unit (&units)[count]) {
    for (const Unit& unit : units)
        if (std::fabs(value) >= unit.size) return fixed(value / unit.size, value / unit.size < 100 ? 1 : 0) + " " + unit.name;
    return "";
}

}  // namespace

std::string fixed(double value, int decimals) {
    char text[64];
    std::snprintf(text, sizeof(text), "%.*f", decimals, value);
    return text;
}

std::string percent(double fraction) { return fixed(100 * fraction, 3) + " %"; }

std::string megabytes(int64_t bytes) { return fixed(double(bytes) / 1e6, bytes < 100'000 ? 3 : 1); }

std::string human_bytes(int64_t bytes) {
    if (bytes < 1000) return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes");
    static constexpr Unit units[] = {{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}};
    return in_units(double(bytes), units);
}

std::string human_seconds(double seconds) {
    static constexpr Unit units[] = {{1, "s"}, {1e-3, "ms"}, {0, "µs"}};
    return seconds < 1e-3 ? fixed(seconds * 1e6, 1) + " µs" : in_units(seconds, units);
}

std::string human_count(int64_t count) {
    if (count < 10'000) return std::to_string(count);
    static constexpr Unit units[] = {{1e9, "billion"}, {1e6, "million"}, {1e3, "thousand"}};
    return in_units(double(count), units);
}

std::string cross(const std::vector<int64_t>& sizes) {
    std::string text;
    for (const int64_t size : sizes) text += (text.empty() ? "" : " x ") + std::to_string(size);
    return text.empty() ? "one number" : text;
}

size_t text_width(std::string_view text) {
    size_t width = 0;
    for (const char c : text) width += !is_continuation(c);
    return width;
}

std::string shortened(const std::string& text, size_t width) {
    const size_t found = text_width(text);
    if (found <= width || width < 3) return text;
    const size_t front = (width - 1) / 2, back = width - 1 - front;
    return text.substr(0, after_characters(text, front)) + "…" + text.substr(after_characters(text, found - back));
}

std::string without_controls(std::string text) {
    for (size_t i = 0; i < text.size(); ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if (byte < 0x20 || byte == 0x7f) text[i] = '?';
        // U+0080 to U+009F are controls too.
        const bool is_late_control = byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
        if (is_late_control) text.replace(i, 2, "?");
    }
    return text;
}

}  // namespace lowbit::tools
