// The safetensors format: 8 bytes that count the header, a header in JSON that names the tensors, and their bytes one after the other.
//
//     | header length, little endian | {"__metadata__": {...}, "weight": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...} |
//     | data: offset 0 is here, and the tensors cover every byte up to the end of the file, each byte once |
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/mapped_file.hpp"
#include "io/temporary_file.hpp"

namespace lowbit::io {

struct TensorInfo {
    std::string name;
    std::string dtype;           // "F32" and so on, as in the file
    std::vector<int64_t> shape;  // empty: one number
    uint64_t begin = 0;          // in bytes from the start of the data
    uint64_t end = 0;
};

using Metadata = std::map<std::string, std::string>;

// What the PyPI package accepts as a header.
constexpr uint64_t maximum_header_bytes = 100'000'000;

// A file whose header has been read and checked. The checks are those of the PyPI package and a few more (duplicate names, unknown keys
// and padding other than spaces are refused), so what opens here opens there.
class SafetensorsFile {
public:
    static SafetensorsFile open(const std::string& path);
    // From memory, which must outlive the result. `source` opens the error texts.
    static SafetensorsFile parse(std::span<const std::byte> bytes, std::string source);

    // In the order of their bytes.
    const std::vector<TensorInfo>& tensors() const { return tensors_; }
    // nullptr where there is no tensor of this name.
    const TensorInfo* find(std::string_view name) const;
    // The same, but a missing tensor is an error.
    const TensorInfo& at(std::string_view name) const;

    // The bytes in the file, not a copy. The format does not promise an alignment: files of our writer and of the PyPI package are aligned
    // to the element, others may not be.
    std::span<const std::byte> data(const TensorInfo& tensor) const;

    const Metadata& metadata() const { return metadata_; }
    // The path, or what parse() was told.
    const std::string& source() const { return source_; }

private:
    SafetensorsFile() = default;

    std::string source_;
    MappedFile mapping_;
    std::span<const std::byte> data_;
    std::vector<TensorInfo> tensors_;
    std::map<std::string, size_t, std::less<>> index_;
    Metadata metadata_;
};

// What is to be written. It is known before the first byte of data, because the header comes first.
struct SafetensorsPlan {
    struct Tensor {
        std::string name;
        std::string dtype;
        std::vector<int64_t> shape;
    };

    std::vector<Tensor> tensors;
    Metadata metadata;
};

// Where a plan's tensors go, and the bytes in front of them.
struct SafetensorsLayout {
    std::vector<TensorInfo> tensors;  // in the order of their bytes
    std::string header;               // with the 8 bytes that count it; a multiple of 8 long
};

// Wide elements come first and otherwise the declared order stays, so every tensor is aligned to its element without gaps, and the same
// plan always gives the same bytes. `destination` opens the error texts.
SafetensorsLayout lay_out(const SafetensorsPlan& plan, const std::string& destination);

// Writes a file in bounded memory. The bytes of a tensor arrive in one append() or in many, in any order among the tensors. Without
// finish() there is no file: see TemporaryFile, and remove_temporary_files() for signal handlers.
class SafetensorsWriter {
public:
    SafetensorsWriter(const std::string& path, const SafetensorsPlan& plan);

    void append(std::string_view name, std::span<const std::byte> bytes);
    // Fails, and leaves the destination as it was, where a tensor has not got all its bytes.
    void finish();

    const std::vector<TensorInfo>& tensors() const { return tensors_; }

private:
    SafetensorsWriter(SafetensorsLayout layout, const std::string& path);

    std::string path_;
    std::vector<TensorInfo> tensors_;
    std::vector<uint64_t> written_;  // bytes of each tensor so far
    std::map<std::string, size_t, std::less<>> index_;
    uint64_t data_begin_ = 0;
    TemporaryFile file_;
};

}  // namespace lowbit::io
