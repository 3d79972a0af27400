#include "memory/caching_allocator.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace megjit::memory { namespace {

using runtime::MemoryStats;
using runtime::OutOfMemory;

constexpr size_t kKiB = 1024;
constexpr size_t kMiB = 1024 * kKiB;

// A system that counts what it lends, and refuses when told to.
class CountingPages final : public PageSource {
public:
    struct Counts {
        size_t mapped = 0;  // bytes
        int maps = 0;
        bool refuse = false;
    };
    explicit CountingPages(Counts& counts) : counts_(counts) {}
    void* map(size_t bytes) override {
        if (counts_.refuse) return nullptr;
        counts_.mapped += bytes;
        ++counts_.maps;
        return std::aligned_alloc(4096, bytes);
    }
    void unmap(void* p, size_t bytes) noexcept override {
        counts_.mapped -= bytes;
        std::free(p);
    }

private:
    Counts& counts_;
};

bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 64 == 0; }

std::string out_of_memory_text(CachingAllocator& a, size_t bytes) {
    try {
        a.release(a.allocate(bytes), bytes);
    } catch (const OutOfMemory& e) { return e.what(); }
    return "";
}

TEST(CachingAllocator, GivesTheLastSmallBlockOutAgain) {
    CachingAllocator a;
    void* const p = a.allocate(100);
    a.release(p, 100);
    EXPECT_EQ(a.allocate(100), p);
    a.release(p, 100);
}

TEST(CachingAllocator, GivesALargeBlockOutAgainWithoutAskingTheSystem) {
    CountingPages::Counts counts;
    CachingAllocator a(std::make_unique<CountingPages>(counts));
    a.release(a.allocate(5 * kMiB), 5 * kMiB);
    const int maps = counts.maps;
    a.release(a.allocate(5 * kMiB), 5 * kMiB);
    EXPECT_EQ(counts.maps, maps);
}

TEST(CachingAllocator, GivesDistinctAlignedBlocksOfEverySize) {
    CachingAllocator a;
    std::vector<std::pair<unsigned char*, size_t>> blocks;
    for (size_t bytes = 0; bytes < 70'000; bytes += bytes / 16 + 1) {
        auto* p = static_cast<unsigned char*>(a.allocate(bytes));
        ASSERT_TRUE(is_aligned(p)) << bytes;
        std::memset(p, static_cast<int>(blocks.size() % 251), bytes);
        blocks.emplace_back(p, bytes);
    }
    for (size_t i = 0; i < blocks.size(); ++i) {
        const auto [p, bytes] = blocks[i];
        for (size_t k = 0; k < bytes; ++k) ASSERT_EQ(p[k], i % 251) << bytes;
        a.release(p, bytes);
    }
    EXPECT_EQ(a.stats().in_use, 0);
}

TEST(CachingAllocator, PutsLargeBlocksOnHugePages) {
    CachingAllocator a;
    void* const p = a.allocate(8 * kMiB);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % (2 * kMiB), 0);
    a.release(p, 8 * kMiB);
}

//   |    p    |    q    |  ->  |         r         |
TEST(CachingAllocator, JoinsNeighboursThatAreFree) {
    CountingPages::Counts counts;
    CachingAllocator a(std::make_unique<CountingPages>(counts));
    void* const whole = a.allocate(8 * kMiB);
    a.release(whole, 8 * kMiB);
    void* const p = a.allocate(4 * kMiB);
    void* const q = a.allocate(4 * kMiB);
    a.release(p, 4 * kMiB);
    a.release(q, 4 * kMiB);
    EXPECT_EQ(a.allocate(8 * kMiB), whole);
    EXPECT_EQ(counts.maps, 1);
    a.release(whole, 8 * kMiB);
}

// What a page is too large for does not count as the process' memory: under a limit it would.
TEST(CachingAllocator, ReservesLittleBeyondBlocksOfAnOddSize) {
    CachingAllocator a;
    const size_t bytes = kMiB + 16 * kKiB;
    std::vector<void*> blocks;
    for (int i = 0; i < 16; ++i) blocks.push_back(a.allocate(bytes));
    EXPECT_LE(a.stats().reserved, 17 * bytes);
    for (void* p : blocks) a.release(p, bytes);
}

TEST(CachingAllocator, CountsTheBytesAskedFor) {
    CachingAllocator a;
    void* const p = a.allocate(100);
    void* const q = a.allocate(3 * kMiB);
    a.release(q, 3 * kMiB);
    const MemoryStats stats = a.stats();
    EXPECT_EQ(stats.in_use, 100);
    EXPECT_EQ(stats.peak_in_use, 100 + 3 * kMiB);
    EXPECT_EQ(stats.allocations, 2);
    EXPECT_GE(stats.reserved, stats.peak_in_use);
    a.release(p, 100);
}

TEST(CachingAllocator, StartsThePeakAnewOnRequest) {
    CachingAllocator a;
    a.release(a.allocate(3 * kMiB), 3 * kMiB);
    a.trim();
    a.reset_peak();
    EXPECT_EQ(a.stats().peak_in_use, 0);
    EXPECT_EQ(a.stats().peak_reserved, 0);
}

TEST(CachingAllocator, TrimGivesEverythingBackThatIsFree) {
    CountingPages::Counts counts;
    CachingAllocator a(std::make_unique<CountingPages>(counts));
    void* const kept = a.allocate(500);
    std::vector<void*> small;
    for (int i = 0; i < 10'000; ++i) small.push_back(a.allocate(1000));
    for (void* p : small) a.release(p, 1000);
    a.release(a.allocate(9 * kMiB), 9 * kMiB);
    a.trim();
    EXPECT_LE(counts.mapped, 4 * kMiB);  // the region of `kept`
    a.release(kept, 500);
    a.trim();
    EXPECT_EQ(counts.mapped, 0);
    EXPECT_EQ(a.stats().reserved, 0);
}

TEST(CachingAllocator, TrimKeepsTheBlocksInUse) {
    CachingAllocator a;
    std::vector<int*> kept;
    for (int i = 0; i < 5000; ++i) {
        auto* p = static_cast<int*>(a.allocate(700));
        void* const q = a.allocate(700);
        *p = i;
        kept.push_back(p);
        a.release(q, 700);
    }
    a.trim();
    for (int i = 0; i < 5000; ++i) {
        ASSERT_EQ(*kept[i], i);
        a.release(kept[i], 700);
    }
}

TEST(CachingAllocator, GivesAllPagesBackAtItsEnd) {
    CountingPages::Counts counts;
    {
        CachingAllocator a(std::make_unique<CountingPages>(counts));
        for (const size_t bytes : {10, 5'000, 50'000, 5'000'000})
            a.release(a.allocate(bytes), bytes);
    }
    EXPECT_EQ(counts.mapped, 0);
}

TEST(Cap, RefusesWithTheFigures) {
    CachingAllocator a;
    a.set_cap(4 * kMiB);
    void* const p = a.allocate(3 * kMiB);
    EXPECT_EQ(out_of_memory_text(a, 2 * kMiB),
              "out of memory: asked for 2097152 bytes while 3145728 bytes are in use; the limit is "
              "4194304 bytes");
    a.release(p, 3 * kMiB);
}

TEST(Cap, LeavesTheAllocatorUsableAfterARefusal) {
    CachingAllocator a;
    a.set_cap(kMiB);
    EXPECT_THROW(a.allocate(2 * kMiB), OutOfMemory);
    a.release(a.allocate(512 * kKiB), 512 * kKiB);
    EXPECT_EQ(a.stats().in_use, 0);
}

TEST(Cap, RefusesSizesBeyondAllAddresses) {
    CachingAllocator a;
    EXPECT_THROW(a.allocate(~size_t{0}), OutOfMemory);
    EXPECT_NE(out_of_memory_text(a, ~size_t{0} - 4096).find("no limit is set"), std::string::npos);
}

TEST(Cap, IsNeverExceededByReservedBytes) {
    CachingAllocator a;
    a.set_cap(10 * kMiB);
    for (const size_t bytes : {7 * kMiB, 100 * kKiB, 9 * kMiB, size_t{64}, 10 * kMiB - 8 * kKiB})
        a.release(a.allocate(bytes), bytes);
    EXPECT_LE(a.stats().peak_reserved, 10 * kMiB);
}

TEST(Cap, CanBeUsedUpToTheLastPage) {
    CachingAllocator a;
    a.set_cap(5 * kMiB);
    void* const p = a.allocate(5 * kMiB);
    EXPECT_THROW(a.allocate(1), OutOfMemory);
    a.release(p, 5 * kMiB);
}

TEST(Cap, HoldsManySmallBlocksInFewPages) {
    CachingAllocator a;
    a.set_cap(40 * kKiB);  // ten pages, ten size classes: no slab of 64 KiB fits
    std::vector<void*> blocks;
    for (size_t i = 1; i <= 10; ++i) blocks.push_back(a.allocate(64 * i));
    for (size_t i = 1; i <= 10; ++i) a.release(blocks[i - 1], 64 * i);
}

TEST(Cap, TrimsTheCacheBeforeItRefuses) {
    CachingAllocator a;
    a.set_cap(10 * kMiB);
    for (int i = 0; i < 2; ++i) a.release(a.allocate(4 * kMiB), 4 * kMiB);
    std::vector<void*> small;
    for (int i = 0; i < 3000; ++i) small.push_back(a.allocate(1000));
    for (void* p : small) a.release(p, 1000);
    a.release(a.allocate(10 * kMiB), 10 * kMiB);
}

TEST(Cap, LoweredBelowTheCacheTrimsAtOnce) {
    CachingAllocator a;
    a.release(a.allocate(64 * kMiB), 64 * kMiB);
    a.set_cap(8 * kMiB);
    EXPECT_LE(a.stats().reserved, 8 * kMiB);
}

TEST(SystemWithoutMemory, IsReportedAndOverWhenTheSystemHasSomeAgain) {
    CountingPages::Counts counts = {.refuse = true};
    CachingAllocator a(std::make_unique<CountingPages>(counts));
    EXPECT_THROW(a.allocate(100), OutOfMemory);
    EXPECT_THROW(a.allocate(5 * kMiB), OutOfMemory);
    counts.refuse = false;
    a.release(a.allocate(100), 100);
    EXPECT_EQ(a.stats().allocations, 1);
}

TEST(SystemWithoutMemory, StillServesFromTheCache) {
    CountingPages::Counts counts;
    CachingAllocator a(std::make_unique<CountingPages>(counts));
    a.release(a.allocate(5 * kMiB), 5 * kMiB);
    counts.refuse = true;
    void* const p = a.allocate(100);  // trimming must not lose the only pages we have
    a.release(p, 100);
}

TEST(FailAfter, FailsTheNthAllocationOnce) {
    CachingAllocator a;
    a.fail_after(2);
    a.release(a.allocate(8), 8);
    a.release(a.allocate(8), 8);
    EXPECT_THROW(a.allocate(8), OutOfMemory);
    a.release(a.allocate(8), 8);
    EXPECT_EQ(a.stats().allocations, 3);
}

// Ten allocations as a step would make them; whichever fails, nothing is lost and the next step
// works.
TEST(FailAfter, LosesNothingWhicheverAllocationFails) {
    CachingAllocator a;
    const auto step = [&a] {
        struct Block {
            CachingAllocator& a;
            size_t bytes;
            void* p = a.allocate(bytes);
            ~Block() { a.release(p, bytes); }
        };
        std::vector<std::unique_ptr<Block>> blocks;
        for (size_t i = 0; i < 10; ++i) blocks.emplace_back(new Block{a, size_t{64} << (2 * i)});
    };
    for (size_t n = 0; n < 10; ++n) {
        a.fail_after(n);
        EXPECT_THROW(step(), OutOfMemory) << "allocation " << n;
        EXPECT_EQ(a.stats().in_use, 0) << "allocation " << n;
        EXPECT_NO_THROW(step()) << "allocation " << n;
    }
}

// Blocks carry a mark in each end; a mark that changed means two owners of one byte.
void hammer(CachingAllocator& a, uint32_t seed, int rounds, size_t most_bytes) {
    struct Block {
        unsigned char* p = nullptr;
        size_t bytes = 0;
        unsigned char mark = 0;
    };
    std::mt19937 random(seed);
    std::vector<Block> blocks(64);
    const auto drop = [&](Block& b) {
        if (b.p == nullptr) return;
        ASSERT_EQ(b.p[0], b.mark) << "seed " << seed;
        ASSERT_EQ(b.p[b.bytes - 1], b.mark) << "seed " << seed;
        a.release(b.p, b.bytes);
        b.p = nullptr;
    };
    for (int i = 0; i < rounds; ++i) {
        Block& b = blocks[random() % blocks.size()];
        drop(b);
        const size_t bytes = 1 + random() % (random() % 8 == 0 ? most_bytes : 2000);
        try {
            b = {static_cast<unsigned char*>(a.allocate(bytes)), bytes,
                 static_cast<unsigned char>(random())};
            b.p[0] = b.p[bytes - 1] = b.mark;
        } catch (const OutOfMemory&) {}
        if (i % 1000 == 999) a.trim();
    }
    for (Block& b : blocks) drop(b);
}

TEST(Property, RandomUseKeepsEveryBlockWhole) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
        CountingPages::Counts counts;
        CachingAllocator a(std::make_unique<CountingPages>(counts));
        const size_t cap = seed % 2 == 0 ? runtime::kNoCap : 4 * kMiB;
        a.set_cap(cap);
        hammer(a, seed, 3000, 3 * kMiB);
        EXPECT_EQ(a.stats().in_use, 0) << "seed " << seed;
        EXPECT_LE(a.stats().peak_reserved, cap) << "seed " << seed;
        a.trim();
        EXPECT_EQ(counts.mapped, 0) << "seed " << seed;
    }
}

TEST(Threads, SixteenThreadsShareOneAllocator) {
    CachingAllocator a;
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < 16; ++i)
        threads.emplace_back([&a, i] { hammer(a, i, 5000, 300 * kKiB); });
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(a.stats().in_use, 0);
    EXPECT_EQ(a.stats().allocations, 16 * 5000);
    a.trim();
    EXPECT_EQ(a.stats().reserved, 0);
}

TEST(Threads, ABlockMayBeReleasedByAnotherThread) {
    CachingAllocator a;
    void* const p = a.allocate(100);
    std::thread([&] { a.release(p, 100); }).join();
    EXPECT_EQ(a.stats().in_use, 0);
}

TEST(Fork, ChildMayAllocateWhileOtherThreadsOfTheParentWereAllocating) {
    CachingAllocator a;
    std::atomic<bool> stop = false;
    std::thread busy([&] {
        while (!stop) a.release(a.allocate(100), 100);
    });
    for (int i = 0; i < 50; ++i) {
        const pid_t child = fork();
        if (child == 0) {
            alarm(10);  // a lock left taken would hang
            a.release(a.allocate(100), 100);
            a.release(a.allocate(5 * kMiB), 5 * kMiB);
            _exit(0);
        }
        int status = -1;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0);
    }
    stop = true;
    busy.join();
}

}}  // namespace megjit::memory
