// What the tests of src/io share: a folder of their own, files made by hand, and errors that must name their culprit.
#pragma once
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/status.hpp"

namespace lowbit::io::test {

// A new folder that goes away with its content.
class Folder {
public:
    Folder() : path_((std::filesystem::temp_directory_path() / "lowbit-test-XXXXXX").string()) {
        if (!::mkdtemp(path_.data())) throw std::runtime_error("cannot make the folder " + path_);
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { std::filesystem::remove_all(path_); }

    std::string operator/(const char* name) const { return path_ + "/" + name; }
    size_t files() const {
        return size_t(std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()));
    }

private:
    std::string path_;
};

inline void write_text(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

inline std::string read_text(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

// The 8 bytes in front of a safetensors header.
inline std::string length_field(uint64_t length) {
    std::string field;
    for (int i = 0; i < 8; ++i) field += char(length >> (8 * i));
    return field;
}

inline std::string make_file(const std::string& header, const std::string& data = "") {
    return length_field(header.size()) + header + data;
}

inline std::string tensor_json(const std::string& name, const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

// The action must fail with this status and a text that contains every one of the names.
template <class Action>
void expect_refused(Status status, const std::vector<std::string>& names, Action&& action) {
    try {
        action();
    } catch (const core::Failure& failure) {
        const std::string text = failure.what();
        EXPECT_EQ(int(failure.status()), int(status)) << text;
        for (const std::string& name : names) EXPECT_NE(text.find(name), std::string::npos) << "the text: " << text << "\nhas no: " << name;
        return;
    }
    ADD_FAILURE() << "nothing was refused";
}

}  // namespace lowbit::io::test
