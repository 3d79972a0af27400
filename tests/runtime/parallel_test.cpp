// The thread pool: every chunk once, whoever runs it; exceptions; callers at once; forks; threads
// that are refused.
#include "runtime/host/parallel.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

namespace megjit::runtime { namespace {

class ParallelTest : public ::testing::TestWithParam<int> {
protected:
    void SetUp() override { set_thread_count(GetParam()); }
    void TearDown() override { set_thread_count(0); }
};

// How often each of [0, n) was seen.
std::vector<int> visits(int64_t n, int64_t grain, int64_t align) {
    std::vector<int> seen(static_cast<size_t>(n), 0);
    parallel_for(n, grain, align, [&](int64_t lo, int64_t hi) {
        if (lo % align != 0 || lo >= hi || hi > n) throw std::logic_error("borders");
        for (int64_t i = lo; i < hi; ++i) ++seen[static_cast<size_t>(i)];
    });
    return seen;
}

TEST_P(ParallelTest, CoversTheRangeOnce) {
    EXPECT_EQ(thread_count(), GetParam());
    for (const int64_t n : {1, 2, 7, 64, 1000, 4099})
        for (const int64_t grain : {1, 3, 64, 5000})
            for (const int64_t align : {1, 16})
                EXPECT_EQ(visits(n, grain, align), std::vector<int>(static_cast<size_t>(n), 1))
                    << n << " " << grain << " " << align;
}

TEST_P(ParallelTest, NothingAndLittleRunHere) {
    parallel_for(0, 1, 1, [](int64_t, int64_t) { FAIL(); });
    const auto here = std::this_thread::get_id();
    int calls = 0;
    parallel_for(100, 100, 1, [&](int64_t lo, int64_t hi) {
        EXPECT_TRUE(lo == 0 && hi == 100 && std::this_thread::get_id() == here);
        ++calls;
    });
    EXPECT_EQ(calls, 1);
}

TEST_P(ParallelTest, ManyShortRegions) {
    for (int round = 0; round < 3000; ++round) {
        std::atomic<int64_t> sum{0};
        parallel_for(64, 1, 1, [&](int64_t lo, int64_t hi) {
            for (int64_t i = lo; i < hi; ++i) sum += i;
        });
        ASSERT_EQ(sum, 64 * 63 / 2);
    }
}

TEST_P(ParallelTest, NestedLoopsRunInTheirThread) {
    if (GetParam() == 1) return;
    std::atomic<int64_t> sum{0};
    parallel_for(16, 1, 1, [&](int64_t lo, int64_t hi) {
        EXPECT_EQ(thread_count(), 1);
        const auto here = std::this_thread::get_id();
        for (int64_t i = lo; i < hi; ++i)
            parallel_for(100, 1, 1, [&](int64_t a, int64_t b) {
                EXPECT_EQ(std::this_thread::get_id(), here);
                sum += b - a;
            });
    });
    EXPECT_EQ(sum, 1600);
    EXPECT_EQ(thread_count(), GetParam());
}

TEST_P(ParallelTest, ExceptionsReachTheCaller) {
    for (int round = 0; round < 200; ++round) {
        EXPECT_THROW(parallel_for(64, 1, 1,
                                  [&](int64_t lo, int64_t hi) {
            if (lo <= round % 64 && round % 64 < hi) throw std::bad_alloc();
        }),
                     std::bad_alloc);
        EXPECT_EQ(visits(64, 1, 1), std::vector<int>(64, 1));  // and leave the pool whole
    }
}

// The caller's first chunk lasts until all others have ended: whoever runs takes over the rest of
// its share.
TEST_P(ParallelTest, WhoHasTimeTakesTheRest) {
    constexpr int64_t kCount = 64;
    std::atomic<int64_t> others{0};
    int64_t first = 0;
    parallel_for(kCount, 1, 1, [&](int64_t lo, int64_t hi) {
        if (lo > 0) {
            others += hi - lo;
            return;
        }
        first = hi;
        for (int i = 0; i < 20000 && GetParam() > 1 && others < kCount - hi; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (GetParam() > 1) { EXPECT_EQ(others, kCount - hi) << "after 20 seconds"; }
    });
    EXPECT_EQ(others + first, kCount);
}

TEST_P(ParallelTest, CallersAtOnceDoNotWaitForEachOther) {
    std::vector<std::thread> callers;
    std::atomic<int64_t> sum{0};
    for (int caller = 0; caller < 6; ++caller)
        callers.emplace_back([&] {
            for (int round = 0; round < 500; ++round)
                parallel_for(128, 1, 1, [&](int64_t lo, int64_t hi) { sum += hi - lo; });
        });
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(sum, 6 * 500 * 128);
}

// Another thread's region holds the pool for as long as this one's takes.
TEST_P(ParallelTest, ATakenPoolLeavesTheWorkToTheCaller) {
    std::atomic<bool> is_held{false}, is_done{false};
    std::thread holder([&] {
        const HelpScope scope(2, [](const void*, int64_t) {}, nullptr);
        is_held = true;
        while (!is_done) std::this_thread::yield();
    });
    while (!is_held) std::this_thread::yield();
    EXPECT_EQ(visits(1000, 1, 1), std::vector<int>(1000, 1));
    is_done = true;
    holder.join();
}

TEST_P(ParallelTest, HelpersComeAndTheScopeDoesNotWaitForThem) {
    struct Shared {
        std::atomic<int> came{0}, left{0};
        std::atomic<bool> is_over{false};
    };
    static auto* const shared = new Shared;  // helpers may outlast the scope
    shared->came = 0, shared->left = 0, shared->is_over = false;
    {
        const HelpScope scope(GetParam(), [](const void* context, int64_t) {
            auto* const all = static_cast<Shared*>(const_cast<void*>(context));
            ++all->came;
            while (!all->is_over) std::this_thread::yield();
            ++all->left;
        }, shared);
        EXPECT_EQ(thread_count(), 1);
        for (int i = 0; i < 5000 && shared->came < GetParam() - 1; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_EQ(shared->came, GetParam() - 1);
    }
    EXPECT_EQ(shared->left, 0);
    EXPECT_EQ(visits(1000, 1, 1), std::vector<int>(1000, 1));  // without those that still help
    shared->is_over = true;
    while (shared->left < shared->came) std::this_thread::yield();
}

INSTANTIATE_TEST_SUITE_P(Threads, ParallelTest, ::testing::Values(1, 2, 3, 4, 8, 96));

// 0 when `body` returned true in a forked child.
template <class Body>
int in_child(const Body& body) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(60);
        ::_exit(body() ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    return status;
}

TEST(ParallelForkTest, AChildComputesAloneAndOnThreadsOfItsOwn) {
    set_thread_count(4);
    visits(1000, 1, 1);
    EXPECT_EQ(in_child([] {
        const bool alone = thread_count() == 1 && visits(1000, 1, 1) == std::vector<int>(1000, 1);
        set_thread_count(3);
        return alone && thread_count() == 3 && visits(1000, 1, 1) == std::vector<int>(1000, 1);
    }),
              0);
    EXPECT_EQ(visits(1000, 1, 1), std::vector<int>(1000, 1));
    set_thread_count(0);
}

// No further task for this user, who must not be root: the limit does not bind it.
TEST(ParallelForkTest, ThreadsThatTheSystemRefusesAreDoneWithout) {
    set_thread_count(2);
    visits(1000, 1, 1);
    EXPECT_EQ(in_child([] {
        const rlimit none{0, 0};
        if (::setrlimit(RLIMIT_NPROC, &none) != 0 || (::geteuid() == 0 && ::setuid(54321) != 0))
            return true;  // cannot be tried here
        set_thread_count(4);
        return visits(1000, 1, 1) == std::vector<int>(1000, 1) && thread_count() == 1 &&
               visits(1000, 1, 1) == std::vector<int>(1000, 1);
    }),
              0);
    set_thread_count(0);
}

TEST(ParallelForkTest, AForkInTheMidstOfAnotherThreadsRegions) {
    set_thread_count(4);
    std::atomic<bool> is_over{false};
    std::thread other([&] {
        while (!is_over) visits(1000, 1, 1);
    });
    for (int round = 0; round < 20; ++round)
        EXPECT_EQ(in_child([] {
            set_thread_count(2);
            return visits(1000, 1, 1) == std::vector<int>(1000, 1);
        }),
                  0);
    is_over = true;
    other.join();
    set_thread_count(0);
}

}}  // namespace megjit::runtime
