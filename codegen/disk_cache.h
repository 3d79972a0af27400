// codegen/disk_cache.h -- object code of kernels in files, shared by processes. Every failure
// counts as a miss: a cache may make things fast, never wrong, and must never fail.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace megjit::codegen {

struct CacheEntry {
    std::string key;  // its first line names the kernel compiler
    std::string object;
};

// One file per key: a header (magic, sizes, checksum), the key, the object. A file is written under
// a temporary name and renamed, so that readers see whole files only; it is used only when key and
// checksum agree.
class DiskCache {
public:
    // Makes a missing folder, for its owner alone. Refuses, with a warning, a folder that somebody
    // else owns or can write to, for the code in it would be run. An empty path: no cache.
    explicit DiskCache(std::filesystem::path folder);

    std::optional<std::string> find(std::string_view key) const;
    // False, after one warning, when the entry could not be written: from then on nothing is
    // written, but entries are still read.
    bool store(std::string_view key, std::string_view object);
    bool usable() const { return refusal_.empty(); }
    const std::string& refusal() const { return refusal_; }  // why the folder is not usable
    const std::filesystem::path& folder() const { return folder_; }
    std::filesystem::path file_of(std::string_view key) const;

    // These serve `python -m megengine cache`.
    void each(const std::function<void(const CacheEntry&)>& visit)
        const;  // visits the sound entries, in order of their names
    struct Verdict {
        size_t sound = 0, broken = 0;
    };
    Verdict verify();  // removes broken files
    size_t clear();  // returns how many entries it removed

private:
    std::vector<std::filesystem::path> files() const;  // sorted
    void prune() const;  // drops the oldest beyond kMaxFiles, and what killed processes left
    std::filesystem::path folder_;
    std::string refusal_;
    bool writable_ = true;
    bool pruned_ = false;
};

// MEGJIT_CACHE_DIR, or megjit/kernels under the XDG cache home; empty when there is no home or
// MEGJIT_CACHE_DIR is set and empty.
std::filesystem::path default_cache_folder();

// export_archive writes all entries to one file, for a machine that has no kernel compiler;
// import_archive reads one. An archive holds code that will be run: take it only from people whom
// you trust. Both throw UserError and return the number of entries.
size_t export_archive(const DiskCache& cache, const std::filesystem::path& archive);
// Stores nothing unless the whole archive is sound. Names of files come from the keys' hashes
// alone.
size_t import_archive(DiskCache& cache, const std::filesystem::path& archive);

// Writes one line on stderr, or to the sink, once per text in a process.
void warn_once(const std::string& text);
using WarningSink = std::function<void(const std::string& text)>;
void set_warning_sink(WarningSink sink);

}  // namespace megjit::codegen
