// Numbers as people read them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lowbit::tools {

std::string fixed(double value, int decimals);
std::string percent(double fraction);            // "10.312 %"
std::string megabytes(int64_t bytes);            // "30.3"; a megabyte is 10^6 bytes
std::string human_bytes(int64_t bytes);          // "30.3 MB"
std::string human_seconds(double seconds);       // "812 µs"
std::string human_count(int64_t count);          // "58.7 million"
std::string cross(const std::vector<int64_t>&);  // "4096 x 14336"

// Columns that UTF-8 text takes on a terminal; every character counts as one.
size_t text_width(std::string_view text);

// At most `width` columns, with … in the middle of what was longer.
std::string shortened(const std::string& text, size_t width);

// Names come from files: control characters, which a terminal would obey, become question marks.
std::string without_controls(std::string text);

}  // namespace lowbit::tools
