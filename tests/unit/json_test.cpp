// The JSON of checkpoint headers: what is read, and how much is refused.
#include "io/json.hpp"

#include <gtest/gtest.h>

#include "io_helpers.hpp"

namespace lowbit::io {
namespace {

using namespace test;

std::string json_string(const std::string& json) {
    JsonReader reader(json, "test");
    const std::string value = reader.read_string();
    reader.finish();
    return value;
}

TEST(Json, Strings) {
    const std::pair<std::string, std::string> cases[] = {
        {R"("")", ""},
        {R"("plain")", "plain"},
        {R"("\"\\\/\b\f\n\r\t")", "\"\\/\b\f\n\r\t"},
        {R"("\u0041\u00e9\u20AC")", "A\xC3\xA9\xE2\x82\xAC"},
        {R"("\ud83d\ude00")", "\xF0\x9F\x98\x80"},
        {R"("\u0000")", std::string(1, '\0')},
        {"\"\xF4\x8F\xBF\xBF\xED\x9F\xBF\"", "\xF4\x8F\xBF\xBF\xED\x9F\xBF"},
    };
    for (const auto& [json, value] : cases) {
        EXPECT_EQ(json_string(json), value) << json;
        std::string again;
        append_json_string(again, value);
        EXPECT_EQ(json_string(again), value) << again;
    }
}

TEST(Json, RefusesBadStrings) {
    const std::pair<std::string, const char*> cases[] = {
        {"", "expected a string, found the end"},
        {"7", "expected a string, found \"7\""},
        {"\"abc", "ends inside a string"},
        {"\"abc\\", "ends inside a string"},
        {"\"a\nb\"", "control character"},
        {R"("\x")", "unknown escape \"\\\\x\""},
        {R"("\u12")", "four hexadecimal digits"},
        {R"("\u12G4")", "four hexadecimal digits"},
        {R"("\ud800")", "lone surrogate \"\\\\ud800\""},
        {R"("\ud800\u0041")", "lone surrogate"},
        {R"("\udc00\ud800")", "lone surrogate"},
        {"\"\x80\"", "UTF-8"},
        {"\"\xC0\x80\"", "UTF-8"},          // overlong
        {"\"\xE0\x9F\xBF\"", "UTF-8"},      // overlong
        {"\"\xED\xA0\x80\"", "UTF-8"},      // a surrogate
        {"\"\xF4\x90\x80\x80\"", "UTF-8"},  // above U+10FFFF
        {"\"\xE2\x82", "UTF-8"},            // cut
        {"\"\" \n", "only spaces after the end"},
        {"\"\"x", "only spaces after the end"},
    };
    for (const auto& [json, problem] : cases) {
        SCOPED_TRACE(json);
        expect_refused(Status::io_error, {"test: byte ", problem}, [&, &text = json] { json_string(text); });
    }
}

TEST(Json, Numbers) {
    EXPECT_EQ(JsonReader("0", "").read_size(), 0u);
    EXPECT_EQ(JsonReader(" 18446744073709551615", "").read_size(), UINT64_MAX);
    for (const char* number :
         {"-1", "-0", "+1", "1.0", "1e3", "01", "00", "18446744073709551616", "99999999999999999999999", "x", "", "\"1\""}) {
        SCOPED_TRACE(number);
        expect_refused(Status::io_error, {"test: byte "}, [&] { JsonReader(number, "test").read_size(); });
    }
}

TEST(Json, DepthIsBounded) {
    const std::string deep(100, '[');
    JsonReader reader(deep, "deep");
    const auto descend = [&] {
        for (;;) {
            reader.begin_array();
            reader.next_item();
        }
    };
    expect_refused(Status::io_error, {"more than 16 levels"}, descend);
}

TEST(Json, ErrorsQuoteWhatCannotBePrinted) {
    EXPECT_EQ(printable("a\"\n\xFF"), "\"a\\\"\\n\\xff\"");
    EXPECT_EQ(printable(std::string(300, 'x')), "\"" + std::string(200, 'x') + "...\"");
}

}  // namespace
}  // namespace lowbit::io
