// codegen/cache_file.h -- the form of a cache entry in a file and in an archive: a header, the key,
// the object.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "codegen/disk_cache.h"

namespace megjit::codegen {

constexpr uint64_t kMaxKeyBytes = 1u << 20;  // larger than the text of any kernel
constexpr uint64_t kMaxObjectBytes = 64u << 20;  // larger than any kernel

// FNV-1a over 64-bit words with a final mix. It is no protection against attackers, whom the
// folder's ownership keeps out.
uint64_t hash(std::string_view text, uint64_t seed);

// A file descriptor that is closed when the object dies.
class File {
public:
    explicit File(int fd) : fd_(fd) {}
    ~File();
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    bool is_open() const { return fd_ >= 0; }
    int fd() const { return fd_; }
    bool read(void* to, size_t bytes) const;  // true: all `bytes` were read
    bool write(std::string_view data) const;  // on false, errno says why
    bool close();  // some file systems report a full disk only here

private:
    int fd_;
};

bool write_entry(const File& file, std::string_view key, std::string_view object);
// Nothing when the entry is cut off, larger than `limit` bytes or changed. `limit` is what is left
// of the file.
std::optional<CacheEntry> read_entry(const File& file, uint64_t limit);
uint64_t entry_bytes(std::string_view key, std::string_view object);

// A new file beside `target`, accessible to its owner alone, that replaces `target` when all is
// written.
class AtomicFile {
public:
    explicit AtomicFile(std::filesystem::path target);
    ~AtomicFile();  // without commit() it removes the file
    bool is_open() const { return file_.is_open(); }
    const File& file() const { return file_; }
    bool commit();  // on false, errno says why

private:
    std::filesystem::path target_;
    std::string temporary_;
    File file_;
};

}  // namespace megjit::codegen
