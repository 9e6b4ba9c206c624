#include <algorithm>
#include <utility>

#include "core/status.hpp"
#include "io/json.hpp"
#include "io/safetensors.hpp"
#include "io/safetensors_dtype.hpp"

namespace lowbit::io {
namespace {

void check_plan(const SafetensorsPlan& plan, const std::string& destination) {
    const auto refuse = [&](const auto&... parts) { core::fail(Status::invalid_argument, destination, ": ", parts...); };
    std::vector<std::string_view> names;
    for (const SafetensorsPlan::Tensor& tensor : plan.tensors) {
        if (!is_utf8(tensor.name)) refuse("tensor ", printable(tensor.name), ": the name is not valid UTF-8");
        if (tensor.name == "__metadata__") refuse("tensor \"__metadata__\": the name is reserved by the format");
        names.push_back(tensor.name);
    }
    std::ranges::sort(names);
    const auto twice = std::ranges::adjacent_find(names);
    if (twice != names.end()) refuse("tensor ", printable(*twice), ": is declared twice");
    for (const auto& [key, value] : plan.metadata)
        if (!is_utf8(key) || !is_utf8(value)) refuse("metadata ", printable(key), ": is not valid UTF-8");
}

template <class Numbers>
void append_numbers(std::string& out, const Numbers& numbers) {
    out += '[';
    bool first = true;
    for (const auto number : numbers) {
        if (!std::exchange(first, false)) out += ',';
        out += std::to_string(number);
    }
    out += ']';
}

// The JSON as the PyPI package writes it, to the byte.
std::string encode_header(const std::vector<TensorInfo>& tensors, const Metadata& metadata) {
    std::string json = "{";
    if (!metadata.empty()) {
        json += "\"__metadata__\":{";
        for (const auto& [key, value] : metadata) {
            if (json.back() != '{') json += ',';
            append_json_string(json, key);
            json += ':';
            append_json_string(json, value);
        }
        json += '}';
    }
    for (const TensorInfo& tensor : tensors) {
        if (json.back() != '{') json += ',';
        append_json_string(json, tensor.name);
        json += ":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":";
        append_numbers(json, tensor.shape);
        json += ",\"data_offsets\":";
        append_numbers(json, std::vector{tensor.begin, tensor.end});
        json += '}';
    }
    json += '}';
    json.append((8 - json.size() % 8) % 8, ' ');
    return json;
}

}  // namespace

SafetensorsLayout lay_out(const SafetensorsPlan& plan, const std::string& destination) {
    check_plan(plan, destination);
    SafetensorsLayout layout;
    for (const SafetensorsPlan::Tensor& tensor : plan.tensors)
        layout.tensors.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
    // Types narrower than a byte need no alignment beyond the byte, so they count as one.
    std::ranges::stable_sort(layout.tensors, std::ranges::greater{},
                             [](const TensorInfo& info) { return std::max(dtype_bits(info.dtype), 8); });

    uint64_t offset = 0;
    for (TensorInfo& info : layout.tensors) {
        const std::string subject = core::join(destination, ": tensor ", printable(info.name));
        const uint64_t bytes = tensor_bytes(info.dtype, info.shape, Status::invalid_argument, subject);
        info.begin = offset;
        // 2^62: room for the header, and within what a file offset can say.
        if (__builtin_add_overflow(offset, bytes, &offset) || offset > uint64_t(1) << 62)
            core::fail(Status::invalid_argument, subject, ": ", info.dtype, " ", shape_text(info.shape),
                       " makes the file too large for any disk");
        info.end = offset;
    }

    const std::string json = encode_header(layout.tensors, plan.metadata);
    if (json.size() > maximum_header_bytes)
        core::fail(Status::invalid_argument, destination, ": the header of ", plan.tensors.size(), " tensors takes ", json.size(),
                   " bytes; the format allows ", maximum_header_bytes);
    for (size_t i = 0; i < 8; ++i) layout.header += char(uint64_t(json.size()) >> (8 * i));
    layout.header += json;
    return layout;
}

// The plan is checked before the temporary file exists: a refused plan touches no disk.
SafetensorsWriter::SafetensorsWriter(const std::string& path, const SafetensorsPlan& plan) : SafetensorsWriter(lay_out(plan, path), path) {}

SafetensorsWriter::SafetensorsWriter(SafetensorsLayout layout, const std::string& path)
    : path_(path),
      tensors_(std::move(layout.tensors)),
      written_(tensors_.size(), 0),
      data_begin_(layout.header.size()),
      file_(TemporaryFile::create(path)) {
    for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
    file_.write_at(0, std::as_bytes(std::span(layout.header)));
}

void SafetensorsWriter::append(std::string_view name, std::span<const std::byte> bytes) {
    const auto refuse = [&](const auto&... parts) {
        core::fail(Status::invalid_argument, path_, ": tensor ", printable(name), ": ", parts...);
    };
    if (file_.committed()) refuse("the file is finished; nothing can be appended");
    const auto found = index_.find(name);
    if (found == index_.end()) refuse("was not declared");
    const TensorInfo& info = tensors_[found->second];
    uint64_t& written = written_[found->second];
    const uint64_t total = info.end - info.begin;
    if (bytes.size() > total - written)
        refuse(bytes.size(), " more bytes after ", written, " pass the ", total, " of ", info.dtype, " ", shape_text(info.shape));
    file_.write_at(data_begin_ + info.begin + written, bytes);
    written += bytes.size();
}

void SafetensorsWriter::finish() {
    if (file_.committed()) core::fail(Status::invalid_argument, path_, ": the file is finished already");
    for (size_t i = 0; i < tensors_.size(); ++i) {
        const TensorInfo& info = tensors_[i];
        if (written_[i] != info.end - info.begin)
            core::fail(Status::invalid_argument, path_, ": tensor ", printable(info.name), ": got ", written_[i], " of the ",
                       info.end - info.begin, " bytes of ", info.dtype, " ", shape_text(info.shape));
    }
    file_.commit();
}

}  // namespace lowbit::io
