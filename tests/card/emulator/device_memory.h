// tests/card/emulator/device_memory.h -- a card's memory: one file, mapped twice. At the published
// addresses nothing can be read or written; what executes uses the other mapping.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>

#include "tests/card/emulator/core.h"

namespace megjit::card {

// Addresses of a live allocation, and what to add to them to reach the bytes.
struct Extent {
    Address begin = 0, end = 0;
    ptrdiff_t to_host = 0;
    bool holds(Address address, uint64_t bytes) const {
        return address >= begin && address < end && bytes <= end - address;
    }
};

struct Allocation {
    uint64_t bytes = 0, serial = 0;
    bool live = true;  // false until the stream that allocates gets there
    bool of_user = true;  // or a module's variable
};

class DeviceMemory {
public:
    static constexpr uint64_t kBytes = uint64_t{8} << 30;
    static constexpr uint64_t kAlignment = 512;

    DeviceMemory();

    // 0 when the card is full.
    Address allocate(uint64_t bytes, bool live = true, bool of_user = true);
    bool make_live(Address address);
    bool free(Address address);
    void reset();  // frees everything

    bool is_published(Address address) const { return address - published_ < kBytes; }
    // The part around `address` of a live allocation that has its pages; begin == end when no live
    // allocation holds the bytes.
    Extent find(Address address, uint64_t bytes);
    // The whole allocation, live or not; false when there is none.
    bool allocation_at(Address address, Address& begin, Allocation& found) const;
    // In words: what lies at the address, lay there, or is nearest.
    std::string describe(Address address) const;

    uint64_t used_bytes() const { return used_; }
    size_t live_allocations(uint64_t& bytes) const;  // of the user

private:
    static constexpr uint64_t kChunk = 64 << 10;  // memory takes its pages and its pattern by these

    void take_pages(uint64_t from, uint64_t to);  // offsets; with the mutex held exclusively
    bool fits(uint64_t from, uint64_t bytes) const;

    int file_ = -1;
    Address published_ = 0;
    std::byte* alias_ = nullptr;
    mutable std::shared_mutex mutex_;
    std::map<uint64_t, Allocation> allocations_;  // by offset
    struct Freed {
        uint64_t offset, bytes, serial;
    };
    std::deque<Freed> freed_;  // the last ones
    uint64_t cursor_ = 0, serial_ = 0;
    std::atomic<uint64_t> used_{0};
    std::unique_ptr<std::atomic<bool>[]> taken_;  // chunks
};

}  // namespace megjit::card
