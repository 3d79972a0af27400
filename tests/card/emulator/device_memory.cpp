#include "tests/card/emulator/device_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <tuple>
#include <vector>

namespace megjit::card {
namespace {

constexpr int kPattern = 0xff;
constexpr size_t kRemembered = 256;  // freed allocations

uint64_t rounded_up(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

DeviceMemory::DeviceMemory() : taken_(new std::atomic<bool>[kBytes / kChunk]()) {
    file_ = memfd_create("megjit-card", MFD_CLOEXEC);
    if (file_ < 0 || ftruncate(file_, static_cast<off_t>(kBytes)) != 0)
        throw Fault(Result::operating_system, "the card's memory: no memfd of 8 GiB");
    const auto map = [&](int protection) {
        void* p = mmap(nullptr, kBytes, protection, MAP_SHARED | MAP_NORESERVE, file_, 0);
        if (p == MAP_FAILED)
            throw Fault(Result::operating_system, "the card's memory: mmap of 8 GiB failed");
        return static_cast<std::byte*>(p);
    };
    published_ = reinterpret_cast<Address>(map(PROT_NONE));
    alias_ = map(PROT_READ | PROT_WRITE);
}

bool DeviceMemory::fits(uint64_t from, uint64_t bytes) const {
    if (from + bytes > kBytes) return false;
    auto next = allocations_.lower_bound(from);
    if (next != allocations_.end() && next->first < from + bytes) return false;
    return next == allocations_.begin() ||
           std::prev(next)->first + std::prev(next)->second.bytes + kAlignment <= from;
}

Address DeviceMemory::allocate(uint64_t bytes, bool live, bool of_user) {
    const std::lock_guard lock(mutex_);
    const uint64_t span = rounded_up(bytes, kAlignment) + kAlignment;  // and a gap
    if (bytes > kBytes) return 0;
    // Next fit: what was freed is used again as late as possible.
    const auto search = [&](uint64_t from, uint64_t end) -> uint64_t {
        while (from + span <= end) {
            if (fits(from, span)) return from;
            auto next = allocations_.upper_bound(from);
            if (next != allocations_.begin()) {
                const auto& [offset, before] = *std::prev(next);
                if (const uint64_t after =
                        rounded_up(offset + before.bytes, kAlignment) + kAlignment;
                    after > from) {
                    from = after;
                    continue;
                }
            }
            if (next == allocations_.end()) return kBytes;
            from = rounded_up(next->first + next->second.bytes, kAlignment) + kAlignment;
        }
        return kBytes;
    };
    uint64_t at = search(cursor_, kBytes);
    if (at == kBytes) at = search(0, kBytes);
    if (at == kBytes) return 0;
    allocations_[at] = {bytes, ++serial_, live, of_user};
    cursor_ = at + span;
    used_ += span;
    for (uint64_t chunk = at / kChunk; chunk * kChunk < at + bytes; ++chunk) {
        if (!taken_[chunk]) continue;  // gets its pattern with its pages
        const uint64_t from = std::max(at, chunk * kChunk);
        std::memset(alias_ + from, kPattern, std::min(at + bytes, (chunk + 1) * kChunk) - from);
    }
    return published_ + at;
}

bool DeviceMemory::make_live(Address address) {
    const std::lock_guard lock(mutex_);
    const auto it = allocations_.find(address - published_);
    if (it == allocations_.end()) return false;
    it->second.live = true;
    return true;
}

bool DeviceMemory::free(Address address) {
    const std::lock_guard lock(mutex_);
    const auto it = allocations_.find(address - published_);
    if (it == allocations_.end()) return false;
    const auto [from, gone] = *it;
    allocations_.erase(it);
    used_ -= rounded_up(gone.bytes, kAlignment) + kAlignment;
    freed_.push_back({from, gone.bytes, gone.serial});
    if (freed_.size() > kRemembered) freed_.pop_front();
    // Whole chunks give their pages back.
    const uint64_t first = rounded_up(from, kChunk), last = (from + gone.bytes) / kChunk * kChunk;
    if (first < last) {
        fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
                  static_cast<off_t>(last - first));
        for (uint64_t at = first; at < last; at += kChunk) taken_[at / kChunk] = false;
    }
    return true;
}

void DeviceMemory::reset() {
    std::vector<Address> all;
    {
        const std::shared_lock lock(mutex_);
        for (const auto& [offset, _] : allocations_) all.push_back(published_ + offset);
    }
    for (const Address address : all) free(address);
}

void DeviceMemory::take_pages(uint64_t from, uint64_t to) {
    for (uint64_t chunk = from / kChunk; chunk * kChunk < to; ++chunk) {
        if (taken_[chunk]) continue;
        std::memset(alias_ + chunk * kChunk, kPattern, kChunk);
        taken_[chunk] = true;
    }
}

Extent DeviceMemory::find(Address address, uint64_t bytes) {
    const uint64_t offset = address - published_;
    const auto whole = [&]() -> std::pair<uint64_t, uint64_t> {
        auto it = allocations_.upper_bound(offset);
        if (it == allocations_.begin()) return {0, 0};
        --it;
        const uint64_t end = it->first + it->second.bytes;
        if (!it->second.live || offset >= end || bytes > end - offset) return {0, 0};
        return {it->first, end};
    };
    const auto all_taken = [&](uint64_t from, uint64_t to) {
        for (uint64_t chunk = from / kChunk; chunk * kChunk < to; ++chunk)
            if (!taken_[chunk]) return false;
        return true;
    };
    std::shared_lock lock(mutex_);
    auto [begin, end] = whole();
    if (begin == end) return {};
    if (!all_taken(offset, offset + bytes)) {
        lock.unlock();
        {
            const std::lock_guard exclusive(mutex_);
            std::tie(begin, end) = whole();
            if (begin == end) return {};
            take_pages(offset, offset + bytes);
        }
        lock.lock();
    }
    uint64_t from = offset / kChunk, to = (offset + bytes + kChunk - 1) / kChunk;
    while (from * kChunk > begin && taken_[from - 1]) --from;
    while (to * kChunk < end && taken_[to]) ++to;
    return {published_ + std::max(begin, from * kChunk), published_ + std::min(end, to * kChunk),
            reinterpret_cast<ptrdiff_t>(alias_) - static_cast<ptrdiff_t>(published_)};
}

bool DeviceMemory::allocation_at(Address address, Address& begin, Allocation& found) const {
    const std::shared_lock lock(mutex_);
    auto it = allocations_.upper_bound(address - published_);
    if (it == allocations_.begin()) return false;
    --it;
    if (address - published_ >= it->first + it->second.bytes) return false;
    begin = published_ + it->first;
    found = it->second;
    return true;
}

std::string DeviceMemory::describe(Address address) const {
    const std::shared_lock lock(mutex_);
    const uint64_t offset = address - published_;
    const auto named = [&](uint64_t at, uint64_t bytes, uint64_t serial) {
        return text("allocation %llu of %llu bytes at 0x%llx",
                    static_cast<unsigned long long>(serial), static_cast<unsigned long long>(bytes),
                    static_cast<unsigned long long>(published_ + at));
    };
    const auto after = allocations_.upper_bound(offset);
    const auto before = after == allocations_.begin() ? allocations_.end() : std::prev(after);
    if (before != allocations_.end() && offset < before->first + before->second.bytes) {
        const std::string name = named(before->first, before->second.bytes, before->second.serial);
        if (!before->second.live)
            return "within " + name + ", which its stream has not allocated yet";
        return text("%llu bytes into ", static_cast<unsigned long long>(offset - before->first)) +
               name;
    }
    for (auto gone = freed_.rbegin(); gone != freed_.rend(); ++gone)
        if (offset - gone->offset < gone->bytes)
            return "within the freed " + named(gone->offset, gone->bytes, gone->serial);
    const uint64_t past =
        before == allocations_.end() ? kBytes : offset - before->first - before->second.bytes;
    const uint64_t ahead = after == allocations_.end() ? kBytes : after->first - offset;
    if (past == kBytes && ahead == kBytes) return "no allocation is live";
    if (past <= ahead)
        return text("%llu bytes past the end of ", static_cast<unsigned long long>(past)) +
               named(before->first, before->second.bytes, before->second.serial);
    return text("%llu bytes before ", static_cast<unsigned long long>(ahead)) +
           named(after->first, after->second.bytes, after->second.serial);
}

size_t DeviceMemory::live_allocations(uint64_t& bytes) const {
    const std::shared_lock lock(mutex_);
    size_t count = 0;
    for (const auto& [_, allocation] : allocations_) {
        if (!allocation.of_user) continue;
        ++count;
        bytes += allocation.bytes;
    }
    return count;
}

}  // namespace megjit::card
