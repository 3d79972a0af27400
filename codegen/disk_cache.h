// codegen/disk_cache.h -- object code of kernels in files, shared by processes. Every failure is a
// miss: a cache may make things fast, never wrong and never fail.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace megjit::codegen {

// One file per key: a header (magic, sizes, checksum), the key, the object. Written to a temporary
// name and renamed, so that readers see whole files only; read back only when key and checksum agree.
class DiskCache {
public:
    // The folder is made when missing, for its owner alone. One that somebody else owns or can write
    // to is refused, with a warning: what lies there would be run. An empty path: no cache.
    explicit DiskCache(std::filesystem::path folder);

    std::optional<std::string> find(std::string_view key) const;
    void store(std::string_view key, std::string_view object);
    bool usable() const { return usable_; }
    std::filesystem::path file_of(std::string_view key) const;

private:
    void prune() const;  // drops the oldest files beyond kMaxFiles
    std::filesystem::path folder_;
    bool usable_ = false;
    bool pruned_ = false;
};

// MEGJIT_CACHE_DIR, or megjit/kernels under the XDG cache home; empty when there is no home or
// MEGJIT_CACHE_DIR is set and empty.
std::filesystem::path default_cache_folder();

// One line on stderr, once per text in a process.
void warn_once(const std::string& text);

}  // namespace megjit::codegen
