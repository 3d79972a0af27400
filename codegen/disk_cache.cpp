#include "codegen/disk_cache.h"

#include <algorithm>
#include <chrono>
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

#include "codegen/cache_file.h"
#include "runtime/host/debug.h"
#include "runtime/host/error.h"
#include "runtime/host/mutex.h"

namespace megjit::codegen {
namespace {

namespace fs = std::filesystem;
using runtime::cat;

constexpr size_t kMaxFiles = 16384;  // a kernel is 2 to 20 KB: at most some 200 MB
constexpr std::chrono::hours kStale{1};  // no write takes this long: its process was killed

// Says why code must not be read from this folder; "" when it may.
std::string distrust(const fs::path& folder) {
    struct stat status{};
    if (::stat(folder.c_str(), &status) != 0) return std::strerror(errno);
    if (!S_ISDIR(status.st_mode)) return "it is not a folder";
    if (status.st_uid != ::geteuid()) return "it belongs to another user";
    if (status.st_mode & (S_IWGRP | S_IWOTH)) return "other users can write to it";
    return "";
}

// Does what mkdir -p does; every folder made is for its owner alone.
bool make_folders(const fs::path& folder) {
    if (std::error_code ignored; fs::is_directory(folder, ignored)) return true;
    if (folder.has_parent_path() && folder.parent_path() != folder &&
        !make_folders(folder.parent_path()))
        return false;
    return ::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST;
}

std::optional<CacheEntry> read_file(const fs::path& path) {
    const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    struct stat status{};
    if (!file.is_open() || ::fstat(file.fd(), &status) != 0 || !S_ISREG(status.st_mode) ||
        status.st_uid != ::geteuid())
        return {};
    const auto bytes = static_cast<uint64_t>(status.st_size);
    std::optional<CacheEntry> entry = read_entry(file, bytes);
    if (entry && entry_bytes(entry->key, entry->object) != bytes) return {};
    return entry;
}

}  // namespace

DiskCache::DiskCache(fs::path folder) : folder_(std::move(folder)) {
    if (folder_.empty()) {
        refusal_ = "there is no home folder, or MEGJIT_CACHE_DIR is empty";
    } else if (!make_folders(folder_)) {
        refusal_ = cat("cannot make ", folder_.string(), ": ", std::strerror(errno));
        warn_once(cat("kernels are not cached on disk: ", refusal_));
    } else if (const std::string why = distrust(folder_); !why.empty()) {
        refusal_ = cat(folder_.string(), " is refused: ", why);
        warn_once(cat("kernels are not cached on disk: ", refusal_,
                      "; chmod 700 it, or name another folder in MEGJIT_CACHE_DIR"));
    }
}

fs::path DiskCache::file_of(std::string_view key) const {
    char name[40];
    std::snprintf(name, sizeof name, "%016llx%016llx.k",
                  static_cast<unsigned long long>(hash(key, 1)),
                  static_cast<unsigned long long>(hash(key, 2)));
    return folder_ / name;
}

std::optional<std::string> DiskCache::find(std::string_view key) const {
    if (!usable()) return {};
    std::optional<CacheEntry> entry = read_file(file_of(key));
    if (!entry || entry->key != key) return {};
    return std::move(entry->object);
}

bool DiskCache::store(std::string_view key, std::string_view object) {
    if (!usable() || !writable_) return false;
    if (!std::exchange(pruned_, true)) prune();
    AtomicFile made(file_of(key));
    if (made.is_open() && write_entry(made.file(), key, object) && made.commit()) return true;
    writable_ = false;  // a full or read-only disk stays so: do not try again for every kernel
    warn_once(cat("new kernels are not cached on disk: cannot write to ", folder_.string(), ": ",
                  std::strerror(errno)));
    return false;
}

std::vector<fs::path> DiskCache::files() const {
    std::vector<fs::path> found;
    std::error_code error;
    if (!usable()) return found;
    for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error))
        if (it->path().extension() == ".k") found.push_back(it->path());
    std::sort(found.begin(), found.end());
    return found;
}

void DiskCache::each(const std::function<void(const CacheEntry&)>& visit) const {
    for (const fs::path& file : files())
        if (const auto entry = read_file(file); entry && file_of(entry->key) == file) visit(*entry);
}

DiskCache::Verdict DiskCache::verify() {
    Verdict verdict;
    for (const fs::path& file : files()) {
        const auto entry = read_file(file);
        if (entry && file_of(entry->key) == file) {
            ++verdict.sound;
            continue;
        }
        ++verdict.broken;
        std::error_code ignored;
        fs::remove(file, ignored);
    }
    return verdict;
}

size_t DiskCache::clear() {
    size_t removed = 0;
    std::error_code ignored;
    for (const fs::path& file : files()) removed += fs::remove(file, ignored);
    return removed;
}

void DiskCache::prune() const {
    std::vector<std::pair<fs::file_time_type, fs::path>> entries;
    std::error_code error, gone;
    const auto stale = fs::file_time_type::clock::now() - kStale;
    // Removes only files that we wrote: with a mistyped MEGJIT_CACHE_DIR nobody may lose other
    // files.
    for (fs::directory_iterator it(folder_, error), end; !error && it != end; it.increment(error)) {
        const auto time = it->last_write_time(gone);
        if (gone) continue;
        const std::string name = it->path().filename().string();
        if (it->path().extension() == ".k") entries.emplace_back(time, it->path());
        else if (name.ends_with(".tmp") && name.find(".k.") != std::string::npos && time < stale)
            fs::remove(it->path(), gone);
    }
    if (entries.size() <= kMaxFiles) return;
    const auto keep_from =
        entries.begin() + static_cast<ptrdiff_t>(entries.size() - kMaxFiles * 3 / 4);
    std::nth_element(entries.begin(), keep_from, entries.end());
    for (auto it = entries.begin(); it != keep_from; ++it) fs::remove(it->second, error);
}

fs::path default_cache_folder() {
    if (const auto& given = runtime::debug().given_cache_dir) return *given;
    // debug() does not distinguish unset from empty, and empty means: no cache.
    if (const char* own = std::getenv("MEGJIT_CACHE_DIR")) return *own ? fs::path(own) : fs::path();
    const char* xdg = std::getenv("XDG_CACHE_HOME");
    if (xdg && *xdg == '/') return fs::path(xdg) / "megjit" / "kernels";
    const char* home = std::getenv("HOME");
    if (home && *home == '/') return fs::path(home) / ".cache" / "megjit" / "kernels";
    return {};
}

namespace {

struct Warnings {
    runtime::Mutex mutex{"warnings", runtime::Rank::inner};
    std::set<std::string> said;
    WarningSink sink;
};
Warnings& warnings() {
    static auto* const instance = new Warnings;  // never destroyed: threads outlive main()
    return *instance;
}

}  // namespace

void set_warning_sink(WarningSink sink) {
    const std::lock_guard lock(warnings().mutex);
    warnings().sink = std::move(sink);
}

void warn_once(const std::string& text) {
    WarningSink sink;
    {
        const std::lock_guard lock(warnings().mutex);
        if (!warnings().said.insert(text).second) return;
        sink = warnings().sink;
    }
    if (sink) return sink(text);
    std::cerr << runtime::cat("megjit: warning: ", text, "\n") << std::flush;
}

}  // namespace megjit::codegen
