#include "memory/spans.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "memory/round_up.h"

namespace megjit::memory {

void Spans::unmap_all() noexcept {
    char* unmapped_up_to = nullptr;  // a region's spans follow each other
    for (const auto& [begin, span] : books_) {
        if (begin < unmapped_up_to) continue;
        pages_.unmap(span.region.begin, span.region.bytes);
        unmapped_up_to = span.region.begin + span.region.bytes;
    }
    books_.clear();
}

void* Spans::fit(size_t bytes) { return fit_in(pool_of(bytes), bytes); }

void* Spans::fit_anywhere(size_t bytes) {
    if (void* p = fit_in(kShared, bytes)) return p;
    return fit_in(kLarge, bytes);
}

void* Spans::fit_in(Pool pool, size_t bytes) {
    const auto best = free_[pool].lower_bound({bytes, nullptr});
    return best == free_[pool].end() ? nullptr : take(books_.find(best->second), bytes);
}

void* Spans::grow(size_t bytes, size_t cap) {
    if (pool_of(bytes) == kLarge) {
        // If the rest would be large compared with the block, but too small for another one, the
        // huge page is not worth it.
        const size_t whole = round_up(bytes, kHugePageBytes);
        return map(whole - bytes > bytes / 8 ? bytes : whole, bytes, cap);
    }
    const auto share = static_cast<size_t>(growth_.factor * static_cast<double>(reserved_));
    const size_t wanted = std::min(std::max(share, growth_.least), bytes + growth_.overhead);
    return map(round_up(std::max(wanted, bytes), kHugePageBytes), bytes, cap);
}

void* Spans::grow_exactly(size_t bytes, size_t cap) { return map(bytes, bytes, cap); }

void* Spans::map(size_t region_bytes, size_t bytes, size_t cap) {
    if (reserved_ > cap || region_bytes > cap - reserved_) return nullptr;
    // reserved_ grows before map(), for the owner's lock may be open while a device makes pages.
    reserved_ += region_bytes;
    char* begin = nullptr;
    try {
        begin = static_cast<char*>(pages_.map(region_bytes));
    } catch (...) {
        reserved_ -= region_bytes;
        throw;
    }
    if (begin == nullptr) {
        reserved_ -= region_bytes;
        return nullptr;
    }
    const Region region = {begin, region_bytes, pool_of(bytes)};
    Books::iterator span;
    try {
        span = books_.emplace(begin, Span{.bytes = region_bytes, .region = region}).first;
        free_[region.pool].emplace(region_bytes, begin);
    } catch (...) {
        books_.erase(begin);
        reserved_ -= region_bytes;
        pages_.unmap(begin, region_bytes);
        throw;
    }
    peak_reserved_ = std::max(peak_reserved_, reserved_);
    return take(span, bytes);
}

// Takes the free `span` into use, and makes a new free one of its superfluous bytes.
void* Spans::take(Books::iterator span, size_t bytes) {
    char* const begin = span->first;
    const size_t rest_bytes = span->second.bytes - bytes;
    const Region region = span->second.region;
    Free& free = free_[region.pool];
    if (rest_bytes != 0) {
        char* const rest = begin + bytes;
        const auto rest_span =
            books_.emplace_hint(std::next(span), rest, Span{.bytes = rest_bytes, .region = region});
        try {
            free.emplace(rest_bytes, rest);
        } catch (...) {
            books_.erase(rest_span);
            throw;
        }
    }
    span->second.ticket = free.extract({span->second.bytes, begin});
    span->second.bytes = bytes;
    return begin;
}

void Spans::give(void* p) noexcept {
    auto span = books_.find(static_cast<char*>(p));
    Free& free = free_[span->second.region.pool];
    swallow_next(span);
    if (span != books_.begin()) {
        const auto before = std::prev(span);
        if (before->second.is_free() && before->second.region == span->second.region) {
            before->second.ticket = free.extract({before->second.bytes, before->first});
            before->second.bytes += span->second.bytes;
            books_.erase(span);
            span = before;
        }
    }
    span->second.ticket.value() = {span->second.bytes, span->first};
    free.insert(std::move(span->second.ticket));
}

void Spans::swallow_next(Books::iterator span) noexcept {
    const auto next = std::next(span);
    if (next == books_.end() || !next->second.is_free() ||
        next->second.region != span->second.region)
        return;
    free_[next->second.region.pool].erase({next->second.bytes, next->first});
    span->second.bytes += next->second.bytes;
    books_.erase(next);
}

void Spans::trim() noexcept {
    // A smaller hole is not worth a mapping of its own on either side.
    constexpr size_t kLeastHole = size_t{64} << 10;
    const size_t least_part =
        pages_.unmaps_parts() ? kLeastHole : std::numeric_limits<size_t>::max();
    for (auto span = books_.begin(); span != books_.end();) {
        const size_t bytes = span->second.bytes;
        const bool goes =
            span->second.is_free() && (bytes == span->second.region.bytes || bytes >= least_part);
        span = goes ? unmap(span) : std::next(span);
    }
}

// Gives a free span back to the system and returns the next one. The rest of its region on either
// side becomes a region. The owner's lock may be open while a device takes the pages.
Spans::Books::iterator Spans::unmap(Books::iterator span) noexcept {
    const Region region = span->second.region;
    char* const begin = span->first;
    const size_t bytes = span->second.bytes;
    free_[region.pool].erase({bytes, begin});
    const auto behind = books_.erase(span);
    for (auto left = behind; left != books_.begin() && std::prev(left)->second.region == region;) {
        --left;
        left->second.region.bytes = static_cast<size_t>(begin - region.begin);
    }
    char* const end = begin + bytes;
    for (auto right = behind; right != books_.end() && right->second.region == region; ++right) {
        right->second.region.begin = end;
        right->second.region.bytes = static_cast<size_t>(region.begin + region.bytes - end);
    }
    reserved_ -= bytes;
    pages_.unmap(begin, bytes);
    return books_.lower_bound(end);
}

}  // namespace megjit::memory
