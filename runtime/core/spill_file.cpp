#include "runtime/core/spill_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <mutex>
#include <system_error>

#include "runtime/host/checksum.h"
#include "runtime/host/error.h"
#include "runtime/host/quiet_thread.h"
#include "runtime/host/size_text.h"

namespace megjit::runtime {
namespace {

constexpr size_t kChunk = size_t{1} << 20;  // bytes of one read or write, which fit into a cache
constexpr size_t kMeasured = size_t{32} << 20;  // bytes that are written to measure the speed

thread_local const SpillFile* file_of_thread = nullptr;  // the file that this thread serves

constexpr const char* kMakeRoom =
    "free room there, name another folder, or raise memory_limit; nothing is lost: what the call "
    "was to replace is as it was";
constexpr const char* kMakeSound =
    "name a folder on another disk; what the call was to replace is "
    "as it was";

size_t whole_blocks(size_t bytes) {
    return (bytes + SpillFile::kAlign - 1) / SpillFile::kAlign * SpillFile::kAlign;
}

// Aligned memory for direct reads and writes: two chunks, for each thread its own.
std::byte* chunk_buffers() {
    struct Free {
        void operator()(std::byte* block) const { std::free(block); }
    };
    thread_local std::unique_ptr<std::byte, Free> buffers(
        static_cast<std::byte*>(std::aligned_alloc(SpillFile::kAlign, 2 * kChunk)));
    if (!buffers) throw std::bad_alloc();
    return buffers.get();
}

// Calls `move(at, part, buffer)` for each chunk. Two threads take chunks in turn: one waits for the
// disk while the other sums up and copies. The first error ends both.
template <class Move>
void by_chunks(size_t bytes, const Move& move) {
    std::byte* const buffers = chunk_buffers();
    std::atomic<size_t> next = 0;
    const auto work = [&](std::byte* buffer) {
        for (size_t at; (at = next.fetch_add(kChunk)) < bytes;)
            move(at, std::min(kChunk, bytes - at), buffer);
    };
    std::exception_ptr error;
    const auto guarded = [&](std::byte* buffer, std::exception_ptr& into) {
        try {
            work(buffer);
        } catch (...) {
            into = std::current_exception();
            next = bytes;
        }
    };
    std::exception_ptr second;
    std::thread beside;
    if (bytes > kChunk) try {
            beside = quiet_thread([&] { guarded(buffers + kChunk, second); });
        } catch (const std::system_error&) {
            // The system gives no second thread, and this one takes all chunks.
        }
    guarded(buffers, error);
    if (beside.joinable()) beside.join();
    if (error || second) std::rethrow_exception(error ? error : second);
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
    // The file is made without the lock: making it may fail, and its thread has a lock of its own.
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
    if (file_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {  // no nameless files there
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

// Is this the stream's thread? Interrupts end its work; other threads read without a turn.
bool SpillFile::is_stream() const { return file_of_thread == this; }

void SpillFile::upload(void* to, const void* from, size_t bytes, bool) {
    add([this, to, offset = reinterpret_cast<size_t>(from), bytes] { read(to, offset, bytes); });
}

void SpillFile::download(void* to, const void* from, size_t bytes) {
    add([this, offset = reinterpret_cast<size_t>(to), from, bytes] { write(offset, from, bytes); });
}

void SpillFile::write(size_t offset, const void* from, size_t bytes) {
    by_chunks(bytes, [&, stops = is_stream()](size_t at, size_t part, std::byte* buffer) {
        check_stop(stops);
        std::memcpy(buffer, static_cast<const std::byte*>(from) + at, part);
        const size_t whole = whole_blocks(part);
        std::memset(buffer + part, 0, whole - part);
        const uint64_t sum = checksum({reinterpret_cast<const char*>(buffer), part});
        write_chunk(offset + at, buffer, whole, bytes);
        const std::lock_guard lock(books_);
        sums_[offset + at] = sum;
    });
}

void SpillFile::read(void* to, size_t offset, size_t bytes) {
    by_chunks(bytes, [&, stops = is_stream()](size_t at, size_t part, std::byte* buffer) {
        check_stop(stops);
        read_chunk(buffer, offset + at, part, bytes);
        const uint64_t sum = checksum({reinterpret_cast<const char*>(buffer), part});
        if (!is_sum(offset + at, sum))
            fail("did not give back", bytes,
                 is_inherited() ? "the process that forked this one has written over them"
                                : "the bytes are not those that were written",
                 kMakeSound);
        std::memcpy(static_cast<std::byte*>(to) + at, buffer, part);
    });
}

void SpillFile::check_stop(bool stops) const {
    if (stops && is_stopped())
        user_error({.what = "spill: the call was interrupted"}, ErrorKind::runtime);
}

bool SpillFile::is_sum(size_t offset, uint64_t sum) const {
    const std::lock_guard lock(books_);
    const auto written = sums_.find(offset);
    return written != sums_.end() && written->second == sum;
}

// `whole` is a multiple of the block size; an error tells `bytes`, the size of the whole value.
void SpillFile::write_chunk(size_t offset, const std::byte* from, size_t whole, size_t bytes) {
    for (size_t done = 0; done < whole;) {
        const ssize_t now =
            ::pwrite(file_, from + done, whole - done, static_cast<off_t>(offset + done));
        if (now < 0 && errno == EINTR) continue;
        if (now <= 0)
            fail("could not take", bytes, now < 0 ? std::strerror(errno) : "nothing is written",
                 kMakeRoom);
        done += static_cast<size_t>(now);
    }
    if (is_direct_) return;
    ::sync_file_range(file_, static_cast<off_t>(offset), static_cast<off_t>(whole),
                      SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    drop_pages(offset, whole);
}

void SpillFile::read_chunk(std::byte* to, size_t offset, size_t part, size_t bytes) {
    const size_t whole = whole_blocks(part);
    for (size_t done = 0; done < part;) {
        const ssize_t now =
            ::pread(file_, to + done, whole - done, static_cast<off_t>(offset + done));
        if (now < 0 && errno == EINTR) continue;
        if (now <= 0)
            fail("did not give back", bytes, now < 0 ? std::strerror(errno) : "the file ends",
                 kMakeSound);
        done += static_cast<size_t>(now);
    }
    if (!is_direct_) drop_pages(offset, whole);
}

void SpillFile::drop_pages(size_t offset, size_t bytes) {
    ::posix_fadvise(file_, static_cast<off_t>(offset), static_cast<off_t>(bytes),
                    POSIX_FADV_DONTNEED);
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
