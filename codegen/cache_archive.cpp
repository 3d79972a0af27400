// All entries of the cache in one file: a header, then the entries in the form of their own files.
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>

#include "codegen/cache_file.h"
#include "codegen/disk_cache.h"
#include "runtime/host/error.h"

namespace megjit::codegen {
namespace {

namespace fs = std::filesystem;
using runtime::cat;

constexpr char kMagic[8] = {'m', 'e', 'g', 'j', 'i', 't', 'a', '1'};
constexpr uint64_t kMaxArchiveBytes = 1ull << 30;

struct Header {
    char magic[8] = {};
    uint64_t entries = 0;
    uint64_t bytes = 0;  // size of the whole archive
};

[[noreturn]] void refuse(const fs::path& archive, std::string why) {
    runtime::user_error(
        {.what = cat("cache import: ", archive.string(), " is not a valid archive of kernels"),
         .why = std::move(why),
         .fix = "make it again with `python -m megengine cache export FILE`"});
}

[[noreturn]] void cannot(const char* doing, const fs::path& path) {
    const std::string why = std::strerror(errno);
    runtime::user_error({.what = cat("cache: cannot ", doing, " ", path.string()), .why = why},
                        runtime::ErrorKind::runtime);
}

void need_folder(const DiskCache& cache) {
    if (!cache.usable())
        runtime::user_error({.what = "there is no cache of kernels on disk",
                             .why = cache.refusal(),
                             .fix = "name a folder of yours in MEGJIT_CACHE_DIR"},
                            runtime::ErrorKind::runtime);
}

std::vector<CacheEntry> read_archive(const fs::path& archive) {
    const File file(
        ::open(archive.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe must not block
    struct stat status{};
    if (!file.is_open() || ::fstat(file.fd(), &status) != 0) cannot("read", archive);
    const auto bytes = static_cast<uint64_t>(status.st_size);
    Header header;
    if (!S_ISREG(status.st_mode)) refuse(archive, "it is not a file");
    if (bytes > kMaxArchiveBytes)
        refuse(archive, cat("it has ", bytes, " bytes; at most ", kMaxArchiveBytes, " are read"));
    if (!file.read(&header, sizeof header) || std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
        refuse(archive, "it does not begin like one");
    if (header.bytes != bytes)
        refuse(archive, cat("it says that it has ", header.bytes, " bytes, and has ", bytes));
    std::vector<CacheEntry> entries;
    uint64_t left = bytes - sizeof header;
    while (left > 0) {
        std::optional<CacheEntry> entry = read_entry(file, left);
        if (!entry) refuse(archive, cat("entry ", entries.size(), " is cut or changed"));
        if (entry->key.find('\0') != std::string::npos || entry->object.empty())
            refuse(archive, cat("entry ", entries.size(), " is not a kernel"));
        left -= entry_bytes(entry->key, entry->object);
        entries.push_back(std::move(*entry));
    }
    if (entries.size() != header.entries)
        refuse(archive,
               cat("it says that it has ", header.entries, " entries, and has ", entries.size()));
    return entries;
}

}  // namespace

size_t export_archive(const DiskCache& cache, const fs::path& archive) {
    need_folder(cache);
    Header header;
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.bytes = sizeof header;
    // Other processes may add and remove entries meanwhile: the entries are collected first, then
    // counted.
    std::vector<CacheEntry> entries;
    cache.each([&](const CacheEntry& entry) {
        header.bytes += entry_bytes(entry.key, entry.object);
        entries.push_back(entry);
    });
    header.entries = entries.size();
    AtomicFile made(archive);
    bool written = made.is_open() &&
                   made.file().write({reinterpret_cast<const char*>(&header), sizeof header});
    for (const CacheEntry& entry : entries)
        written = written && write_entry(made.file(), entry.key, entry.object);
    if (!written || !made.commit()) cannot("write", archive);
    return entries.size();
}

size_t import_archive(DiskCache& cache, const fs::path& archive) {
    need_folder(cache);
    const std::vector<CacheEntry> entries = read_archive(archive);
    for (const CacheEntry& entry : entries)
        if (!cache.store(entry.key, entry.object)) cannot("write to", cache.folder());
    return entries.size();
}

}  // namespace megjit::codegen
