// Mutex: one holder, ranks, waits that are refused, forks at any moment.
#include "runtime/host/mutex.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/host/debug.h"
#include "runtime/host/error.h"
#include "runtime/host/interrupt.h"

namespace megjit::runtime { namespace {

TEST(MutexTest, OneThreadAtATime) {
    Mutex mutex("a count");
    int count = 0;
    {
        std::vector<std::jthread> threads;
        for (int t = 0; t < 4; ++t)
            threads.emplace_back([&] {
                for (int i = 0; i < 20000; ++i) {
                    const std::lock_guard lock(mutex);
                    ++count;
                }
            });
    }
    EXPECT_EQ(count, 80000);
}

class CheckedMutexTest : public ::testing::Test {
protected:
    void SetUp() override { Mutex::check(true); }
    void TearDown() override { Mutex::check(debug().check); }
    template <class Call>
    static std::string what_of(const Call& call) {
        try {
            call();
        } catch (const InternalError& error) { return error.what(); }
        return "nothing was thrown";
    }
};

TEST_F(CheckedMutexTest, ALowerRankUnderAHigherOneIsNamedWithBoth) {
    Mutex high("the blocks", Rank::memory), low("the table");
    const std::lock_guard lock(high);
    const std::string text = what_of([&] { low.lock(); });
    EXPECT_NE(text.find("the lock of the table is asked for under that of the blocks"),
              std::string::npos)
        << text;
    Mutex::check(false);  // programs go on
    low.lock();
    low.unlock();
}

TEST_F(CheckedMutexTest, AnEqualRankIsRefusedToo) {
    Mutex first("the ops"), second("the layouts");
    const std::lock_guard lock(first);
    EXPECT_NE(what_of([&] { second.lock(); }).find("the layouts"), std::string::npos);
    EXPECT_NE(what_of([&] { first.lock(); }).find("the ops"), std::string::npos);
}

TEST_F(CheckedMutexTest, NobodyWaitsForTheHostUnderOne) {
    check_interrupt();
    Mutex mutex("the ops");
    const std::lock_guard lock(mutex);
    const std::string text = what_of([] { check_interrupt(); });
    EXPECT_NE(text.find("with the lock of the ops held"), std::string::npos) << text;
}

TEST_F(CheckedMutexTest, MayBeReleasedInAnyOrder) {
    Mutex outer("a"), middle("b", Rank::inner), inner("c", Rank::memory);
    outer.lock(), middle.lock(), inner.lock();
    middle.unlock(), outer.unlock();
    EXPECT_NE(what_of([] { check_interrupt(); }).find("the lock of c held"), std::string::npos);
    inner.unlock();
    outer.lock(), middle.lock();
    middle.unlock(), outer.unlock();
    check_interrupt();
}

TEST_F(CheckedMutexTest, OneThatIsTriedForCountsAsHeld) {
    Mutex low("the compiler", Rank::compiling), high("the ops"), higher("the blocks", Rank::memory);
    {
        const std::lock_guard lock(high);
        ASSERT_TRUE(low.try_lock());
        EXPECT_NE(what_of([&] { low.lock(); }).find("the compiler"), std::string::npos);
        higher.lock();
        higher.unlock();
        low.unlock();
        Mutex::check(false);  // while it is held
    }
    Mutex::check(true);
    check_interrupt();
}

// Other threads hold some, and make new ones under them.
TEST(MutexForkTest, AChildFindsAllFree) {
    Mutex outer("a"), inner("b", Rank::inner);
    std::atomic<bool> ends = false;
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t)
        threads.emplace_back([&] {
            while (!ends) {
                const std::lock_guard lock(outer), under(inner);
                const Mutex made("c");
            }
        });
    for (int i = 0; i < 50; ++i) {
        const uint64_t before = forks();
        const pid_t child = ::fork();
        if (child == 0) {
            ::alarm(60);
            const std::lock_guard lock(outer), under(inner);
            const Mutex made("d");
            ::_exit(forks() == before + 1 ? 0 : 1);
        }
        int status = -1;
        ::waitpid(child, &status, 0);
        EXPECT_EQ(status, 0);
        EXPECT_EQ(forks(), before);
    }
    ends = true;
}

}}  // namespace megjit::runtime
