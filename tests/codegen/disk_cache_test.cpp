#include <gtest/gtest.h>

#include <fstream>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codegen/disk_cache.h"

namespace megjit::codegen {
namespace {

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
    size_t file_count() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator())); }

    fs::path root_, folder_;
};

TEST_F(DiskCacheTest, ReturnsWhatWasStored) {
    DiskCache(folder_).store("key", std::string("object\0code", 11));
    EXPECT_EQ(DiskCache(folder_).find("key"), std::string("object\0code", 11));
    EXPECT_EQ(DiskCache(folder_).find("other key"), std::nullopt);
}

TEST_F(DiskCacheTest, BelongsToItsUserAlone) {
    DiskCache(folder_).store("key", "object");
    struct stat status {};
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
    EXPECT_NE(testing::internal::GetCapturedStderr().find("other users can write to it"), std::string::npos);
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
    EXPECT_FALSE(cache.usable());
}

TEST_F(DiskCacheTest, AnEmptyPathIsNoCache) {
    DiskCache cache{fs::path()};
    cache.store("key", "object");
    EXPECT_EQ(cache.find("key"), std::nullopt);
}

// Four processes write the same keys while they read them: whatever is found is whole.
TEST_F(DiskCacheTest, ServesManyProcessesAtOnce) {
    std::vector<pid_t> children;
    for (int child = 0; child < 4; ++child) {
        const pid_t pid = ::fork();
        if (pid == 0) {
            DiskCache cache(folder_);
            bool sound = cache.usable();
            for (int i = 0; i < 200; ++i) {
                const std::string key = "key " + std::to_string(i % 5), object(static_cast<size_t>(1000 * (i % 5 + 1)), static_cast<char>('a' + i % 5));
                cache.store(key, object);
                if (const auto found = cache.find(key)) sound = sound && *found == object;
                else sound = false;
            }
            ::_exit(sound ? 0 : 1);
        }
        children.push_back(pid);
    }
    for (const pid_t pid : children) {
        int status = -1;
        ::waitpid(pid, &status, 0);
        EXPECT_EQ(status, 0);
    }
    EXPECT_EQ(file_count(), 5u);
}

}  // namespace
}  // namespace megjit::codegen
