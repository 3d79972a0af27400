// memory/spans.h -- pages from the system, cut into spans that are split and joined again. The
// books lie outside the pages. Not safe from several threads: the owner holds a lock, which it may
// open while the source maps or unmaps.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "memory/system_pages.h"
#include "runtime/core/allocator.h"

namespace megjit::memory {

inline constexpr size_t kPageBytes = 4096;

class Spans {
public:
    explicit Spans(runtime::PageSource& pages) : pages_(pages) {}
    Spans(const Spans&) = delete;
    Spans& operator=(const Spans&) = delete;

    // These return a span of `bytes`, a multiple of kPageBytes; null when there is none. They may
    // throw std::bad_alloc when there is no memory for the books; then nothing has changed.
    void* fit(size_t bytes);  // from cached pages meant for this size
    void* fit_anywhere(size_t bytes);  // from any cached pages: the last resort
    void* grow(size_t bytes, size_t cap);  // from new pages, of which it may take more than `bytes`
    void* grow_exactly(size_t bytes, size_t cap);

    void give(void* p) noexcept;  // takes a span back; allocates nothing
    void trim() noexcept;  // unmaps free pages if the system takes parts; else free regions
    void unmap_all() noexcept;  // for the end, when no span is in use any more
    void set_growth(const runtime::Growth& growth) { growth_ = growth; }

    size_t reserved_bytes() const { return reserved_; }
    size_t peak_reserved_bytes() const { return peak_reserved_; }
    void reset_peak() { peak_reserved_ = reserved_; }

private:
    // Small and large spans live in different regions, for one small tensor that stays would keep
    // the pages of a large one from going back to the system.
    enum Pool { kShared, kLarge, kPools };
    using Free = std::set<std::pair<size_t, char*>>;  // (bytes, begin): first fit is best

    struct Region {  // what one map() returned
        char* begin = nullptr;
        size_t bytes = 0;
        Pool pool = kShared;
        bool operator==(const Region&) const = default;
    };
    struct Span {
        size_t bytes = 0;
        Region region;
        // The span's node in free_, kept here while the span is in use, so that give() allocates
        // none.
        Free::node_type ticket = {};
        bool is_free() const { return ticket.empty(); }
    };
    using Books = std::map<char*, Span>;  // by begin

    static Pool pool_of(size_t bytes) { return bytes <= (size_t{1} << 20) ? kShared : kLarge; }
    void* fit_in(Pool pool, size_t bytes);
    void* map(size_t region_bytes, size_t bytes, size_t cap);
    void* take(Books::iterator span, size_t bytes);
    void swallow_next(Books::iterator span) noexcept;
    Books::iterator unmap(Books::iterator span) noexcept;

    runtime::PageSource& pages_;
    runtime::Growth growth_;
    Books books_;
    Free free_[kPools];
    size_t reserved_ = 0;
    size_t peak_reserved_ = 0;
};

}  // namespace megjit::memory
