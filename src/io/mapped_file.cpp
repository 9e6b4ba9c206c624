#include "io/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include "core/status.hpp"

namespace lowbit::io {
namespace {

// The mapping outlives its descriptor, so the descriptor lives only inside open().
struct Descriptor {
    int number;
    ~Descriptor() {
        if (number >= 0) ::close(number);
    }
};

[[noreturn]] void fail_with_errno(const std::string& path, const char* action) {
    core::fail(Status::io_error, path, ": cannot ", action, ": ", std::generic_category().message(errno));
}

}  // namespace

MappedFile MappedFile::open(const std::string& path) {
    // O_NONBLOCK: opening a pipe that nobody writes to would wait forever, before we could see that it is no file.
    const Descriptor descriptor{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    if (descriptor.number < 0) fail_with_errno(path, "open the file");
    struct stat status {};
    if (::fstat(descriptor.number, &status) != 0) fail_with_errno(path, "read the size of the file");
    if (!S_ISREG(status.st_mode)) core::fail(Status::io_error, path, ": is not a regular file");
    if (uint64_t(status.st_size) > SIZE_MAX) core::fail(Status::io_error, path, ": ", status.st_size, " bytes do not fit in memory");

    MappedFile file;
    file.path_ = path;
    if (status.st_size == 0) return file;  // mmap refuses a length of 0
    void* address = ::mmap(nullptr, size_t(status.st_size), PROT_READ, MAP_PRIVATE, descriptor.number, 0);
    if (address == MAP_FAILED) fail_with_errno(path, "map the file into memory");
    file.data_ = static_cast<const std::byte*>(address);
    file.size_ = size_t(status.st_size);
    return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    if (this == &other) return *this;
    unmap();
    path_ = std::move(other.path_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
    return *this;
}

MappedFile::~MappedFile() { unmap(); }

void MappedFile::unmap() noexcept {
    if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
    data_ = nullptr;
    size_ = 0;
}

}  // namespace lowbit::io
