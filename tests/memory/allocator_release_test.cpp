// What goes back to the system, and memory that the host cannot touch.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <functional>
#include <map>
#include <random>
#include <thread>

#include "memory/caching_allocator.h"

namespace megjit::memory { namespace {

using runtime::OutOfMemory;

constexpr size_t kMega = size_t{1} << 20;

// Pages that nobody may touch, as on a GPU; what was given back must have been lent.
class UntouchablePages final : public PageSource {
public:
    explicit UntouchablePages(size_t& mapped) : mapped_(mapped) {}
    void* map(size_t bytes) override {
        mapped_ += bytes;
        return mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    void unmap(void* p, size_t bytes) noexcept override {
        mapped_ -= bytes;
        munmap(p, bytes);
    }
    bool unmaps_parts() const override { return true; }
    bool is_host_memory() const override { return false; }

private:
    size_t& mapped_;
};

TEST(DeviceMemory, IsNeverTouched) {
    size_t mapped = 0;
    {
        CachingAllocator a(std::make_unique<UntouchablePages>(mapped));
        for (const size_t bytes : {size_t{0}, size_t{1}, size_t{100}, size_t{5000}, 3 * kMega})
            a.release(a.allocate(bytes), bytes);
        a.trim();
        EXPECT_EQ(a.stats().in_use, 0);
    }
    EXPECT_EQ(mapped, 0);
}

// A device that must wait for its work before it makes pages or takes them back: `meanwhile` runs
// in another thread, to its end.
class WaitingPages final : public PageSource {
public:
    explicit WaitingPages(const std::function<void()>& meanwhile) : meanwhile_(meanwhile) {}
    void* map(size_t bytes) override {
        std::thread(meanwhile_).join();
        return mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    void unmap(void* p, size_t bytes) noexcept override {
        std::thread(meanwhile_).join();
        munmap(p, bytes);
    }
    bool is_host_memory() const override { return false; }

private:
    const std::function<void()>& meanwhile_;
};

TEST(DeviceMemory, IsBookedByOthersWhileTheDeviceIsWaitedFor) {
    std::function<void()> meanwhile = [] {};
    CachingAllocator a(std::make_unique<WaitingPages>(meanwhile));
    std::vector<void*> kept;
    for (int i = 0; i < 8; ++i) kept.push_back(a.allocate(3 * kMega));
    int calls = 0;
    meanwhile = [&] {  // lets go, takes what is free, joins and cuts
        if (++calls > 4) return;
        a.release(kept.back(), 3 * kMega);
        kept.pop_back();
        a.release(a.allocate(2 * kMega), 2 * kMega);  // of what it let go of
    };
    const size_t before = a.stats().in_use;
    void* const p = a.allocate(5 * kMega);
    EXPECT_EQ(calls, 1);
    EXPECT_EQ(a.stats().in_use, before + 2 * kMega);
    for (int i = 0; i < 4; ++i) a.trim();  // what one lets go of may lie before what it looks at
    EXPECT_GT(calls, 4);
    a.release(p, 5 * kMega);
    for (void* block : kept) a.release(block, 3 * kMega);
    a.trim();
    EXPECT_EQ(a.stats().in_use, 0);
    EXPECT_EQ(a.stats().reserved, 0);
    meanwhile = [] {};
}

//   | a |free| b |free| c |      b's neighbours go back to the system although b stays
TEST(Release, GivesBackTheHolesOfARegion) {
    size_t mapped = 0;
    CachingAllocator a(std::make_unique<UntouchablePages>(mapped));
    std::vector<void*> blocks;
    for (int i = 0; i < 5; ++i) blocks.push_back(a.allocate(kMega / 4));
    a.release(blocks[1], kMega / 4);
    a.release(blocks[3], kMega / 4);
    a.trim();
    EXPECT_EQ(mapped, 3 * kMega / 4);
    EXPECT_EQ(a.stats().reserved, mapped);
    for (const int i : {0, 2, 4}) a.release(blocks[i], kMega / 4);
    a.trim();
    EXPECT_EQ(mapped, 0);
}

// Before this, an allocation failed when the free bytes under the cap lay in several holes.
TEST(Release, DefragmentsBeforeItFails) {
    CachingAllocator a;
    a.set_cap(16 * kMega);
    std::vector<void*> blocks;
    for (int i = 0; i < 16; ++i) blocks.push_back(a.allocate(kMega));
    for (int i = 0; i < 16; i += 2) a.release(blocks[i], kMega);
    void* const large = a.allocate(8 * kMega);
    EXPECT_LE(a.stats().peak_reserved, 16 * kMega);
    EXPECT_THROW(a.allocate(1), OutOfMemory);
    a.release(large, 8 * kMega);
    for (int i = 1; i < 16; i += 2) a.release(blocks[i], kMega);
}

TEST(Release, RandomUseKeepsTheBooksInOrder) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
        size_t mapped = 0;
        {
            CachingAllocator a(std::make_unique<UntouchablePages>(mapped));
            std::mt19937 random(seed);
            std::map<void*, size_t> blocks;
            for (int i = 0; i < 2000; ++i) {
                const size_t bytes = 1 + random() % (random() % 4 == 0 ? 3 * kMega : 200'000);
                if (random() % 2 == 0) {
                    EXPECT_TRUE(blocks.emplace(a.allocate(bytes), bytes).second) << "seed " << seed;
                } else if (!blocks.empty()) {
                    const auto block = blocks.begin();
                    a.release(block->first, block->second);
                    blocks.erase(block);
                }
                if (random() % 50 == 0) a.trim();
                ASSERT_EQ(a.stats().reserved, mapped) << "seed " << seed;
            }
            for (const auto& [p, bytes] : blocks) a.release(p, bytes);
        }
        EXPECT_EQ(mapped, 0) << "seed " << seed;
    }
}

TEST(Growth, TakesNoMoreThanItMay) {
    size_t mapped = 0;
    CachingAllocator a(std::make_unique<UntouchablePages>(mapped));
    a.set_growth({.least = 8 * kMega, .overhead = 64 * kMega, .factor = 2});
    void* const first = a.allocate(kMega);
    EXPECT_EQ(mapped, 8 * kMega);
    std::vector<void*> blocks;
    while (mapped == 8 * kMega) blocks.push_back(a.allocate(kMega));
    EXPECT_EQ(mapped, 24 * kMega);
    for (void* p : blocks) a.release(p, kMega);
    a.release(first, kMega);
}

}}  // namespace megjit::memory
