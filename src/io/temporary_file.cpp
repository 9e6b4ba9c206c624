#include "io/temporary_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>
#include <system_error>
#include <thread>
#include <utility>

#include "core/status.hpp"

namespace lowbit::io {
namespace {

// A signal handler may read this table at any instant, so a path is only read or written by whoever moved its slot out of `active` or
// into `filling`:
//
//     vacant -> filling -> active                                    the writer creates its file
//                          active ------------------------> vacant   the writer has renamed or removed it
//                          active -> removing -> removed             remove_temporary_files()
//                                                removed -> vacant   the writer is done, too late
enum class SlotState : int { vacant, filling, active, removing, removed };

struct Slot {
    std::atomic<SlotState> state{SlotState::vacant};
    char path[PATH_MAX] = {};
};
static_assert(std::atomic<SlotState>::is_always_lock_free, "a signal handler may not wait for a lock");

constinit std::array<Slot, TemporaryFile::maximum_files> slots;

bool move_state(Slot& slot, SlotState from, SlotState to) { return slot.state.compare_exchange_strong(from, to); }

int claim_slot(const std::string& path) {
    if (path.size() >= PATH_MAX) core::fail(Status::io_error, path, ": the path is longer than ", PATH_MAX - 1, " bytes");
    for (int index = 0; index < TemporaryFile::maximum_files; ++index) {
        Slot& slot = slots[size_t(index)];
        if (!move_state(slot, SlotState::vacant, SlotState::filling)) continue;
        std::memcpy(slot.path, path.c_str(), path.size() + 1);
        slot.state = SlotState::active;
        return index;
    }
    core::fail(Status::io_error, path, ": ", TemporaryFile::maximum_files, " files are being written already; finish one of them first");
}

void release_slot(int index) noexcept {
    Slot& slot = slots[size_t(index)];
    // `removing` lasts for one unlink in another thread.
    while (!move_state(slot, SlotState::active, SlotState::vacant) && !move_state(slot, SlotState::removed, SlotState::vacant))
        std::this_thread::yield();
}

// The name does not contain the destination's, which may already be as long as a name can be.
std::string random_name() {
    std::random_device random;
    char name[64];
    std::snprintf(name, sizeof name, ".lowbit-%ld-%08x%08x.tmp", long(::getpid()), random(), random());
    return name;
}

// A rename is on the disk when its folder is. Some file systems cannot sync a folder; the file's bytes are safe then too.
void sync_folder(const std::filesystem::path& folder) {
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return;
    ::fsync(descriptor);
    ::close(descriptor);
}

}  // namespace

void remove_temporary_files() noexcept {
    const int saved = errno;  // the interrupted code may be about to read it
    for (Slot& slot : slots) {
        if (!move_state(slot, SlotState::active, SlotState::removing)) continue;
        ::unlink(slot.path);
        slot.state = SlotState::removed;
    }
    errno = saved;
}

TemporaryFile TemporaryFile::create(const std::string& destination) {
    std::error_code error;
    const std::filesystem::path absolute = std::filesystem::absolute(destination, error);
    if (error) core::fail(Status::io_error, destination, ": cannot find the folder: ", error.message());
    // rename would say so too, but only after hours of writing.
    if (absolute.filename().empty() || std::filesystem::is_directory(absolute, error))
        core::fail(Status::io_error, destination, ": cannot write the file: this is the name of a folder");

    TemporaryFile file;
    file.destination_ = absolute.string();
    for (int attempt = 0; attempt < 8 && file.descriptor_ < 0; ++attempt) {
        file.path_ = (absolute.parent_path() / random_name()).string();
        // The slot comes first: a signal between the two steps finds a name without a file, which is better than the reverse.
        const int slot = claim_slot(file.path_);
        file.descriptor_ = ::open(file.path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file.descriptor_ >= 0) {
            file.slot_ = slot;
            return file;
        }
        const int reason = errno;
        release_slot(slot);
        errno = reason;
        if (reason != EEXIST) break;
    }
    file.fail_with_errno("create a temporary file beside it");
}

TemporaryFile::TemporaryFile(TemporaryFile&& other) noexcept
    : path_(std::move(other.path_)),
      destination_(std::move(other.destination_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      slot_(std::exchange(other.slot_, -1)) {}

TemporaryFile& TemporaryFile::operator=(TemporaryFile&& other) noexcept {
    if (this == &other) return *this;
    discard();
    path_ = std::move(other.path_);
    destination_ = std::move(other.destination_);
    descriptor_ = std::exchange(other.descriptor_, -1);
    slot_ = std::exchange(other.slot_, -1);
    return *this;
}

TemporaryFile::~TemporaryFile() { discard(); }

void TemporaryFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
    constexpr size_t most_per_call = size_t(1) << 30;  // Linux moves at most 2^31 - 4096 bytes in one call
    while (!bytes.empty()) {
        const ssize_t written = ::pwrite(descriptor_, bytes.data(), std::min(bytes.size(), most_per_call), off_t(offset));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) fail_with_errno("write to its temporary file");
        bytes = bytes.subspan(size_t(written));
        offset += uint64_t(written);
    }
}

void TemporaryFile::commit() {
    if (committed()) core::fail(Status::invalid_argument, destination_, ": was committed before");
    if (::fsync(descriptor_) != 0) fail_with_errno("bring the bytes to the disk");
    if (::rename(path_.c_str(), destination_.c_str()) != 0) fail_with_errno("rename its temporary file");
    ::close(std::exchange(descriptor_, -1));
    release_slot(std::exchange(slot_, -1));
    sync_folder(std::filesystem::path(destination_).parent_path());
}

void TemporaryFile::discard() noexcept {
    if (descriptor_ < 0) return;
    ::unlink(path_.c_str());
    ::close(std::exchange(descriptor_, -1));
    release_slot(std::exchange(slot_, -1));
}

void TemporaryFile::fail_with_errno(const char* action) const {
    const std::string reason = std::generic_category().message(errno);
    core::fail(Status::io_error, destination_, ": cannot ", action, " (", path_, "): ", reason);
}

}  // namespace lowbit::io
