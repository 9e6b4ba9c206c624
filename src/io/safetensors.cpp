#include "io/safetensors.hpp"

#include <algorithm>
#include <utility>

#include "core/status.hpp"
#include "io/json.hpp"
#include "io/safetensors_dtype.hpp"

namespace lowbit::io {
namespace {

constexpr uint64_t length_bytes = 8;

std::string subject(const std::string& source, std::string_view tensor) { return core::join(source, ": tensor ", printable(tensor)); }

// The header's text, without its length in front and without the data behind.
std::string_view find_header(std::span<const std::byte> bytes, const std::string& source) {
    const auto refuse = [&](const auto&... parts) { core::fail(Status::io_error, source, ": ", parts...); };
    if (bytes.size() < length_bytes)
        refuse("the file has ", bytes.size(), " bytes; a safetensors file starts with ", length_bytes, " that count its header");
    uint64_t length = 0;
    for (size_t i = 0; i < length_bytes; ++i) length |= uint64_t(bytes[i]) << (8 * i);
    if (length > maximum_header_bytes)
        refuse("header length ", length, " is over the limit of ", maximum_header_bytes,
               " bytes; this is no safetensors file, or a damaged one");
    if (length > bytes.size() - length_bytes)
        refuse("header length ", length, " passes the end of the file, which has ", bytes.size() - length_bytes,
               " bytes behind the length");
    const std::string_view header(reinterpret_cast<const char*>(bytes.data()) + length_bytes, size_t(length));
    if (!header.starts_with('{'))
        refuse("the header must start with \"{\", found ", header.empty() ? std::string("nothing") : printable(header.substr(0, 1)));
    return header;
}

TensorInfo read_tensor(JsonReader& reader, const std::string& name, const std::string& source) {
    const std::string tensor = subject(source, name);
    TensorInfo info{.name = name, .dtype = {}, .shape = {}};
    bool has_dtype = false, has_shape = false, has_offsets = false;
    reader.begin_object();
    std::string key;
    while (reader.next_member(key)) {
        if (key == "dtype") {
            info.dtype = reader.read_string();
            has_dtype = true;
        } else if (key == "shape") {
            info.shape = reader.read_sizes();
            has_shape = true;
        } else if (key == "data_offsets") {
            const std::vector<int64_t> offsets = reader.read_sizes();
            if (offsets.size() != 2)
                core::fail(Status::io_error, tensor, ": data_offsets has ", offsets.size(), " numbers; use [begin, end]");
            info.begin = uint64_t(offsets[0]);
            info.end = uint64_t(offsets[1]);
            has_offsets = true;
        } else {
            core::fail(Status::io_error, tensor, ": unknown key ", printable(key), "; use dtype, shape and data_offsets");
        }
    }
    const char* missing = !has_dtype ? "dtype" : !has_shape ? "shape" : !has_offsets ? "data_offsets" : nullptr;
    if (missing) core::fail(Status::io_error, tensor, ": ", missing, " is missing");
    return info;
}

Metadata read_metadata(JsonReader& reader) {
    Metadata metadata;
    reader.begin_object();
    std::string key;
    while (reader.next_member(key)) metadata[key] = reader.read_string();
    return metadata;
}

void check_size(const TensorInfo& info, uint64_t data_bytes, const std::string& source) {
    const std::string tensor = subject(source, info.name);
    const uint64_t expected = tensor_bytes(info.dtype, info.shape, Status::io_error, tensor);
    if (info.begin > info.end) core::fail(Status::io_error, tensor, ": data_offsets [", info.begin, ", ", info.end, "] run backwards");
    if (info.end > data_bytes)
        core::fail(Status::io_error, tensor, ": data_offsets [", info.begin, ", ", info.end, "] pass the end of the data, which has ",
                   data_bytes, " bytes");
    if (info.end - info.begin != expected)
        core::fail(Status::io_error, tensor, ": data_offsets [", info.begin, ", ", info.end, "] hold ", info.end - info.begin,
                   " bytes, but ", info.dtype, " ", shape_text(info.shape), " takes ", expected);
}

// Bytes that no tensor owns could smuggle anything past whoever checks a checkpoint, and shared bytes are never meant.
void check_coverage(const std::vector<TensorInfo>& tensors, uint64_t data_bytes, const std::string& source) {
    uint64_t covered = 0;
    std::string previous = "the header";
    for (const TensorInfo& info : tensors) {
        if (info.begin != covered)
            core::fail(Status::io_error, subject(source, info.name), ": begins at byte ", info.begin, ", which is ",
                       info.begin < covered ? "an overlap: " : "a gap: ", previous, " ends at byte ", covered);
        covered = info.end;
        previous = "tensor " + printable(info.name);
    }
    if (covered != data_bytes)
        core::fail(Status::io_error, source, ": ", data_bytes - covered, " bytes after ", previous, " (byte ", covered, " of ", data_bytes,
                   ") belong to no tensor");
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::string& path) {
    MappedFile mapping = MappedFile::open(path);
    SafetensorsFile file = parse(mapping.bytes(), path);
    file.mapping_ = std::move(mapping);
    return file;
}

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes, std::string source) {
    SafetensorsFile file;
    file.source_ = std::move(source);
    const std::string_view header = find_header(bytes, file.source_);
    file.data_ = bytes.subspan(length_bytes + header.size());

    JsonReader reader(header, file.source_ + ": header");
    reader.begin_object();
    std::string name;
    while (reader.next_member(name)) {
        if (name == "__metadata__") {
            file.metadata_ = read_metadata(reader);
        } else {
            file.tensors_.push_back(read_tensor(reader, name, file.source_));
            check_size(file.tensors_.back(), file.data_.size(), file.source_);
        }
    }
    reader.finish();

    std::ranges::stable_sort(file.tensors_, {}, [](const TensorInfo& info) { return std::pair(info.begin, info.end); });
    check_coverage(file.tensors_, file.data_.size(), file.source_);
    for (size_t i = 0; i < file.tensors_.size(); ++i) file.index_.emplace(file.tensors_[i].name, i);
    return file;
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &tensors_[found->second];
}

const TensorInfo& SafetensorsFile::at(std::string_view name) const {
    const TensorInfo* info = find(name);
    if (!info) core::fail(Status::io_error, source_, ": has no tensor ", printable(name), " among its ", tensors_.size());
    return *info;
}

std::span<const std::byte> SafetensorsFile::data(const TensorInfo& tensor) const {
    if (tensor.begin > tensor.end || tensor.end > data_.size())
        core::fail(Status::invalid_argument, source_, ": tensor ", printable(tensor.name), " with bytes [", tensor.begin, ", ", tensor.end,
                   "] is not from this file, which has ", data_.size());
    return data_.subspan(size_t(tensor.begin), size_t(tensor.end - tensor.begin));
}

}  // namespace lowbit::io
