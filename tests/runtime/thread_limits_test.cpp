// What a process is granted, read from imitated /proc and /sys trees.
#include "runtime/host/thread_limits.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/host/debug.h"

namespace megjit::runtime { namespace {

namespace fs = std::filesystem;

class QuotaTest : public ::testing::Test {
protected:
    void SetUp() override {
        std::string name = fs::temp_directory_path() / "megjit-quota-XXXXXX";
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        root_ = name;
    }
    void TearDown() override { fs::remove_all(root_); }

    void write(const std::string& path, const std::string& text) {
        fs::create_directories((root_ / path.substr(1)).parent_path());
        std::ofstream(root_ / path.substr(1)) << text;
    }
    void process(const std::string& groups, const std::string& mounts) {
        write("/proc/self/cgroup", groups);
        write("/proc/self/mountinfo", "22 1 0:20 / / rw shared:1 - ext4 /dev/root rw\n" + mounts);
    }
    double quota() const { return cpu_quota(root_.string()); }

    static constexpr const char* kV2 =
        "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    fs::path root_;
};

TEST_F(QuotaTest, NothingThereIsNoQuota) {
    EXPECT_TRUE(std::isinf(quota()));
    process("", "");
    EXPECT_TRUE(std::isinf(quota()));
    process("0::/a\n", kV2);
    EXPECT_TRUE(std::isinf(quota()));
}

TEST_F(QuotaTest, VersionTwo) {
    process("0::/system.slice/job.service\n", kV2);
    write("/sys/fs/cgroup/system.slice/job.service/cpu.max", "150000 100000\n");
    EXPECT_DOUBLE_EQ(quota(), 1.5);
    write("/sys/fs/cgroup/system.slice/job.service/cpu.max", "max 100000\n");
    EXPECT_TRUE(std::isinf(quota()));
}

TEST_F(QuotaTest, TheLeastOfAGroupAndThoseAboveIt) {
    process("0::/pod/box\n", kV2);
    write("/sys/fs/cgroup/pod/box/cpu.max", "400000 100000\n");
    write("/sys/fs/cgroup/pod/cpu.max", "50000 100000\n");
    EXPECT_DOUBLE_EQ(quota(), 0.5);
}

TEST_F(QuotaTest, AContainerSeesItsGroupAsTheRoot) {
    process("0::/\n", kV2);  // a namespace of its own
    write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    EXPECT_DOUBLE_EQ(quota(), 2);
    // The host's path of the group, of which the mount shows what is below.
    process("0::/docker/1234\n",
            "30 22 0:26 /docker/1234 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    EXPECT_DOUBLE_EQ(quota(), 2);
}

TEST_F(QuotaTest, VersionOne) {
    process("5:memory:/box\n4:cpu,cpuacct:/box\n",
            "31 22 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
            "32 22 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n");
    write("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "250000\n");
    write("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
    EXPECT_DOUBLE_EQ(quota(), 2.5);
    write("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
    EXPECT_TRUE(std::isinf(quota()));
}

TEST_F(QuotaTest, NonsenseIsNoQuota) {
    for (const char* text : {"", "x y", "-5 100000", "100000 0", "100000"}) {
        process("0::/a\n:\n::::\n", std::string("31 22\n - \n30 22 0:26 / - cgroup2\n") + kV2);
        write("/sys/fs/cgroup/a/cpu.max", text);
        EXPECT_TRUE(std::isinf(quota())) << text;
    }
}

TEST(GrantedThreadsTest, AffinityAndTheVariableBoundThem) {
    const char* const before = std::getenv("OMP_NUM_THREADS");
    const std::string kept = before ? before : "";
    std::thread([] {  // an affinity of this thread alone
        ::unsetenv("OMP_NUM_THREADS");
        reload_debug();
        const int all = granted_threads();
        EXPECT_GE(all, 1);
        ::setenv("OMP_NUM_THREADS", "1,4", 1);
        reload_debug();
        EXPECT_EQ(granted_threads(), 1);
        for (const char* text : {"100000", "0", "-3", "many"}) {
            ::setenv("OMP_NUM_THREADS", text, 1);
            reload_debug();
            EXPECT_EQ(granted_threads(), all) << text;
        }
        cpu_set_t cores, one;
        ASSERT_EQ(sched_getaffinity(0, sizeof cores, &cores), 0);
        CPU_ZERO(&one);
        for (int i = 0; i < CPU_SETSIZE; ++i)
            if (CPU_ISSET(i, &cores)) {
                CPU_SET(i, &one);
                break;
            }
        ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
        EXPECT_EQ(granted_threads(), 1);
    })
        .join();
    before ? ::setenv("OMP_NUM_THREADS", kept.c_str(), 1) : ::unsetenv("OMP_NUM_THREADS");
    reload_debug();
}

}}  // namespace megjit::runtime
