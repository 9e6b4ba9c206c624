// What quantize, dequantize and inspect share: quantized matrices in safetensors files, read and written in bounded memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "io/quantized_file.hpp"
#include "io/safetensors.hpp"
#include "lowbit/lowbit.hpp"

namespace lowbit::tools {

// The planes of a format as a file holds them. Throws where the format cannot take the shape.
io::PlaneSet planes_of_format(const std::string& format, int64_t rows, int64_t columns);

// F32, F16 and BF16; nothing for other dtypes.
std::optional<Element> float_element(const std::string& dtype);

// Throws where both names lead to one file.
void refuse_same_file(const std::string& input, const std::string& output);

// From now on SIGINT, SIGTERM and SIGHUP remove the files that are not finished and end the program with 128 + the signal's number.
void remove_unfinished_files_on_signals();

// A span of a file, at an address that its numbers can be read from: in place, or copied where the file did not align it. Its pages go back
// to the system at the end, so that a large file does not pile up in memory.
class FileBytes {
public:
    FileBytes(std::span<const std::byte> bytes, size_t alignment);
    ~FileBytes();
    FileBytes(FileBytes&& other) noexcept;
    FileBytes& operator=(FileBytes&&) = delete;

    void* data() const { return copy_ ? copy_.get() : const_cast<std::byte*>(bytes_.data()); }

private:
    std::span<const std::byte> bytes_;
    std::unique_ptr<std::byte[]> copy_;
};

// The tensor's bytes from one file to the other.
void copy_tensor(const io::SafetensorsFile& file, const io::TensorInfo& tensor, io::SafetensorsWriter& writer);

// Calls body(piece, first row) for a few rows of the matrix after the other: whole groups of scales, about 4 MB as fp32.
void for_row_pieces(const lowbit_quantized_view& view, const std::function<void(const lowbit_quantized_view&, int64_t)>& body);

}  // namespace lowbit::tools
