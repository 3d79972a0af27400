// memory/caching_allocator.h -- host memory that keeps its pages.
// Why: the first touch of a fresh 4 KiB page costs more than most kernels spend on that page, so
// freed blocks stay mapped and are handed out again, and large ones lie on 2 MiB pages.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/allocator.h"

namespace megjit::memory {

// Where pages come from. Tests replace it to play a system that refuses.
class PageSource {
 public:
    virtual ~PageSource() = default;
    virtual void* map(size_t bytes) = 0;  // page-aligned, null when the system refuses
    virtual void unmap(void* p, size_t bytes) noexcept = 0;
};

std::unique_ptr<PageSource> system_pages();

// Blocks up to 32 KiB come from size classes (a pair of allocate and release takes some 20 ns),
// larger ones from spans that are split and joined again. A fork is safe at any time.
class CachingAllocator final : public runtime::Allocator {
 public:
    explicit CachingAllocator(std::unique_ptr<PageSource> pages = system_pages());
    ~CachingAllocator() override;  // unmaps everything; no block may be in use any more
    CachingAllocator(const CachingAllocator&) = delete;
    CachingAllocator& operator=(const CachingAllocator&) = delete;

    void* allocate(size_t bytes) override;
    void release(void* p, size_t bytes) noexcept override;
    runtime::MemoryStats stats() const override;
    void reset_peak() override;
    void trim() override;
    void set_cap(size_t bytes) override;

    // For tests: the next `n` allocations behave as ever, the one after throws OutOfMemory, once.
    void fail_after(size_t n);

 private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace megjit::memory
