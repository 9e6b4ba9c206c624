// Reading safetensors files: a table of bad ones, each refused with a text that names what is wrong.
#include "io/safetensors.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <utility>

#include "io_helpers.hpp"

namespace lowbit::io {
namespace {

using namespace test;

TEST(Safetensors, ReadsWhatAHeaderSays) {
    const std::string text = make_file(
        R"({"b":{"data_offsets":[4,12],"shape":[2],"dtype":"F32"},"__metadata__":{"format":"pt","note":""},)"
        R"("scalar":{"dtype":"I32","shape":[],"data_offsets":[0,4]}, "empty":{"dtype":"F64","shape":[3,0],"data_offsets":[4,4]}}   )",
        "ssssbbbbBBBB");
    const SafetensorsFile file = SafetensorsFile::parse(bytes_of(text), "memory");
    ASSERT_EQ(file.tensors().size(), 3u);
    EXPECT_EQ(file.tensors()[0].name, "scalar");
    EXPECT_EQ(file.tensors()[1].name, "empty");
    EXPECT_EQ(file.tensors()[2].name, "b");
    EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}, {"note", ""}}));
    EXPECT_EQ(file.source(), "memory");

    const TensorInfo& b = file.at("b");
    EXPECT_EQ(&b, file.find("b"));
    EXPECT_EQ(b.dtype, "F32");
    EXPECT_EQ(b.shape, std::vector<int64_t>{2});
    EXPECT_EQ(file.data(b).data(), bytes_of(text).data() + text.size() - 8);  // no copy
    EXPECT_EQ(file.data(b).size(), 8u);
    EXPECT_TRUE(file.at("scalar").shape.empty());
    EXPECT_TRUE(file.data(file.at("empty")).empty());

    EXPECT_EQ(file.find("c"), nullptr);
    expect_refused(Status::io_error, {"memory", "\"c\""}, [&] { file.at("c"); });
    expect_refused(Status::invalid_argument, {"alien"}, [&] { file.data({"alien", "U8", {99}, 0, 99}); });
}

TEST(Safetensors, KnowsEveryDtype) {
    const std::pair<const char*, uint64_t> bytes_of_eight[] = {
        {"BOOL", 8}, {"U8", 8},   {"I8", 8},   {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
        {"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16},   {"I32", 32},    {"U32", 32},    {"F32", 32},        {"F64", 64},
        {"I64", 64}, {"U64", 64}, {"C64", 64}, {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},
    };
    for (const auto& [dtype, bytes] : bytes_of_eight) {
        const std::string header = core::join(R"({"t":{"dtype":")", dtype, R"(","shape":[2,4],"data_offsets":[0,)", bytes, "]}}");
        const std::string text = make_file(header, std::string(bytes, 'x'));
        EXPECT_EQ(SafetensorsFile::parse(bytes_of(text), dtype).at("t").dtype, dtype);
    }
}

struct BadFile {
    const char* title;
    std::string bytes;
    std::vector<std::string> names;  // what the text must contain
};

// A file of one tensor "w".
std::string one(const char* dtype, const char* shape, const char* offsets, const std::string& data) {
    return make_file("{" + tensor_json("w", dtype, shape, offsets) + "}", data);
}

std::string two(const char* first, const char* second, size_t data) {
    const auto size = [](const char* offsets) {
        uint64_t begin = 0, end = 0;
        std::sscanf(offsets, "[%lu,%lu]", &begin, &end);
        return "[" + std::to_string(end - begin) + "]";
    };
    return make_file(
        "{" + tensor_json("a", "U8", size(first).c_str(), first) + "," + tensor_json("b", "U8", size(second).c_str(), second) + "}",
        std::string(data, 'x'));
}

const std::vector<BadFile>& bad_files() {
    static const std::vector<BadFile> files = {
        {"empty", "", {"0 bytes"}},
        {"short", "1234567", {"7 bytes"}},
        {"no header", length_field(0), {"must start with \"{\"", "nothing"}},
        {"header past the end", length_field(3) + "{}", {"header length 3", "2 bytes"}},
        {"header over the limit", length_field(100'000'001) + "{}", {"100000001", "100000000"}},
        {"header length of all ones", length_field(UINT64_MAX) + "{}", {"18446744073709551615"}},
        {"leading space", make_file(" {}"), {"must start with \"{\"", "\" \""}},
        {"array", make_file("[]"), {"must start with \"{\""}},
        {"open object", make_file("{"), {"the end"}},
        {"trailing comma", make_file(R"({"__metadata__":{},})"), {"a name in quotes"}},
        {"trailing byte", make_file("{}x"), {"only spaces", "\"x\""}},
        {"trailing newline", make_file("{}\n"), {"only spaces", "\\n"}},
        {"trailing zero", make_file(std::string("{}\0", 3)), {"only spaces", "\\u0000"}},
        {"unknown dtype", one("F7", "[1]", "[0,1]", "x"), {"\"w\"", "\"F7\"", "BF16"}},
        {"too few bytes", one("F32", "[2]", "[0,4]", "xxxx"), {"\"w\"", "F32 [2]", "takes 8", "hold 4"}},
        {"too many bytes", one("U8", "[2]", "[0,4]", "xxxx"), {"\"w\"", "U8 [2]", "takes 2", "hold 4"}},
        {"past the end", one("U8", "[4]", "[0,4]", "xxx"), {"\"w\"", "[0, 4]", "has 3 bytes"}},
        {"backwards", one("U8", "[1]", "[2,1]", "xx"), {"\"w\"", "[2, 1]", "backwards"}},
        {"half a byte", one("F4", "[3]", "[0,1]", "x"), {"\"w\"", "12 bits"}},
        {"shape overflows", one("F32", "[4294967296,4294967296]", "[0,0]", ""), {"\"w\"", "[4294967296, 4294967296]", "64 bits"}},
        {"bits overflow", one("F64", "[4611686018427387904]", "[0,0]", ""), {"\"w\"", "4611686018427387904", "64 bits"}},
        {"size over 2^63", one("U8", "[9223372036854775808,0]", "[0,0]", ""), {"\"w\"", "9223372036854775808"}},
        {"size over 2^64", one("U8", "[18446744073709551616]", "[0,0]", ""), {"\"w\"", "18446744073709551616"}},
        {"negative size", one("U8", "[-1]", "[0,0]", ""), {"\"w\"", "\"shape\"", "-1"}},
        {"fraction", one("U8", "[1.5]", "[0,1]", "x"), {"\"w\"", "\"shape\"", "1.5"}},
        {"exponent", one("U8", "[1]", "[0,1e0]", "x"), {"\"w\"", "\"data_offsets\"", "1e0"}},
        {"leading zero", one("U8", "[01]", "[0,1]", "x"), {"\"w\"", "01"}},
        {"one offset", one("U8", "[0]", "[0]", ""), {"\"w\"", "1 numbers"}},
        {"three offsets", one("U8", "[1]", "[0,1,1]", "x"), {"\"w\"", "3 numbers"}},
        {"shape is a number", one("U8", "1", "[0,1]", "x"), {"\"w\"", "an array"}},
        {"gap at the start", one("U8", "[1]", "[1,2]", "xx"), {"\"w\"", "byte 1", "a gap"}},
        {"gap", two("[0,1]", "[2,3]", 3), {"\"b\"", "byte 2", "a gap", "\"a\"", "byte 1"}},
        {"overlap", two("[0,3]", "[2,4]", 4), {"\"b\"", "byte 2", "an overlap", "\"a\"", "byte 3"}},
        {"the same bytes", two("[0,2]", "[0,2]", 2), {"\"b\"", "an overlap", "\"a\""}},
        {"empty tensor inside another", two("[0,2]", "[1,1]", 2), {"\"b\"", "an overlap", "\"a\""}},
        {"bytes at the end", one("U8", "[1]", "[0,1]", "xyz"), {"2 bytes", "\"w\"", "byte 1 of 3"}},
        {"bytes and no tensor", make_file("{}", "x"), {"1 bytes", "no tensor"}},
        {"duplicate name",
         make_file("{" + tensor_json("w", "U8", "[0]", "[0,0]") + "," + tensor_json("w", "U8", "[0]", "[0,0]") + "}"),
         {"duplicate", "\"w\""}},
        {"duplicate key", make_file(R"({"w":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})"), {"duplicate", "\"dtype\""}},
        {"unknown key", make_file(R"({"w":{"dtype":"U8","x":1,"shape":[0],"data_offsets":[0,0]}})"), {"\"w\"", "\"x\""}},
        {"no dtype", make_file(R"({"w":{"shape":[0],"data_offsets":[0,0]}})"), {"\"w\"", "dtype is missing"}},
        {"no shape", make_file(R"({"w":{"dtype":"U8","data_offsets":[0,0]}})"), {"\"w\"", "shape is missing"}},
        {"no offsets", make_file(R"({"w":{"dtype":"U8","shape":[0]}})"), {"\"w\"", "data_offsets is missing"}},
        {"tensor is a list", make_file(R"({"w":["U8",[0],[0,0]]})"), {"\"w\"", "an object"}},
        {"metadata is a string", make_file(R"({"__metadata__":"x"})"), {"\"__metadata__\"", "an object"}},
        {"metadata is null", make_file(R"({"__metadata__":null})"), {"\"__metadata__\"", "an object"}},
        {"metadata value is a number", make_file(R"({"__metadata__":{"k":1}})"), {"\"__metadata__\" / \"k\"", "a string", "\"1\""}},
        {"metadata twice", make_file(R"({"__metadata__":{},"__metadata__":{}})"), {"duplicate", "\"__metadata__\""}},
        {"metadata key twice", make_file(R"({"__metadata__":{"k":"1","k":"2"}})"), {"duplicate", "\"k\""}},
        {"name is not UTF-8", make_file("{\"\xFF\":{}}"), {"UTF-8"}},
        {"lone surrogate", make_file(R"({"__metadata__":{"k":"\ud800"}})"), {"\"k\"", "lone surrogate"}},
        {"deep nesting", make_file(R"({"w":{"shape":[[[[[[[[[[[[[[[[[[[[)"), {"\"w\" / \"shape\"", "a whole number"}},
    };
    return files;
}

TEST(Safetensors, RefusesBadFiles) {
    Folder folder;
    const std::string path = folder / "bad.safetensors";
    for (const BadFile& bad : bad_files()) {
        write_text(path, bad.bytes);
        SCOPED_TRACE(bad.title);
        std::vector<std::string> names = bad.names;
        names.push_back(path);
        expect_refused(Status::io_error, names, [&] { SafetensorsFile::open(path); });
    }
}

TEST(Safetensors, RefusesEveryTruncation) {
    const std::string whole =
        make_file("{" + tensor_json("a", "F32", "[2]", "[0,8]") + "," + tensor_json("b", "U8", "[3]", "[8,11]") + "}  ", "01234567abc");
    EXPECT_EQ(SafetensorsFile::parse(bytes_of(whole), "whole").tensors().size(), 2u);
    for (size_t size = 0; size < whole.size(); ++size) {
        SCOPED_TRACE(size);
        const std::string cut = whole.substr(0, size);
        expect_refused(Status::io_error, {"cut: "}, [&] { SafetensorsFile::parse(bytes_of(cut), "cut"); });
    }
}

TEST(Safetensors, ErrorsOfTheSystemNameThePath) {
    Folder folder;
    const std::string missing = folder / "missing.safetensors";
    expect_refused(Status::io_error, {missing, "No such file or directory"}, [&] { SafetensorsFile::open(missing); });
    expect_refused(Status::io_error, {"not a regular file"}, [&] { SafetensorsFile::open(folder / ""); });
}

TEST(MappedFile, MovesAndMapsEmptyFiles) {
    Folder folder;
    write_text(folder / "empty", "");
    write_text(folder / "full", "content");
    MappedFile file = MappedFile::open(folder / "empty");
    EXPECT_TRUE(file.bytes().empty());
    MappedFile full = MappedFile::open(folder / "full");
    const std::byte* address = full.bytes().data();
    file = std::move(full);
    EXPECT_EQ(file.bytes().data(), address);
    EXPECT_EQ(file.bytes().size(), 7u);
    EXPECT_EQ(file.path(), folder / "full");
    EXPECT_TRUE(full.bytes().empty());  // NOLINT(bugprone-use-after-move): moved-from means empty
}

}  // namespace
}  // namespace lowbit::io
