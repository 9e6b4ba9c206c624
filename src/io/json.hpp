// As much JSON as the headers of checkpoints need. A reader walks the text once and never builds a tree, so a hostile header costs no
// more memory than the names and values that its caller keeps.
#pragma once
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lowbit::io {

// The caller says what it expects next; anything else is an error that names the source, the byte and the member it belongs to.
//
//     reader.begin_object();
//     std::string name;
//     while (reader.next_member(name)) sizes[name] = reader.read_size();
//     reader.finish();
//
// Strict: duplicate names, invalid UTF-8, lone surrogates, raw control characters and trailing commas are refused.
class JsonReader {
public:
    static constexpr size_t maximum_depth = 16;

    // `source` opens every error text; the text must outlive the reader.
    JsonReader(std::string_view text, std::string source) : text_(text), source_(std::move(source)) {}

    void begin_object();
    // True: `name` holds the next member's name, and its value is to be read. False: the object has ended.
    bool next_member(std::string& name);
    void begin_array();
    bool next_item();

    std::string read_string();
    // A whole number from 0 to 2^64 - 1, without sign, fraction or exponent.
    uint64_t read_size();
    // An array of them, each below 2^63: a shape.
    std::vector<int64_t> read_sizes();

    // After the value only spaces may follow: the padding of a header.
    void finish();

private:
    struct Level {
        char closing;  // '}' or ']'
        bool empty = true;
        std::set<std::string> names;           // a tree, not a hash table: nobody can choose names that collide
        const std::string* current = nullptr;  // the member whose value is being read
    };

    void begin(char opening, char closing, const char* expected);
    bool next(char closing);
    void skip_whitespace();
    std::string read_quoted();
    void read_escape(std::string& out);
    uint32_t read_hexadecimal4();
    void expect(char wanted, const char* description);
    [[noreturn]] void fail_here(const std::string& problem) const;
    [[noreturn]] void fail_expected(const char* expected) const;

    std::string_view text_;
    std::string source_;
    size_t position_ = 0;
    std::vector<Level> levels_;
};

bool is_utf8(std::string_view text);

// Appends `text`, which must be UTF-8, as a JSON string in the shortest form.
void append_json_string(std::string& out, std::string_view text);

// The same for error texts: any bytes are fine, and a long text is cut.
std::string printable(std::string_view text);

}  // namespace lowbit::io
