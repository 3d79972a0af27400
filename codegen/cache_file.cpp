#include "codegen/cache_file.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "runtime/host/error.h"

namespace megjit::codegen {
namespace {

constexpr char kMagic[8] = {'m', 'e', 'g', 'j', 'i', 't', 'k', '1'};

struct Header {
    char magic[8] = {};
    uint64_t key_bytes = 0;
    uint64_t object_bytes = 0;
    uint64_t checksum = 0;  // of key and object
};

uint64_t checksum_of(std::string_view key, std::string_view object) {
    return hash(object, hash(key, key.size()));
}

std::string temporary_name(const std::filesystem::path& target) {
    static std::atomic<unsigned> serial{0};
    return runtime::cat(target.string(), ".", ::getpid(), ".", serial++, ".tmp");
}

}  // namespace

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

File::~File() { close(); }

bool File::close() {
    const int fd = std::exchange(fd_, -1);
    return fd < 0 || ::close(fd) == 0;
}

bool File::read(void* to, size_t bytes) const {
    for (char* at = static_cast<char*>(to); bytes;) {
        const ssize_t n = ::read(fd_, at, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        bytes -= static_cast<size_t>(n);
    }
    return true;
}

bool File::write(std::string_view data) const {
    while (!data.empty()) {
        const ssize_t n = ::write(fd_, data.data(), data.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        data.remove_prefix(static_cast<size_t>(n));
    }
    return true;
}

bool write_entry(const File& file, std::string_view key, std::string_view object) {
    Header header;
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.key_bytes = key.size();
    header.object_bytes = object.size();
    header.checksum = checksum_of(key, object);
    return file.write({reinterpret_cast<const char*>(&header), sizeof header}) && file.write(key) &&
           file.write(object);
}

std::optional<CacheEntry> read_entry(const File& file, uint64_t limit) {
    Header header;
    if (limit < sizeof header || !file.read(&header, sizeof header) ||
        std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
        return {};
    limit -= sizeof header;
    if (header.key_bytes > kMaxKeyBytes || header.object_bytes > kMaxObjectBytes) return {};
    if (header.key_bytes + header.object_bytes > limit) return {};
    CacheEntry entry{std::string(header.key_bytes, '\0'), std::string(header.object_bytes, '\0')};
    if (!file.read(entry.key.data(), entry.key.size()) ||
        !file.read(entry.object.data(), entry.object.size()))
        return {};
    if (checksum_of(entry.key, entry.object) != header.checksum) return {};
    return entry;
}

uint64_t entry_bytes(std::string_view key, std::string_view object) {
    return sizeof(Header) + key.size() + object.size();
}

AtomicFile::AtomicFile(std::filesystem::path target)
    : target_(std::move(target)),
      temporary_(temporary_name(target_)),
      file_(
          ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)) {}

AtomicFile::~AtomicFile() {
    if (file_.is_open()) ::unlink(temporary_.c_str());
}

bool AtomicFile::commit() {
    if (file_.close() && ::rename(temporary_.c_str(), target_.c_str()) == 0) return true;
    const int why = errno;
    ::unlink(temporary_.c_str());
    errno = why;
    return false;
}

}  // namespace megjit::codegen
