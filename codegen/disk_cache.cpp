#include "codegen/disk_cache.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/debug.h"
#include "runtime/error.h"

namespace megjit::codegen {
namespace {

namespace fs = std::filesystem;
using runtime::cat;

constexpr char kMagic[8] = {'m', 'e', 'g', 'j', 'i', 't', 'k', '1'};
constexpr size_t kMaxFiles = 16384;          // a kernel is 2 to 20 KB: at most some 200 MB
constexpr size_t kMaxFileBytes = 64u << 20;  // larger than any kernel; do not read further

struct Header {
    char magic[8] = {};
    uint64_t key_bytes = 0;
    uint64_t object_bytes = 0;
    uint64_t checksum = 0;  // of key and object
};

// FNV-1a over 64-bit words with a final mix; not against attackers, who are kept out by the folder's owner.
uint64_t hash(std::string_view text, uint64_t seed) {
    uint64_t h = 0xCBF29CE484222325ull ^ seed;
    const auto add = [&h](uint64_t word) {
        h = (h ^ word) * 0x100000001B3ull;
        h ^= h >> 32;
    };
    for (; text.size() >= 8; text.remove_prefix(8)) {
        uint64_t word;
        std::memcpy(&word, text.data(), 8);
        add(word);
    }
    for (char c : text) add(static_cast<unsigned char>(c));
    h *= 0x9E3779B97F4A7C15ull;
    return h ^ h >> 29;
}

uint64_t checksum_of(std::string_view key, std::string_view object) { return hash(object, hash(key, key.size())); }

class File {
public:
    explicit File(int fd) : fd_(fd) {}
    ~File() {
        if (fd_ >= 0) ::close(fd_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    bool is_open() const { return fd_ >= 0; }
    int fd() const { return fd_; }
    bool read(void* to, size_t bytes) const {
        for (char* at = static_cast<char*>(to); bytes;) {
            const ssize_t n = ::read(fd_, at, bytes);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return false;
            at += n;
            bytes -= static_cast<size_t>(n);
        }
        return true;
    }
    bool write(std::string_view data) const {
        while (!data.empty()) {
            const ssize_t n = ::write(fd_, data.data(), data.size());
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return false;
            data.remove_prefix(static_cast<size_t>(n));
        }
        return true;
    }

private:
    int fd_;
};

// Why code must not be read from this folder; "" when it may.
std::string distrust(const fs::path& folder) {
    struct stat status {};
    if (::stat(folder.c_str(), &status) != 0) return std::strerror(errno);
    if (!S_ISDIR(status.st_mode)) return "it is not a folder";
    if (status.st_uid != ::geteuid()) return "it belongs to another user";
    if (status.st_mode & (S_IWGRP | S_IWOTH)) return "other users can write to it";
    return "";
}

// As mkdir -p; every folder made is for its owner alone.
bool make_folders(const fs::path& folder) {
    if (std::error_code ignored; fs::is_directory(folder, ignored)) return true;
    if (folder.has_parent_path() && folder.parent_path() != folder && !make_folders(folder.parent_path())) return false;
    return ::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST;
}

}  // namespace

DiskCache::DiskCache(fs::path folder) : folder_(std::move(folder)) {
    if (folder_.empty()) return;
    if (!make_folders(folder_)) {
        warn_once(cat("kernels are not cached on disk: cannot make ", folder_.string(), ": ", std::strerror(errno)));
        return;
    }
    if (const std::string why = distrust(folder_); !why.empty()) {
        warn_once(cat("kernels are not cached on disk: ", folder_.string(), " is refused: ", why,
                      "; chmod 700 it, or name another folder in MEGJIT_CACHE_DIR"));
        return;
    }
    usable_ = true;
}

fs::path DiskCache::file_of(std::string_view key) const {
    char name[40];
    std::snprintf(name, sizeof name, "%016llx%016llx.k", static_cast<unsigned long long>(hash(key, 1)),
                  static_cast<unsigned long long>(hash(key, 2)));
    return folder_ / name;
}

std::optional<std::string> DiskCache::find(std::string_view key) const {
    if (!usable_) return {};
    const File file(::open(file_of(key).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file.is_open()) return {};
    struct stat status {};
    if (::fstat(file.fd(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) return {};
    Header header;
    if (!file.read(&header, sizeof header) || std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return {};
    if (header.key_bytes != key.size() || header.object_bytes > kMaxFileBytes) return {};
    if (static_cast<uint64_t>(status.st_size) != sizeof header + header.key_bytes + header.object_bytes) return {};
    std::string stored_key(header.key_bytes, '\0'), object(header.object_bytes, '\0');
    if (!file.read(stored_key.data(), stored_key.size()) || !file.read(object.data(), object.size())) return {};
    if (stored_key != key || checksum_of(key, object) != header.checksum) return {};
    return object;
}

void DiskCache::store(std::string_view key, std::string_view object) {
    if (!usable_) return;
    if (!std::exchange(pruned_, true)) prune();
    static std::atomic<unsigned> serial{0};
    const fs::path target = file_of(key);
    const std::string temporary = cat(target.string(), ".", ::getpid(), ".", serial++, ".tmp");
    const auto fail = [&](const char* why) {
        ::unlink(temporary.c_str());
        usable_ = false;  // a full or read-only disk stays so: do not try again for every kernel
        warn_once(cat("kernels are not cached on disk: cannot write to ", folder_.string(), ": ", why));
    };
    {
        const File file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (!file.is_open()) return fail(std::strerror(errno));
        Header header;
        std::memcpy(header.magic, kMagic, sizeof kMagic);
        header.key_bytes = key.size();
        header.object_bytes = object.size();
        header.checksum = checksum_of(key, object);
        if (!file.write({reinterpret_cast<const char*>(&header), sizeof header}) || !file.write(key) || !file.write(object))
            return fail(std::strerror(errno));
    }
    if (::rename(temporary.c_str(), target.c_str()) != 0) fail(std::strerror(errno));
}

void DiskCache::prune() const {
    std::vector<std::pair<fs::file_time_type, fs::path>> files;
    std::error_code error;
    for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
        std::error_code gone;
        const auto time = it->last_write_time(gone);
        const fs::path& path = it->path();
        // Only what we wrote: a mistyped MEGJIT_CACHE_DIR must not cost anybody a file.
        if (!gone && (path.extension() == ".k" || path.extension() == ".tmp")) files.emplace_back(time, path);
    }
    if (files.size() <= kMaxFiles) return;
    const auto keep_from = files.begin() + static_cast<ptrdiff_t>(files.size() - kMaxFiles * 3 / 4);
    std::nth_element(files.begin(), keep_from, files.end());
    for (auto it = files.begin(); it != keep_from; ++it) fs::remove(it->second, error);
}

fs::path default_cache_folder() {
    // Debug cannot tell unset from empty, and empty means: no cache.
    if (const char* own = std::getenv("MEGJIT_CACHE_DIR")) return *own ? fs::path(own) : fs::path();
    const char* xdg = std::getenv("XDG_CACHE_HOME");
    if (xdg && *xdg == '/') return fs::path(xdg) / "megjit" / "kernels";
    const char* home = std::getenv("HOME");
    if (home && *home == '/') return fs::path(home) / ".cache" / "megjit" / "kernels";
    return {};
}

void warn_once(const std::string& text) {
    static std::mutex mutex;
    static std::set<std::string> said;
    const std::lock_guard lock(mutex);
    if (said.insert(text).second) std::cerr << "megjit: warning: " << text << std::endl;
}

}  // namespace megjit::codegen
