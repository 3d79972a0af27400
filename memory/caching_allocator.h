// memory/caching_allocator.h -- memory of one device that keeps its pages.
// Why: the first touch of a fresh 4 KiB page costs more than most kernels spend on that page, so
// freed blocks stay mapped and are handed out again, and large ones lie on 2 MiB pages.
#pragma once

#include <cstddef>
#include <memory>

#include "memory/system_pages.h"
#include "runtime/core/allocator.h"

namespace megjit::memory {

using runtime::PageSource;

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
    void set_growth(const runtime::Growth& growth) override;
    void fail_after(uint64_t n) override;

private:
    class OpenLock;
    struct State;
    std::unique_ptr<State> state_;
};

// Passed as a function to code that makes an allocator over its own pages.
inline std::unique_ptr<runtime::Allocator> make_caching_allocator(
    std::unique_ptr<PageSource> pages) {
    return std::make_unique<CachingAllocator>(std::move(pages));
}

}  // namespace megjit::memory
