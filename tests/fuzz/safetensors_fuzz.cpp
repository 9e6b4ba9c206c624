// Any bytes at all: the reader either refuses them with a Failure or gives tensors that cover them exactly and survive our writer.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "core/status.hpp"
#include "io/quantized_file.hpp"
#include "io/safetensors.hpp"

namespace {

using namespace lowbit;
using namespace lowbit::io;

void require(bool condition) {
    if (!condition) std::abort();
}

void check_tensors(const SafetensorsFile& file) {
    uint64_t covered = 0;
    [[maybe_unused]] volatile uint8_t sink = 0;
    for (const TensorInfo& tensor : file.tensors()) {
        require(tensor.begin == covered && file.find(tensor.name) == &tensor);
        for (const std::byte byte : file.data(tensor)) sink = uint8_t(byte);
        covered = tensor.end;
    }
}

// What has been read can be declared, and the header we write for it says the same.
void check_rewrite(const SafetensorsFile& file) {
    SafetensorsPlan plan{.tensors = {}, .metadata = file.metadata()};
    for (const TensorInfo& tensor : file.tensors()) plan.tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
    const SafetensorsLayout layout = lay_out(plan, "rewritten");
    require(layout.header.size() % 8 == 0);
    std::string bytes = layout.header;
    for (const TensorInfo& tensor : layout.tensors) {
        const auto data = file.data(file.at(tensor.name));
        bytes.append(reinterpret_cast<const char*>(data.data()), data.size());
    }
    const SafetensorsFile again = SafetensorsFile::parse(std::as_bytes(std::span(bytes)), "rewritten");
    require(again.metadata() == file.metadata() && again.tensors().size() == file.tensors().size());
    for (const TensorInfo& tensor : file.tensors()) {
        const TensorInfo& twin = again.at(tensor.name);
        require(twin.dtype == tensor.dtype && twin.shape == tensor.shape && twin.end - twin.begin == tensor.end - tensor.begin);
    }
}

void check_quantized(const SafetensorsFile& file) {
    try {
        for (const QuantizedEntry& entry : list_quantized(file)) {
            require(entry.codes != nullptr);
            require(entry.codes->shape[0] == matrix_shape(entry.shape).rows);
        }
    } catch (const core::Failure&) {
    }
}

void check_file(std::span<const std::byte> bytes) {
    try {
        const SafetensorsFile file = SafetensorsFile::parse(bytes, "fuzz");
        check_tensors(file);
        check_rewrite(file);
        check_quantized(file);
    } catch (const core::Failure& failure) {
        require(failure.status() == Status::io_error && failure.what()[0] != '\0');
    }
}

// The input without its first byte as a header, and so many bytes of data as that byte says. In a whole file nearly every change of length
// stops at the first check; here it reaches the checks behind.
std::string file_around(const uint8_t* header, size_t size, size_t data_bytes) {
    std::string file;
    for (int i = 0; i < 8; ++i) file += char(uint64_t(size) >> (8 * i));
    file.append(reinterpret_cast<const char*>(header), size);
    file.append(data_bytes, '\0');
    return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    check_file(std::as_bytes(std::span(data, size)));
    if (size == 0) return 0;
    const std::string file = file_around(data + 1, size - 1, data[0]);
    check_file(std::as_bytes(std::span(file)));
    return 0;
}
