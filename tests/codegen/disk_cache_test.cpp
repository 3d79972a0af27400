#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codegen/disk_cache.h"
#include "runtime/host/error.h"

namespace megjit::codegen { namespace {

namespace fs = std::filesystem;

class DiskCacheTest : public testing::Test {
protected:
    DiskCacheTest() {
        std::string name = fs::temp_directory_path() / "megjit-cache-XXXXXX";
        root_ = ::mkdtemp(name.data());
        folder_ = root_ / "deep" / "kernels";
    }
    ~DiskCacheTest() override {
        ::chmod(folder_.c_str(), 0700);
        fs::remove_all(root_);
    }
    void change_byte(const fs::path& file, std::streamoff at) {
        std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
        stream.seekg(at);
        const char was = static_cast<char>(stream.get());
        stream.seekp(at);
        stream.put(static_cast<char>(was ^ 0x40));
    }
    size_t file_count() const {
        return static_cast<size_t>(
            std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
    }

    fs::path root_, folder_;
};

TEST_F(DiskCacheTest, ReturnsWhatWasStored) {
    DiskCache(folder_).store("key", std::string("object\0code", 11));
    EXPECT_EQ(DiskCache(folder_).find("key"), std::string("object\0code", 11));
    EXPECT_EQ(DiskCache(folder_).find("other key"), std::nullopt);
}

TEST_F(DiskCacheTest, BelongsToItsUserAlone) {
    DiskCache(folder_).store("key", "object");
    struct stat status{};
    ASSERT_EQ(::stat(folder_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST_F(DiskCacheTest, LeavesNoTemporaryFiles) {
    DiskCache cache(folder_);
    cache.store("key", "object");
    cache.store("key", "object again");
    EXPECT_EQ(file_count(), 1u);
    EXPECT_EQ(cache.find("key"), "object again");
}

TEST_F(DiskCacheTest, EveryChangedByteIsAMiss) {
    DiskCache cache(folder_);
    cache.store("key", "object");
    const fs::path file = cache.file_of("key");
    const auto size = static_cast<std::streamoff>(fs::file_size(file));
    for (std::streamoff at = 0; at < size; ++at) {
        change_byte(file, at);
        EXPECT_EQ(cache.find("key"), std::nullopt) << "byte " << at;
        change_byte(file, at);
    }
    EXPECT_EQ(cache.find("key"), "object");
}

TEST_F(DiskCacheTest, EveryTruncationIsAMiss) {
    DiskCache cache(folder_);
    cache.store("key", "object");
    for (uintmax_t size = fs::file_size(cache.file_of("key")); size-- > 0;) {
        fs::resize_file(cache.file_of("key"), size);
        EXPECT_EQ(cache.find("key"), std::nullopt) << size << " bytes";
    }
}

TEST_F(DiskCacheTest, RefusesAFolderThatOthersCanWrite) {
    DiskCache(folder_).store("key", "object");
    ::chmod(folder_.c_str(), 0770);
    testing::internal::CaptureStderr();
    const DiskCache cache(folder_);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("other users can write to it"),
              std::string::npos);
    EXPECT_EQ(cache.find("key"), std::nullopt);
}

TEST_F(DiskCacheTest, ReadsNoFileOfAnother) {
    DiskCache cache(folder_);
    cache.store("key", "object");
    const fs::path elsewhere = root_ / "elsewhere";
    fs::rename(cache.file_of("key"), elsewhere);
    fs::create_symlink(elsewhere, cache.file_of("key"));
    EXPECT_EQ(cache.find("key"), std::nullopt);
}

// A folder that cannot be written: a file stands where it should be, so that root sees it too.
TEST_F(DiskCacheTest, WarnsOnceWhenItCannotWrite) {
    DiskCache cache(folder_);
    fs::remove(folder_);
    std::ofstream(folder_) << "not a folder";
    testing::internal::CaptureStderr();
    cache.store("key", "object");
    cache.store("key", "object");
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("cannot write"), std::string::npos);
    EXPECT_EQ(said.find('\n'), said.size() - 1);
}

TEST_F(DiskCacheTest, AnEmptyPathIsNoCache) {
    DiskCache cache{fs::path()};
    cache.store("key", "object");
    EXPECT_EQ(cache.find("key"), std::nullopt);
}

std::string key_of(int i) { return "key " + std::to_string(i); }
std::string object_of(int i) {
    return std::string(static_cast<size_t>(1000 * (i + 1)), static_cast<char>('a' + i));
}

// Runs `body` in a forked process: true when it returned true.
template <class Body>
pid_t start(const Body& body) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(body() ? 0 : 1);
    return pid;
}
bool ended_well(pid_t pid) {
    int status = -1;
    return ::waitpid(pid, &status, 0) == pid && status == 0;
}

// All write the same keys while they read them: whatever is found is whole.
TEST_F(DiskCacheTest, ServesSixteenProcessesAtOnce) {
    std::vector<pid_t> children;
    for (int child = 0; child < 16; ++child)
        children.push_back(start([&] {
            DiskCache cache(folder_);
            bool sound = cache.usable();
            for (int i = 0; i < 60; ++i)
                sound = cache.store(key_of(i % 5), object_of(i % 5)) &&
                        cache.find(key_of(i % 5)) == object_of(i % 5) && sound;
            return sound;
        }));
    for (const pid_t pid : children) EXPECT_TRUE(ended_well(pid));
    EXPECT_EQ(file_count(), 5u);
}

TEST_F(DiskCacheTest, HoldsWholeEntriesAloneWhenItsWritersAreKilled) {
    DiskCache cache(folder_);
    for (int round = 0; round < 40; ++round) {
        const pid_t pid = start([&] {
            DiskCache own(folder_);
            for (int i = 0;; ++i) own.store(key_of(i % 9), object_of(i % 9));
            return true;
        });
        ::usleep(static_cast<useconds_t>(1000 + 137 * round));
        ::kill(pid, SIGKILL);
        EXPECT_FALSE(ended_well(pid));
        EXPECT_EQ(cache.verify().broken, 0u) << "round " << round;
    }
    EXPECT_EQ(cache.find(key_of(0)), object_of(0));
}

TEST_F(DiskCacheTest, RemovesWhatKilledWritersLeft) {
    DiskCache cache(folder_);
    const fs::path left = fs::path(cache.file_of("key").string() + ".1.0.tmp"),
                   running = fs::path(left.string() + ".k.2.tmp"), foreign = folder_ / "notes.tmp";
    for (const fs::path& file : {left, running, foreign}) std::ofstream(file) << "half";
    for (const fs::path& file : {left, foreign})
        fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(2));
    cache.store("key", "object");
    EXPECT_FALSE(fs::exists(left));
    EXPECT_TRUE(fs::exists(running));
    EXPECT_TRUE(fs::exists(foreign));
}

// The size limit of a process stands for a disk that is full: write() fails in the middle of a
// file.
TEST_F(DiskCacheTest, KeepsServingOnAFullDisk) {
    EXPECT_TRUE(ended_well(start([&] {
        DiskCache cache(folder_);
        bool good = cache.store("key", "object");
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{4096, 4096};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        testing::internal::CaptureStderr();
        good = good && !cache.store("large", std::string(100000, 'x')) &&
               !cache.store("small", "object");
        const std::string said = testing::internal::GetCapturedStderr();
        return good && said.find("cannot write") != std::string::npos &&
               cache.find("key") == "object" && file_count() == 1;
    })));
}

TEST_F(DiskCacheTest, ReadsAFolderThatCannotBeWritten) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    constexpr uid_t kNobody = 65534;
    ::chmod(root_.c_str(), 0755);
    ::chown(root_.c_str(), kNobody, kNobody);
    EXPECT_TRUE(ended_well(start([&] {
        if (::setuid(kNobody) != 0) return false;
        if (!DiskCache(folder_).store("key", "object")) return false;
        ::chmod(folder_.c_str(), 0500);
        DiskCache cache(folder_);
        testing::internal::CaptureStderr();
        const bool refused = !cache.store("other", "object");
        const std::string said = testing::internal::GetCapturedStderr();
        return refused && said.find("Permission denied") != std::string::npos &&
               cache.find("key") == "object";
    })));
}

TEST_F(DiskCacheTest, CountsRemovesAndClears) {
    DiskCache cache(folder_);
    for (int i = 0; i < 3; ++i) cache.store(key_of(i), object_of(i));
    change_byte(cache.file_of(key_of(1)), 40);
    fs::rename(cache.file_of(key_of(2)),
               folder_ / "0123456789abcdef0123456789abcdef.k");  // not its name
    const DiskCache::Verdict verdict = cache.verify();
    EXPECT_EQ(verdict.sound, 1u);
    EXPECT_EQ(verdict.broken, 2u);
    EXPECT_EQ(cache.clear(), 1u);
    EXPECT_EQ(file_count(), 0u);
}

class ArchiveTest : public DiskCacheTest {
protected:
    ArchiveTest() {
        DiskCache cache(folder_);
        for (int i = 0; i < 3; ++i) cache.store(key_of(i), object_of(i));
        export_archive(cache, archive_);
    }
    // What import says about it; "" when it is taken. Nothing may be stored otherwise, anywhere.
    std::string refusal() {
        DiskCache other(root_ / "other");
        std::string why;
        try {
            import_archive(other, archive_);
        } catch (const runtime::UserError& error) {
            why = error.what();
            EXPECT_TRUE(fs::is_empty(root_ / "other"));
        }
        EXPECT_EQ(std::distance(fs::directory_iterator(root_), fs::directory_iterator()), 3)
            << "something escaped the folder";
        fs::remove_all(root_ / "other");
        return why;
    }
    fs::path archive_ = root_ / "archive";
};

TEST_F(ArchiveTest, CarriesAllEntriesToAnotherFolder) {
    DiskCache other(root_ / "other");
    EXPECT_EQ(import_archive(other, archive_), 3u);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(other.find(key_of(i)), object_of(i));
}

TEST_F(ArchiveTest, RefusesEveryTruncation) {
    for (uintmax_t size = fs::file_size(archive_); size > 0;
         size -= std::min<uintmax_t>(size, 97)) {
        fs::resize_file(archive_, size - 1);
        EXPECT_NE(refusal(), "") << size - 1 << " bytes";
    }
}

TEST_F(ArchiveTest, RefusesEveryChangedByte) {
    const auto size = static_cast<std::streamoff>(fs::file_size(archive_));
    for (std::streamoff at = 0; at < size; at += at < 100 ? 1 : 211) {
        change_byte(archive_, at);
        EXPECT_NE(refusal(), "") << "byte " << at;
        change_byte(archive_, at);
    }
    EXPECT_EQ(refusal(), "");
}

// Sizes that would ask for much memory, overflow when added, or lie about the number of entries.
TEST_F(ArchiveTest, RefusesHostileSizes) {
    for (const auto& [at, value] :
         std::vector<std::pair<std::streamoff, uint64_t>>{{8, ~0ull},
                                                          {8, 0},
                                                          {16, ~0ull},
                                                          {32, ~0ull},
                                                          {32, 1ull << 62},
                                                          {40, ~0ull},
                                                          {40, ~0ull - 4},
                                                          {40, 1ull << 40}}) {
        std::fstream stream(archive_, std::ios::in | std::ios::out | std::ios::binary);
        uint64_t was = 0;
        stream.seekg(at);
        stream.read(reinterpret_cast<char*>(&was), 8);
        stream.seekp(at);
        stream.write(reinterpret_cast<const char*>(&value), 8);
        stream.flush();
        EXPECT_NE(refusal().find("not a valid archive"), std::string::npos)
            << value << " at " << at;
        stream.seekp(at);
        stream.write(reinterpret_cast<const char*>(&was), 8);
    }
}

TEST_F(ArchiveTest, RefusesWhatIsNoFile) {
    fs::remove(archive_);
    fs::create_directory(archive_);
    EXPECT_NE(refusal(), "");
    fs::remove(archive_);
    ASSERT_EQ(::mkfifo(archive_.c_str(), 0600), 0);
    EXPECT_NE(refusal().find("not a file"), std::string::npos);
}

// A key is text, never a path: whatever it says, its file lies in the folder.
TEST_F(ArchiveTest, StoresNothingOutsideItsFolder) {
    DiskCache cache(folder_);
    cache.clear();
    cache.store("../../escaped", "object");
    cache.store("/tmp/escaped\n", "object");
    export_archive(cache, archive_);
    EXPECT_EQ(refusal(), "");
}

}}  // namespace megjit::codegen
