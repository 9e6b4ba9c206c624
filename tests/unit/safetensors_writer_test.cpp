// Writing safetensors files, and what is left on the disk when a run ends early.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "io/safetensors.hpp"
#include "io/safetensors_dtype.hpp"
#include "io_helpers.hpp"

namespace lowbit::io {
namespace {

using namespace test;

std::string pattern(size_t size, int seed) {
    std::string text(size, '\0');
    for (size_t i = 0; i < size; ++i) text[i] = char(i * 31 + size_t(seed));
    return text;
}

const SafetensorsPlan& example_plan() {
    static const SafetensorsPlan plan = {
        .tensors = {{"codes", "U8", {3, 5}},
                    {"scale", "F32", {3}},
                    {"big", "I64", {2, 2}},
                    {"none", "F16", {0, 7}},
                    {"half", "BF16", {3}},
                    {"nibbles", "F4", {2, 3}},
                    {"bias", "F32", {}},
                    {"\"quote\"\n\xC3\xA9", "U8", {1}}},
        .metadata = {{"format", "pt"}, {"odd\t\"key\"", "\x01\xE2\x82\xAC"}},
    };
    return plan;
}

void write_example(SafetensorsWriter& writer) {
    int seed = 0;
    for (const TensorInfo& info : writer.tensors()) writer.append(info.name, bytes_of(pattern(info.end - info.begin, seed++)));
}

TEST(SafetensorsWriter, RoundTrip) {
    Folder folder;
    const std::string path = folder / "out.safetensors";
    SafetensorsWriter writer(path, example_plan());
    EXPECT_FALSE(std::filesystem::exists(path));
    write_example(writer);
    EXPECT_FALSE(std::filesystem::exists(path));
    writer.finish();
    EXPECT_EQ(folder.files(), 1u);

    const SafetensorsFile file = SafetensorsFile::open(path);
    EXPECT_EQ(file.metadata(), example_plan().metadata);
    ASSERT_EQ(file.tensors().size(), example_plan().tensors.size());
    for (const auto& declared : example_plan().tensors) {
        const TensorInfo& info = file.at(declared.name);
        EXPECT_EQ(info.dtype, declared.dtype);
        EXPECT_EQ(info.shape, declared.shape);
        const size_t alignment = std::max(dtype_bits(info.dtype) / 8, 1);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(file.data(info).data()) % alignment, 0u) << info.name;
    }
    int seed = 0;
    for (const TensorInfo& info : file.tensors())
        EXPECT_TRUE(std::ranges::equal(file.data(info), bytes_of(pattern(info.end - info.begin, seed++)))) << info.name;
}

TEST(SafetensorsWriter, WidestElementsFirstThenDeclaredOrder) {
    std::vector<std::string> names;
    for (const TensorInfo& info : lay_out(example_plan(), "x").tensors) names.push_back(info.name);
    EXPECT_EQ(names, (std::vector<std::string>{"big", "scale", "bias", "none", "half", "codes", "nibbles", "\"quote\"\n\xC3\xA9"}));
}

TEST(SafetensorsWriter, HeaderToTheByte) {
    const SafetensorsPlan plan = {.tensors = {{"b", "U8", {1}}, {"a/\"", "F32", {2, 1}}}, .metadata = {{"k", "v"}}};
    const std::string json = R"({"__metadata__":{"k":"v"},"a/\"":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"U8","shape":[1],"data_offsets":[8,9]}})";
    const std::string padded = json + std::string((8 - json.size() % 8) % 8, ' ');
    EXPECT_EQ(lay_out(plan, "x").header, length_field(padded.size()) + padded);
    EXPECT_EQ(lay_out({}, "x").header, length_field(8) + "{}      ");
}

TEST(SafetensorsWriter, PiecesInAnyOrderGiveTheSameFile) {
    Folder folder;
    SafetensorsWriter whole(folder / "whole", example_plan());
    write_example(whole);
    whole.finish();

    SafetensorsWriter pieces(folder / "pieces", example_plan());
    std::vector<std::string> rest;
    for (const TensorInfo& info : pieces.tensors()) rest.push_back(pattern(info.end - info.begin, int(rest.size())));
    // Three bytes of each tensor in turn, the last tensor first.
    while (std::ranges::any_of(rest, [](const std::string& text) { return !text.empty(); }))
        for (size_t i = rest.size(); i-- > 0;) {
            pieces.append(pieces.tensors()[i].name, bytes_of(rest[i]).first(std::min<size_t>(3, rest[i].size())));
            rest[i].erase(0, 3);
        }
    pieces.finish();
    EXPECT_EQ(read_text(folder / "whole"), read_text(folder / "pieces"));
}

TEST(SafetensorsWriter, AFileWithoutTensors) {
    Folder folder;
    SafetensorsWriter writer(folder / "none", {});
    writer.finish();
    EXPECT_TRUE(SafetensorsFile::open(folder / "none").tensors().empty());
}

TEST(SafetensorsWriter, RefusesBadPlans) {
    struct BadPlan {
        SafetensorsPlan plan;
        std::vector<std::string> names;
    };
    const BadPlan cases[] = {
        {{.tensors = {{"w", "F31", {1}}}, .metadata = {}}, {"\"w\"", "F31", "F32"}},
        {{.tensors = {{"w", "F32", {-1}}}, .metadata = {}}, {"\"w\"", "[-1]"}},
        {{.tensors = {{"w", "F4", {1}}}, .metadata = {}}, {"\"w\"", "4 bits"}},
        {{.tensors = {{"w", "F32", {int64_t(1) << 62}}}, .metadata = {}}, {"\"w\"", "64 bits"}},
        {{.tensors = {{"v", "U8", {int64_t(1) << 60}},
                      {"w", "U16", {int64_t(1) << 59}},
                      {"x", "U32", {int64_t(1) << 58}},
                      {"y", "U32", {int64_t(1) << 58}},
                      {"z", "U32", {int64_t(1) << 58}}},
          .metadata = {}},
         {"\"v\"", "too large"}},
        {{.tensors = {{"w", "U8", {1}}, {"v", "U8", {1}}, {"w", "U8", {1}}}, .metadata = {}}, {"\"w\"", "twice"}},
        {{.tensors = {{"__metadata__", "U8", {1}}}, .metadata = {}}, {"__metadata__", "reserved"}},
        {{.tensors = {{"\xFF", "U8", {1}}}, .metadata = {}}, {"\\xff", "UTF-8"}},
        {{.tensors = {}, .metadata = {{"key", "\xFF"}}}, {"\"key\"", "UTF-8"}},
    };
    Folder folder;
    for (const BadPlan& bad : cases) {
        std::vector<std::string> names = bad.names;
        names.push_back(folder / "out");
        expect_refused(Status::invalid_argument, names, [&] { SafetensorsWriter(folder / "out", bad.plan); });
        EXPECT_EQ(folder.files(), 0u);
    }
}

TEST(SafetensorsWriter, RefusesWrongCalls) {
    Folder folder;
    const std::string path = folder / "out";
    SafetensorsWriter writer(path, {.tensors = {{"w", "F16", {3}}}, .metadata = {}});
    expect_refused(Status::invalid_argument, {path, "\"v\""}, [&] { writer.append("v", bytes_of("x")); });
    writer.append("w", bytes_of("1234"));
    expect_refused(Status::invalid_argument, {path, "\"w\"", "3 more bytes after 4 pass the 6 of F16 [3]"},
                   [&] { writer.append("w", bytes_of("567")); });
    expect_refused(Status::invalid_argument, {path, "\"w\"", "4 of the 6"}, [&] { writer.finish(); });
    EXPECT_FALSE(std::filesystem::exists(path));
    writer.append("w", bytes_of("56"));
    writer.finish();
    expect_refused(Status::invalid_argument, {"finished already"}, [&] { writer.finish(); });
    expect_refused(Status::invalid_argument, {"finished"}, [&] { writer.append("w", {}); });
    EXPECT_EQ(SafetensorsFile::open(path).data(SafetensorsFile::open(path).at("w")).size(), 6u);
}

TEST(TemporaryFile, IsRemovedWithoutFinish) {
    Folder folder;
    write_text(folder / "out", "old");
    {
        SafetensorsWriter writer(folder / "out", example_plan());
        EXPECT_EQ(folder.files(), 2u);
        SafetensorsWriter moved = std::move(writer);
        EXPECT_EQ(folder.files(), 2u);
    }
    EXPECT_EQ(folder.files(), 1u);
    EXPECT_EQ(read_text(folder / "out"), "old");
}

TEST(TemporaryFile, ReplacesTheDestinationOnlyAtTheEnd) {
    Folder folder;
    write_text(folder / "out", "old");
    SafetensorsWriter writer(folder / "out", {});
    EXPECT_EQ(read_text(folder / "out"), "old");
    writer.finish();
    EXPECT_EQ(folder.files(), 1u);
    EXPECT_TRUE(SafetensorsFile::open(folder / "out").tensors().empty());
}

TEST(TemporaryFile, ErrorsNameThePath) {
    Folder folder;
    expect_refused(Status::io_error, {"no/such/folder/out", "No such file or directory"},
                   [&] { TemporaryFile::create(folder / "no/such/folder/out"); });
    expect_refused(Status::io_error, {"name of a folder"}, [&] { TemporaryFile::create(folder / ""); });
}

TEST(TemporaryFile, HookRemovesAllThatAreNotFinished) {
    Folder folder;
    SafetensorsWriter finished(folder / "finished", {});
    finished.finish();
    SafetensorsWriter first(folder / "first", {}), second(folder / "second", {});
    EXPECT_EQ(folder.files(), 3u);
    remove_temporary_files();
    EXPECT_EQ(folder.files(), 1u);
    expect_refused(Status::io_error, {folder / "first"}, [&] { first.finish(); });
    remove_temporary_files();
    EXPECT_EQ(folder.files(), 1u);
}

TEST(TemporaryFile, SlotsAreGivenBack) {
    Folder folder;
    for (int i = 0; i < 3 * TemporaryFile::maximum_files; ++i) TemporaryFile::create(folder / "out");
    std::vector<TemporaryFile> files;
    for (int i = 0; i < TemporaryFile::maximum_files; ++i) files.push_back(TemporaryFile::create(folder / "out"));
    expect_refused(Status::io_error, {"64 files"}, [&] { TemporaryFile::create(folder / "out"); });
    files.clear();
    EXPECT_EQ(folder.files(), 0u);
}

TEST(TemporaryFile, ConcurrentWritersAndTheHook) {
    Folder folder;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < 50; ++i) TemporaryFile::create(folder / "out").write_at(0, bytes_of("x"));
        });
    for (int i = 0; i < 50; ++i) remove_temporary_files();
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(folder.files(), 0u);
}

void remove_and_exit(int) {
    remove_temporary_files();
    ::_exit(3);
}

TEST(TemporaryFile, SignalHandlerLeavesNothing) {
    Folder folder;
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        ::signal(SIGTERM, remove_and_exit);
        const SafetensorsWriter writer(folder / "out", example_plan());
        if (folder.files() != 1) ::_exit(4);
        ::kill(::getpid(), SIGTERM);
        ::_exit(5);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 3);
    EXPECT_EQ(folder.files(), 0u);
}

}  // namespace
}  // namespace lowbit::io
