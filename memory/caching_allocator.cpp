#include "memory/caching_allocator.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <mutex>
#include <vector>

#include "memory/round_up.h"
#include "memory/spans.h"
#include "runtime/host/mutex.h"

// Under AddressSanitizer, cached blocks are poisoned: a use after release() is reported.
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define MEGJIT_FORBID(p, bytes) ASAN_POISON_MEMORY_REGION(p, bytes)
#define MEGJIT_PERMIT(p, bytes) ASAN_UNPOISON_MEMORY_REGION(p, bytes)
#else
#define MEGJIT_FORBID(p, bytes) static_cast<void>(p)
#define MEGJIT_PERMIT(p, bytes) static_cast<void>(p)
#endif

namespace megjit::memory {
namespace {

using runtime::MemoryStats;
using runtime::OutOfMemory;

constexpr size_t kSmallBytes = size_t{32} << 10;  // above this, spans of whole pages waste little
constexpr size_t kMostBytes = size_t{1} << 47;  // the address space; keeps sums below from wrapping

// Size classes: multiples of 64 up to 1 KiB, then four for each doubling (at most 25 % too much).
constexpr size_t kFineBytes = 1024;
constexpr size_t kFineClasses = kFineBytes / 64;
constexpr size_t kClasses = kFineClasses + 4 * 5;  // five doublings lead to kSmallBytes

size_t class_of(size_t bytes) {
    if (bytes <= kFineBytes) return bytes == 0 ? 0 : (bytes - 1) / 64;
    const size_t doubling = std::bit_width(bytes - 1) - 11;  // 1025..2048 belongs to doubling 0
    const size_t quarter = ((bytes - 1) >> (doubling + 8)) - 4;
    return kFineClasses + 4 * doubling + quarter;
}

size_t class_bytes(size_t size_class) {
    if (size_class < kFineClasses) return (size_class + 1) * 64;
    const size_t k = size_class - kFineClasses;
    return (k % 4 + 5) << (k / 4 + 8);
}

// A released small block holds the address of the next one.
struct FreeBlock {
    FreeBlock* next = nullptr;
};

struct Slab {  // a span cut into blocks of one size
    char* begin = nullptr;
    size_t bytes = 0;
    size_t free_blocks = 0;  // valid only inside trim()
};

struct SizeClass {
    FreeBlock* free = nullptr;
    char* fresh = nullptr;  // never handed out yet, in the newest slab: [fresh, fresh_end)
    char* fresh_end = nullptr;
    std::vector<Slab> slabs;  // by address

    Slab& slab_of(const void* p) {
        return *std::prev(
            std::upper_bound(slabs.begin(), slabs.end(), p,
                             [](const void* x, const Slab& s) { return x < s.begin; }));
    }
};

}  // namespace

// A device may have to wait for its work before it maps or unmaps, and other threads need only the
// books meanwhile. (A system's pages come at once.)
class CachingAllocator::OpenLock final : public PageSource {
public:
    OpenLock(std::unique_ptr<PageSource> pages, runtime::Mutex& lock)
        : pages_(std::move(pages)), lock_(lock) {}
    void* map(size_t bytes) override {
        const Open open(lock_);
        return pages_->map(bytes);
    }
    void unmap(void* p, size_t bytes) noexcept override {
        const Open open(lock_);
        pages_->unmap(p, bytes);
    }
    bool unmaps_parts() const override { return pages_->unmaps_parts(); }
    bool is_host_memory() const override { return false; }

private:
    struct Open {
        explicit Open(runtime::Mutex& lock) : lock(lock) { lock.unlock(); }
        ~Open() { lock.lock(); }
        Open(const Open&) = delete;
        runtime::Mutex& lock;
    };
    const std::unique_ptr<PageSource> pages_;
    runtime::Mutex& lock_;
};

struct CachingAllocator::State {
    explicit State(std::unique_ptr<PageSource> source)
        : pages(source->is_host_memory() ? std::move(source)
                                         : std::make_unique<OpenLock>(std::move(source), lock)),
          spans(*pages),
          most_small_bytes(pages->is_host_memory() ? kSmallBytes : 0) {}

    void* take(size_t bytes);
    void* take_small(SizeClass& c, size_t block_bytes);
    void add_slab(SizeClass& c, size_t block_bytes);
    std::pair<void*, size_t> take_span(size_t wanted, size_t least);
    void trim();
    void trim(SizeClass& c, size_t block_bytes);

    // One lock for all threads, because nearly all tensors are allocated by the one thread that
    // runs the program.
    mutable runtime::Mutex lock{"an allocator", runtime::Rank::memory};
    std::unique_ptr<PageSource> pages;
    Spans spans;
    const size_t most_small_bytes;  // size classes serve up to here; then every block is a span
    std::array<SizeClass, kClasses> classes;
    size_t in_use = 0;
    size_t peak_in_use = 0;
    uint64_t allocations = 0;
    size_t cap = runtime::kNoCap;
    uint64_t until_failure = runtime::Allocator::kNever;  // allocations before the one that fails
};

CachingAllocator::CachingAllocator(std::unique_ptr<PageSource> pages)
    : state_(std::make_unique<State>(std::move(pages))) {}

CachingAllocator::~CachingAllocator() {
    for (const SizeClass& c : state_->classes)
        for (const Slab& slab : c.slabs) MEGJIT_PERMIT(slab.begin, slab.bytes);
    const std::lock_guard guard(state_->lock);
    state_->spans.unmap_all();
}

void* CachingAllocator::allocate(size_t bytes) {
    State& s = *state_;
    const std::lock_guard guard(s.lock);
    const bool told_to_fail = s.until_failure-- == 0;  // then wraps to kNever: fails once
    void* p = nullptr;
    if (!told_to_fail && bytes <= kMostBytes && s.in_use + bytes <= s.cap) try {
            p = s.take(bytes);
        } catch (const std::bad_alloc&) {  // no memory for our books: for the caller it is the same
        }
    if (p == nullptr) {
        OutOfMemory error(bytes, s.in_use, s.cap);
        error.is_final = told_to_fail;
        throw error;
    }
    s.in_use += bytes;
    s.peak_in_use = std::max(s.peak_in_use, s.in_use);
    ++s.allocations;
    return p;
}

void CachingAllocator::release(void* p, size_t bytes) noexcept {
    if (p == nullptr) return;
    State& s = *state_;
    const std::lock_guard guard(s.lock);
    s.in_use -= bytes;
    if (bytes > s.most_small_bytes || s.most_small_bytes == 0) {
        s.spans.give(p);
        return;
    }
    const size_t size_class = class_of(bytes);
    SizeClass& c = s.classes[size_class];
    c.free = new (p) FreeBlock{c.free};
    MEGJIT_FORBID(c.free + 1, class_bytes(size_class) - sizeof(FreeBlock));
}

MemoryStats CachingAllocator::stats() const {
    const State& s = *state_;
    const std::lock_guard guard(s.lock);
    return {.in_use = s.in_use,
            .reserved = s.spans.reserved_bytes(),
            .peak_in_use = s.peak_in_use,
            .peak_reserved = s.spans.peak_reserved_bytes(),
            .allocations = s.allocations,
            .cap = s.cap};
}

void CachingAllocator::reset_peak() {
    const std::lock_guard guard(state_->lock);
    state_->peak_in_use = state_->in_use;
    state_->spans.reset_peak();
}

void CachingAllocator::trim() {
    const std::lock_guard guard(state_->lock);
    state_->trim();
}

void CachingAllocator::set_cap(size_t bytes) {
    const std::lock_guard guard(state_->lock);
    state_->cap = bytes;
    if (state_->spans.reserved_bytes() > bytes) state_->trim();
}

void CachingAllocator::set_growth(const runtime::Growth& growth) {
    const std::lock_guard guard(state_->lock);
    state_->spans.set_growth(growth);
}

void CachingAllocator::fail_after(uint64_t n) {
    const std::lock_guard guard(state_->lock);
    state_->until_failure = n;
}

void* CachingAllocator::State::take(size_t bytes) {
    if (bytes <= most_small_bytes && most_small_bytes != 0) {
        const size_t size_class = class_of(bytes);
        return take_small(classes[size_class], class_bytes(size_class));
    }
    const size_t span_bytes = round_up(std::max(bytes, size_t{1}), kPageBytes);
    return take_span(span_bytes, span_bytes).first;
}

void* CachingAllocator::State::take_small(SizeClass& c, size_t block_bytes) {
    if (FreeBlock* block = c.free) {
        c.free = block->next;
        MEGJIT_PERMIT(block, block_bytes);
        return block;
    }
    if (c.fresh == c.fresh_end) add_slab(c, block_bytes);
    if (c.fresh == c.fresh_end) return nullptr;
    void* const block = c.fresh;
    c.fresh += block_bytes;
    return block;
}

void CachingAllocator::State::add_slab(SizeClass& c, size_t block_bytes) {
    if (c.slabs.size() == c.slabs.capacity()) c.slabs.reserve(2 * c.slabs.size() + 4);
    const size_t wanted = round_up(std::max(size_t{64} << 10, 8 * block_bytes), kPageBytes);
    const auto [p, bytes] = take_span(wanted, round_up(block_bytes, kPageBytes));
    if (p == nullptr) return;
    const Slab slab = {.begin = static_cast<char*>(p), .bytes = bytes};
    c.slabs.insert(std::upper_bound(c.slabs.begin(), c.slabs.end(), slab,
                                    [](const Slab& a, const Slab& b) { return a.begin < b.begin; }),
                   slab);
    c.fresh = slab.begin;
    c.fresh_end = slab.begin + bytes / block_bytes * block_bytes;
}

// Returns a span and its size; {null, 0} when not even `least` bytes can be had under the cap.
std::pair<void*, size_t> CachingAllocator::State::take_span(size_t wanted, size_t least) {
    if (void* p = spans.fit(wanted)) return {p, wanted};
    if (void* p = spans.grow(wanted, cap)) return {p, wanted};
    // From here on memory is short. Cached pages are used before any are returned: the system might
    // not lend them again.
    if (void* p = spans.fit_anywhere(wanted)) return {p, wanted};
    trim();
    for (const size_t bytes : {wanted, least}) {
        if (void* p = spans.fit(bytes)) return {p, bytes};
        if (void* p = spans.grow_exactly(bytes, cap)) return {p, bytes};
        if (void* p = spans.fit_anywhere(bytes)) return {p, bytes};
    }
    return {nullptr, 0};
}

void CachingAllocator::State::trim() {
    for (size_t i = 0; i < kClasses; ++i) trim(classes[i], class_bytes(i));
    spans.trim();
}

// Gives back slabs whose blocks are all free.
void CachingAllocator::State::trim(SizeClass& c, size_t block_bytes) {
    for (Slab& slab : c.slabs) slab.free_blocks = 0;
    if (c.fresh != c.fresh_end)
        c.slab_of(c.fresh).free_blocks = static_cast<size_t>(c.fresh_end - c.fresh) / block_bytes;
    for (FreeBlock* b = c.free; b != nullptr; b = b->next) ++c.slab_of(b).free_blocks;
    const auto is_free = [&](const Slab& s) { return s.free_blocks == s.bytes / block_bytes; };

    for (FreeBlock** link = &c.free; *link != nullptr;) {
        if (is_free(c.slab_of(*link))) *link = (*link)->next;
        else link = &(*link)->next;
    }
    if (c.fresh != c.fresh_end && is_free(c.slab_of(c.fresh))) c.fresh = c.fresh_end = nullptr;
    std::erase_if(c.slabs, [&](const Slab& slab) {
        if (!is_free(slab)) return false;
        MEGJIT_PERMIT(slab.begin, slab.bytes);
        spans.give(slab.begin);
        return true;
    });
}

}  // namespace megjit::memory
