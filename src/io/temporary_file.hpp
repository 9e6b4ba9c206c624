// A file under construction: it has a name of its own beside its destination, and takes the destination's place only when it is complete.
// Whoever looks at the destination sees the old file or the new one, never half of one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lowbit::io {

class TemporaryFile {
public:
    // At most this many exist at a time in one process.
    static constexpr int maximum_files = 64;

    static TemporaryFile create(const std::string& destination);

    TemporaryFile(TemporaryFile&& other) noexcept;
    TemporaryFile& operator=(TemporaryFile&& other) noexcept;
    // Removes the file unless commit() has returned.
    ~TemporaryFile();

    void write_at(uint64_t offset, std::span<const std::byte> bytes);
    // Brings the bytes to the disk, then renames the file to its destination.
    void commit();

    bool committed() const { return descriptor_ < 0; }
    const std::string& path() const { return path_; }
    const std::string& destination() const { return destination_; }

private:
    TemporaryFile() = default;
    void discard() noexcept;
    [[noreturn]] void fail_with_errno(const char* action) const;

    std::string path_;  // absolute, so that a later chdir does not matter
    std::string destination_;
    int descriptor_ = -1;
    int slot_ = -1;
};

// Removes every temporary file of this process that is not committed yet. For the program's SIGINT and SIGTERM handler: it allocates
// nothing, takes no lock and calls nothing but unlink.
void remove_temporary_files() noexcept;

}  // namespace lowbit::io
