// Lets the Python tests reach the safetensors reader and writer.
//
//     safetensors_tool dump FILE       one JSON object a line: the metadata, then each tensor in the order of the bytes
//     safetensors_tool copy IN OUT     the same file, through our writer
//
// A refused file: its error text on stderr, and exit status 1.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include "io/json.hpp"
#include "io/safetensors.hpp"

namespace {

using namespace lowbit::io;

uint64_t fnv1a(std::span<const std::byte> bytes) {
    uint64_t hash = 0xcbf29ce484222325;
    for (const std::byte byte : bytes) hash = (hash ^ uint64_t(byte)) * 0x100000001b3;
    return hash;
}

void dump(const std::string& path) {
    const SafetensorsFile file = SafetensorsFile::open(path);
    std::string out = "{\"metadata\":{";
    for (const auto& [key, value] : file.metadata()) {
        if (out.back() != '{') out += ',';
        append_json_string(out, key);
        out += ':';
        append_json_string(out, value);
    }
    out += "}}\n";
    for (const TensorInfo& tensor : file.tensors()) {
        out += "{\"name\":";
        append_json_string(out, tensor.name);
        out += ",\"dtype\":\"" + tensor.dtype + "\",\"shape\":[";
        for (size_t axis = 0; axis < tensor.shape.size(); ++axis) out += (axis > 0 ? "," : "") + std::to_string(tensor.shape[axis]);
        out += "],\"begin\":" + std::to_string(tensor.begin) + ",\"fnv1a\":" + std::to_string(fnv1a(file.data(tensor))) + "}\n";
    }
    std::fwrite(out.data(), 1, out.size(), stdout);
}

void copy(const std::string& from, const std::string& to) {
    const SafetensorsFile file = SafetensorsFile::open(from);
    SafetensorsPlan plan{.tensors = {}, .metadata = file.metadata()};
    for (const TensorInfo& tensor : file.tensors()) plan.tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
    SafetensorsWriter writer(to, plan);
    constexpr size_t piece = 1000;  // small, so that the tests see many appends
    for (const TensorInfo& tensor : file.tensors())
        for (auto rest = file.data(tensor); !rest.empty(); rest = rest.subspan(std::min(piece, rest.size())))
            writer.append(tensor.name, rest.first(std::min(piece, rest.size())));
    writer.finish();
}

}  // namespace

int main(int count, char** arguments) try {
    const std::string_view command = count > 1 ? arguments[1] : "";
    if (command == "dump" && count == 3) {
        dump(arguments[2]);
    } else if (command == "copy" && count == 4) {
        copy(arguments[2], arguments[3]);
    } else {
        std::fputs("usage: safetensors_tool dump FILE | copy IN OUT\n", stderr);
        return 2;
    }
    return 0;
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
