#include "runtime/core/spill_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>

#include "runtime/host/checksum.h"
#include "runtime/host/error.h"
#include "runtime/host/size_text.h"

namespace megjit::runtime {
namespace {

constexpr size_t kChunk = size_t{4} << 20;  // of one read or write
constexpr size_t kMeasured = size_t{32} << 20;  // bytes that are written to see how fast that is

thread_local const SpillFile* file_of_thread = nullptr;  // whose thread this is

constexpr const char* kMakeRoom =
    "free room there, name another folder, or raise memory_limit; nothing is lost: what the call "
    "was to replace is as it was";
constexpr const char* kMakeSound =
    "name a folder on another disk; what the call was to replace is "
    "as it was";

size_t whole_blocks(size_t bytes) {
    return (bytes + SpillFile::kAlign - 1) / SpillFile::kAlign * SpillFile::kAlign;
}

// Memory as direct reads and writes want it; each thread has its own.
std::byte* chunk_buffer() {
    struct Free {
        void operator()(std::byte* block) const { std::free(block); }
    };
    thread_local std::unique_ptr<std::byte, Free> buffer(
        static_cast<std::byte*>(std::aligned_alloc(SpillFile::kAlign, kChunk)));
    if (!buffer) throw std::bad_alloc();
    return buffer.get();
}

struct Books {
    Mutex mutex{"the spill files"};
    std::map<std::string, std::weak_ptr<SpillFile>> files;  // by folder
    std::map<std::string, double> speeds;  // by folder
};
Books& books() {
    static auto* one = new Books;
    return *one;
}

}  // namespace

std::shared_ptr<SpillFile> SpillFile::in(const std::string& folder) {
    std::error_code ignored;
    const std::string name = std::filesystem::weakly_canonical(folder, ignored).string();
    const auto usable = [](const std::weak_ptr<SpillFile>& there) {
        std::shared_ptr<SpillFile> file = there.lock();
        return file && !file->is_inherited() ? file : nullptr;
    };
    {
        const std::lock_guard lock(books().mutex);
        if (auto file = usable(books().files[name])) return file;
    }
    // It is made without the lock: it may fail, and its thread has a lock of its own.
    const std::shared_ptr<SpillFile> fresh(new SpillFile(folder));
    const std::lock_guard lock(books().mutex);
    std::weak_ptr<SpillFile>& there = books().files[name];
    if (auto other = usable(there)) return other;
    there = fresh;
    return fresh;
}

SpillFile::SpillFile(const std::string& folder) : ThreadStream("a spill file"), folder_(folder) {
    const int flags = O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC;
    file_ = ::open(folder.c_str(), flags | O_DIRECT, 0600);
    if (file_ < 0 && errno == EINVAL) {
        is_direct_ = false;
        file_ = ::open(folder.c_str(), flags, 0600);
    }
    if (file_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {  // no files without a name
        std::string name = folder + "/megjit-spill-XXXXXX";
        file_ = ::mkostemp(name.data(), O_CLOEXEC);
        if (file_ >= 0) ::unlink(name.c_str());
    }
    if (file_ < 0)
        fail("cannot make a file", 0, std::strerror(errno), "name a folder that can be written to");
}

SpillFile::~SpillFile() { ::close(file_); }

void SpillFile::fail(const char* doing, size_t bytes, const std::string& why,
                     const std::string& fix) const {
    user_error(
        {.what = bytes ? cat("spill: the folder '", folder_, "' ", doing, " ", bytes_text(bytes))
                       : cat("spill: ", doing, " in the folder '", folder_, "'"),
         .why = why,
         .fix = fix},
        ErrorKind::os);
}

std::shared_ptr<SpillFile::Extent> SpillFile::take(size_t bytes) {
    const size_t room = whole_blocks(bytes);
    const std::lock_guard lock(books_);
    auto best = free_.end();
    for (auto each = free_.begin(); each != free_.end(); ++each)
        if (each->second >= room && (best == free_.end() || each->second < best->second))
            best = each;
    size_t offset = end_;
    if (best != free_.end()) {
        offset = best->first;
        if (best->second > room) free_[offset + room] = best->second - room;
        free_.erase(offset);
    } else {
        if (::fallocate(file_, 0, static_cast<off_t>(end_), static_cast<off_t>(room)) != 0 &&
            errno != EOPNOTSUPP)
            fail("has no room for", bytes,
                 cat(std::strerror(errno), "; the file there has ", bytes_text(end_)), kMakeRoom);
        end_ += room;
    }
    return std::make_shared<Extent>(shared_from_this(), offset, bytes);
}

void SpillFile::give_back(size_t offset, size_t bytes) noexcept {
    size_t room = whole_blocks(bytes);
    const std::lock_guard lock(books_);
    for (size_t at = 0; at < bytes; at += kChunk) sums_.erase(offset + at);
    const auto next = free_.lower_bound(offset);
    if (next != free_.end() && next->first == offset + room) {
        room += next->second;
        free_.erase(next);
    }
    if (const auto found = free_.lower_bound(offset); found != free_.begin()) {
        const auto before = std::prev(found);
        if (before->first + before->second == offset) {
            before->second += room;
            return;
        }
    }
    free_[offset] = room;
}

void SpillFile::begin_thread() { file_of_thread = this; }

void SpillFile::check_stop() const {
    if (file_of_thread == this && is_stopped())
        user_error({.what = "spill: the call was interrupted"}, ErrorKind::runtime);
}

void SpillFile::upload(void* to, const void* from, size_t bytes, bool) {
    add([this, to, offset = reinterpret_cast<size_t>(from), bytes] { read(to, offset, bytes); });
}

void SpillFile::download(void* to, const void* from, size_t bytes) {
    add([this, offset = reinterpret_cast<size_t>(to), from, bytes] { write(offset, from, bytes); });
}

void SpillFile::write(size_t offset, const void* from, size_t bytes) {
    std::byte* const buffer = chunk_buffer();
    for (size_t at = 0; at < bytes; at += kChunk) {
        check_stop();
        const size_t part = std::min(kChunk, bytes - at), whole = whole_blocks(part);
        std::memcpy(buffer, static_cast<const std::byte*>(from) + at, part);
        std::memset(buffer + part, 0, whole - part);
        const uint64_t sum = checksum({reinterpret_cast<const char*>(buffer), part});
        for (size_t done = 0; done < whole;) {
            const ssize_t now = ::pwrite(file_, buffer + done, whole - done,
                                         static_cast<off_t>(offset + at + done));
            if (now < 0 && errno == EINTR) continue;
            if (now <= 0)
                fail("could not take", bytes, now < 0 ? std::strerror(errno) : "nothing is written",
                     kMakeRoom);
            done += static_cast<size_t>(now);
        }
        if (!is_direct_) {
            ::sync_file_range(file_, static_cast<off_t>(offset + at), static_cast<off_t>(whole),
                              SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
            ::posix_fadvise(file_, static_cast<off_t>(offset + at), static_cast<off_t>(whole),
                            POSIX_FADV_DONTNEED);
        }
        const std::lock_guard lock(books_);
        sums_[offset + at] = sum;
    }
}

void SpillFile::read(void* to, size_t offset, size_t bytes) {
    std::byte* const buffer = chunk_buffer();
    for (size_t at = 0; at < bytes; at += kChunk) {
        check_stop();
        const size_t part = std::min(kChunk, bytes - at), whole = whole_blocks(part);
        for (size_t done = 0; done < part;) {
            const ssize_t now =
                ::pread(file_, buffer + done, whole - done, static_cast<off_t>(offset + at + done));
            if (now < 0 && errno == EINTR) continue;
            if (now <= 0)
                fail("did not give back", bytes, now < 0 ? std::strerror(errno) : "the file ends",
                     kMakeSound);
            done += static_cast<size_t>(now);
        }
        if (!is_direct_)
            ::posix_fadvise(file_, static_cast<off_t>(offset + at), static_cast<off_t>(whole),
                            POSIX_FADV_DONTNEED);
        const uint64_t sum = checksum({reinterpret_cast<const char*>(buffer), part});
        bool is_same = false;
        {
            const std::lock_guard lock(books_);
            const auto written = sums_.find(offset + at);
            is_same = written != sums_.end() && written->second == sum;
        }
        if (!is_same)
            fail("did not give back", bytes,
                 is_inherited() ? "the process that forked this one has written over them"
                                : "the bytes are not those that were written",
                 kMakeSound);
        std::memcpy(static_cast<std::byte*>(to) + at, buffer, part);
    }
}

double SpillFile::bytes_per_second() {
    {
        const std::lock_guard lock(books().mutex);
        if (const auto known = books().speeds.find(folder_); known != books().speeds.end())
            return known->second;
    }
    const std::shared_ptr<Extent> extent = take(kMeasured);
    const std::unique_ptr<std::byte[]> bytes(new std::byte[kMeasured]());
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    extent->write(bytes.get());
    extent->read(bytes.get());
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    const std::lock_guard lock(books().mutex);
    return books().speeds[folder_] = 2 * kMeasured / std::max(seconds.count(), 1e-6);
}

}  // namespace megjit::runtime
