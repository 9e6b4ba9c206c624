#include "io/json.hpp"

#include <limits>
#include <utility>

#include "core/status.hpp"

namespace lowbit::io {
namespace {

// Bytes of the UTF-8 sequence at text[at], which is not empty; 0 where it is invalid. Unicode's table of well-formed sequences:
// the ranges of the second byte keep out overlong forms, surrogates and what lies above U+10FFFF.
size_t utf8_sequence_length(std::string_view text, size_t at) {
    const auto byte = [&](size_t index) { return index < text.size() ? uint8_t(text[index]) : uint8_t(0); };
    const auto continues = [&](size_t index) { return (byte(index) & 0xC0) == 0x80; };
    const uint8_t first = byte(at), second = byte(at + 1);
    if (first < 0x80) return 1;
    if (first < 0xC2) return 0;
    if (first < 0xE0) return continues(at + 1) ? 2 : 0;
    if (first < 0xF0) {
        const uint8_t low = first == 0xE0 ? 0xA0 : 0x80, high = first == 0xED ? 0x9F : 0xBF;
        return second >= low && second <= high && continues(at + 2) ? 3 : 0;
    }
    if (first < 0xF5) {
        const uint8_t low = first == 0xF0 ? 0x90 : 0x80, high = first == 0xF4 ? 0x8F : 0xBF;
        return second >= low && second <= high && continues(at + 2) && continues(at + 3) ? 4 : 0;
    }
    return 0;
}

void append_utf8(std::string& out, uint32_t code_point) {
    const auto continuation = [&](int shift) { out += char(0x80 | ((code_point >> shift) & 0x3F)); };
    if (code_point < 0x80) {
        out += char(code_point);
    } else if (code_point < 0x800) {
        out += char(0xC0 | (code_point >> 6));
        continuation(0);
    } else if (code_point < 0x10000) {
        out += char(0xE0 | (code_point >> 12));
        continuation(6), continuation(0);
    } else {
        out += char(0xF0 | (code_point >> 18));
        continuation(12), continuation(6), continuation(0);
    }
}

void append_hexadecimal(std::string& out, uint32_t value, int digits) {
    for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += "0123456789abcdef"[(value >> shift) & 15];
}

// What stands for a byte of a string inside quotes; nullptr where it stands for itself or needs \u.
const char* short_escape(char byte) {
    switch (byte) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\b': return "\\b";
    case '\f': return "\\f";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: return nullptr;
    }
}

void append_escaped(std::string& out, std::string_view bytes) {
    for (const char byte : bytes) {
        if (const char* escape = short_escape(byte)) {
            out += escape;
        } else if (uint8_t(byte) < 0x20) {
            out += "\\u";
            append_hexadecimal(out, uint8_t(byte), 4);
        } else {
            out += byte;
        }
    }
}

bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

}  // namespace

bool is_utf8(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
        const size_t length = utf8_sequence_length(text, at);
        if (length == 0) return false;
        at += length;
    }
    return true;
}

void append_json_string(std::string& out, std::string_view text) {
    out += '"';
    append_escaped(out, text);
    out += '"';
}

std::string printable(std::string_view text) {
    constexpr size_t longest = 200;
    std::string out = "\"";
    size_t at = 0;
    while (at < text.size() && at < longest) {
        const size_t length = utf8_sequence_length(text, at);
        if (length == 0) {
            out += "\\x";
            append_hexadecimal(out, uint8_t(text[at]), 2);
        } else {
            append_escaped(out, text.substr(at, length));
        }
        at += length == 0 ? 1 : length;
    }
    return out + (at < text.size() ? "...\"" : "\"");
}

void JsonReader::begin_object() { begin('{', '}', "an object"); }
void JsonReader::begin_array() { begin('[', ']', "an array"); }
bool JsonReader::next_item() { return next(']'); }

bool JsonReader::next_member(std::string& name) {
    if (!next('}')) return false;
    skip_whitespace();
    if (position_ >= text_.size() || text_[position_] != '"') fail_expected("a name in quotes");
    name = read_quoted();
    const auto [inserted, is_new] = levels_.back().names.insert(name);
    if (!is_new) fail_here("duplicate name " + printable(name));
    levels_.back().current = &*inserted;
    skip_whitespace();
    expect(':', "':' after a name");
    return true;
}

std::string JsonReader::read_string() {
    skip_whitespace();
    if (position_ >= text_.size() || text_[position_] != '"') fail_expected("a string");
    return read_quoted();
}

uint64_t JsonReader::read_size() {
    skip_whitespace();
    const size_t begin = position_;
    size_t end = begin;
    while (end < text_.size() && (is_digit(text_[end]) || std::string_view("+-.eE").find(text_[end]) != std::string_view::npos)) ++end;
    const std::string_view number = text_.substr(begin, end - begin);
    if (number.empty()) fail_expected("a whole number");
    uint64_t value = 0;
    for (const char digit : number) {
        if (!is_digit(digit)) fail_here("expected a whole number from 0 on, found " + printable(number));
        if (__builtin_mul_overflow(value, uint64_t(10), &value) || __builtin_add_overflow(value, uint64_t(digit - '0'), &value))
            fail_here("the number " + printable(number) + " does not fit in 64 bits");
    }
    if (number.size() > 1 && number.front() == '0') fail_here("the number " + printable(number) + " starts with 0");
    position_ = end;
    return value;
}

std::vector<int64_t> JsonReader::read_sizes() {
    std::vector<int64_t> sizes;
    begin_array();
    while (next_item()) {
        const uint64_t size = read_size();
        if (size > uint64_t(std::numeric_limits<int64_t>::max())) fail_here(core::join("the size ", size, " is over 2^63 - 1"));
        sizes.push_back(int64_t(size));
    }
    return sizes;
}

void JsonReader::finish() {
    for (; position_ < text_.size(); ++position_)
        if (text_[position_] != ' ') fail_expected("only spaces after the end");
}

void JsonReader::begin(char opening, char closing, const char* expected) {
    skip_whitespace();
    expect(opening, expected);
    if (levels_.size() == maximum_depth) fail_here(core::join("more than ", maximum_depth, " levels of nesting"));
    levels_.push_back({.closing = closing, .names = {}});
}

bool JsonReader::next(char closing) {
    if (levels_.empty() || levels_.back().closing != closing)
        core::fail(Status::internal_error, source_, ": the reader asked for the next ", closing == '}' ? "member" : "item",
                   " outside of one");
    skip_whitespace();
    levels_.back().current = nullptr;
    if (position_ < text_.size() && text_[position_] == closing) {
        ++position_;
        levels_.pop_back();
        return false;
    }
    const bool first = std::exchange(levels_.back().empty, false);
    if (first) return true;
    expect(',', closing == '}' ? "',' or '}'" : "',' or ']'");
    return true;
}

void JsonReader::skip_whitespace() {
    while (position_ < text_.size() && std::string_view(" \t\n\r").find(text_[position_]) != std::string_view::npos) ++position_;
}

// The opening quote has been seen, and is still to be stepped over.
std::string JsonReader::read_quoted() {
    ++position_;
    std::string out;
    for (;;) {
        if (position_ >= text_.size()) fail_here("the text ends inside a string");
        const char byte = text_[position_];
        if (byte == '"') break;
        if (byte == '\\') {
            read_escape(out);
            continue;
        }
        if (uint8_t(byte) < 0x20) fail_expected("no raw control character in a string");
        const size_t length = utf8_sequence_length(text_, position_);
        if (length == 0) fail_here("a string is not valid UTF-8");
        out.append(text_, position_, length);
        position_ += length;
    }
    ++position_;
    return out;
}

void JsonReader::read_escape(std::string& out) {
    const size_t begin = position_;
    if (++position_ >= text_.size()) fail_here("the text ends inside a string");
    const char kind = text_[position_++];
    switch (kind) {
    case '"':
    case '\\':
    case '/': out += kind; return;
    case 'b': out += '\b'; return;
    case 'f': out += '\f'; return;
    case 'n': out += '\n'; return;
    case 'r': out += '\r'; return;
    case 't': out += '\t'; return;
    case 'u': break;
    default: position_ = begin; fail_here("unknown escape " + printable(text_.substr(begin, 2)));
    }
    // Beyond U+FFFF a character is written as two halves, D800..DBFF and then DC00..DFFF; a half alone is no character.
    const uint32_t unit = read_hexadecimal4();
    if (unit < 0xD800 || unit > 0xDFFF) return append_utf8(out, unit);
    if (unit <= 0xDBFF && text_.substr(position_, 2) == "\\u") {
        position_ += 2;
        const uint32_t second = read_hexadecimal4();
        if (second >= 0xDC00 && second <= 0xDFFF) return append_utf8(out, 0x10000 + ((unit - 0xD800) << 10) + (second - 0xDC00));
    }
    position_ = begin;
    fail_here("lone surrogate " + printable(text_.substr(begin, 6)));
}

uint32_t JsonReader::read_hexadecimal4() {
    uint32_t value = 0;
    for (int i = 0; i < 4; ++i, ++position_) {
        const char digit = position_ < text_.size() ? text_[position_] : '\0';
        const size_t index = digit == '\0' ? std::string_view::npos : std::string_view("0123456789abcdefABCDEF").find(digit);
        if (index == std::string_view::npos) fail_expected("four hexadecimal digits after \\u");
        value = value * 16 + uint32_t(index < 16 ? index : index - 6);
    }
    return value;
}

void JsonReader::expect(char wanted, const char* description) {
    if (position_ >= text_.size() || text_[position_] != wanted) fail_expected(description);
    ++position_;
}

void JsonReader::fail_here(const std::string& problem) const {
    std::string where;
    for (const Level& level : levels_)
        if (level.current) where += (where.empty() ? ", in " : " / ") + printable(*level.current);
    core::fail(Status::io_error, source_, ": byte ", position_, where, ": ", problem);
}

void JsonReader::fail_expected(const char* expected) const {
    const std::string found = position_ < text_.size() ? printable(text_.substr(position_, 1)) : "the end";
    fail_here(core::join("expected ", expected, ", found ", found));
}

}  // namespace lowbit::io
