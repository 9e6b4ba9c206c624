// A file seen as memory, read-only. Pages arrive when they are touched, so opening a checkpoint of any size costs nothing.
#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace lowbit::io {

// Move-only; an empty file is an empty span. As with every mapping, a file that another program shortens meanwhile raises SIGBUS on the
// next touch of a page that is gone.
class MappedFile {
public:
    static MappedFile open(const std::string& path);

    MappedFile() = default;
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    ~MappedFile();

    std::span<const std::byte> bytes() const { return {data_, size_}; }
    const std::string& path() const { return path_; }

private:
    void unmap() noexcept;

    std::string path_;
    const std::byte* data_ = nullptr;
    size_t size_ = 0;
};

}  // namespace lowbit::io
