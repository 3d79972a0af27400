#include "backends/emulated/device_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/error.h"

namespace megjit::emulated {
namespace {

[[noreturn]] void refuse(const char* what) {
    throw runtime::DeviceError(
        runtime::cat("emulated device: ", what, " failed: ", std::strerror(errno)));
}

}  // namespace

DeviceMemory::DeviceMemory(size_t bytes) : bytes_(bytes), process_(getpid()), free_{{0, bytes}} {
    file_ = memfd_create("megjit-emulated-device", MFD_CLOEXEC);
    if (file_ < 0) refuse("memfd_create");
    if (ftruncate(file_, static_cast<off_t>(bytes)) != 0) refuse("ftruncate");
    const auto map = [&](int protection) {
        void* p = mmap(nullptr, bytes, protection, MAP_SHARED | MAP_NORESERVE, file_, 0);
        if (p == MAP_FAILED) refuse("mmap");
        return static_cast<std::byte*>(p);
    };
    published_ = map(PROT_NONE);
    alias_ = map(PROT_READ | PROT_WRITE);
}

DeviceMemory::~DeviceMemory() {
    munmap(published_, bytes_);
    munmap(alias_, bytes_);
    close(file_);
}

bool DeviceMemory::holds(const void* published) const {
    const auto* p = static_cast<const std::byte*>(published);
    return p >= published_ && p < published_ + bytes_;
}

void* DeviceMemory::on_host(const void* published) const {
    if (!published) return nullptr;
    if (!holds(published))
        throw runtime::InternalError("an emulated device was given an address of the host");
    return alias_ + (static_cast<const std::byte*>(published) - published_);
}

void* DeviceMemory::map(size_t bytes) {
    const std::lock_guard lock(mutex_);
    for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
        const auto [offset, size] = *hole;
        if (size < bytes) continue;
        free_.erase(hole);
        if (size > bytes) free_.emplace(offset + bytes, size - bytes);
        return published_ + offset;
    }
    return nullptr;
}

size_t DeviceMemory::free_bytes() {
    const std::lock_guard lock(mutex_);
    size_t sum = 0;
    for (const auto& [offset, bytes] : free_) sum += bytes;
    return sum;
}

void DeviceMemory::unmap(void* published, size_t bytes) noexcept {
    if (getpid() != process_) return;  // a child of fork() shares the file
    size_t offset = static_cast<size_t>(static_cast<std::byte*>(published) - published_);
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));
    const std::lock_guard lock(mutex_);
    auto next = free_.lower_bound(offset);
    if (next != free_.end() && offset + bytes == next->first) {
        bytes += next->second;
        next = free_.erase(next);
    }
    if (next != free_.begin()) {
        auto before = std::prev(next);
        if (before->first + before->second == offset) {
            before->second += bytes;
            return;
        }
    }
    free_.emplace(offset, bytes);
}

}  // namespace megjit::emulated
