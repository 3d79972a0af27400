// runtime/core/allocator.h -- the one way to get memory for tensors, on any device.
// In: sizes. Out: addresses and figures. Knows no tensor and no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <new>
#include <string>

namespace megjit::runtime {

inline constexpr size_t kNoCap = std::numeric_limits<size_t>::max();

struct MemoryStats {
    size_t in_use = 0;  // bytes asked for by callers and not yet released
    size_t reserved = 0;  // bytes taken from the system, cached ones included
    size_t peak_in_use = 0;  // the highest in_use since the start or since reset_peak()
    size_t peak_reserved = 0;  // the highest `reserved` since then
    uint64_t allocations = 0;  // calls of allocate() that succeeded
    size_t cap = kNoCap;  // as set_cap() set it
};

// How much is taken from the system when a small block no longer fits: `factor` times what is
// reserved, but at least `least`, and at most the block and `overhead`. Blocks above 1 MiB get
// exactly what they ask for.
struct Growth {
    size_t least = size_t{2} << 20;  // bytes
    size_t overhead = size_t{32} << 20;  // bytes
    double factor = 0.25;
};

// Thrown by allocate(). The object holds its text in itself, for there may be no memory left for a
// string. Callers further up add what they know, if there is memory for it.
class OutOfMemory : public std::bad_alloc {
public:
    OutOfMemory(size_t asked, size_t used, size_t limit) noexcept
        : bytes(asked), in_use(used), cap(limit) {
        char of[48] = "no limit is set";
        if (cap != kNoCap) std::snprintf(of, sizeof of, "the limit is %zu bytes", cap);
        std::snprintf(text_, sizeof text_,
                      "out of memory: asked for %zu bytes while %zu bytes are in use; %s", bytes,
                      in_use, of);
    }
    const char* what() const noexcept override { return text_; }

    // "conv2d f32[8, 64, 56, 56]"; the first caller to say it knows best, and later ones are
    // ignored.
    void say_what_for(std::string what_for) noexcept { set(wanted_, std::move(what_for)); }
    std::string what_for() const { return wanted_ ? *wanted_ : std::string(); }
    // The largest blocks that were alive, as text.
    void say_who_holds(std::string holders) noexcept { set(holders_, std::move(holders)); }
    std::string holders() const { return holders_ ? *holders_ : std::string(); }

    size_t bytes = 0;  // asked for
    size_t in_use = 0;  // when the bytes were asked for
    size_t cap = kNoCap;
    bool is_threshold =
        false;  // `cap` is the threshold of dynamic rematerialization, and nothing is left to evict
    bool is_final = false;  // a test caused the failure: no idle memory is given up for it

private:
    using Text =
        std::shared_ptr<const std::string>;  // an exception must be copied without throwing
    static void set(Text& text, std::string&& value) noexcept try {
        if (!text) text = std::make_shared<const std::string>(std::move(value));
    } catch (const std::bad_alloc&) {}
    char text_[192] = {};
    Text wanted_, holders_;
};

// Every call is safe from any thread.
class Allocator {
public:
    virtual ~Allocator() = default;

    // At least 64-byte aligned, never null, not cleared. Zero bytes are allowed. Throws OutOfMemory
    // and nothing else; after that the allocator is as it was before.
    virtual void* allocate(size_t bytes) = 0;
    // `bytes` is what was given to allocate(). Null is ignored.
    virtual void release(void* p, size_t bytes) noexcept = 0;

    virtual MemoryStats stats() const = 0;
    virtual void reset_peak() = 0;
    virtual void trim() = 0;  // gives cached pages back to the system
    virtual void set_cap(size_t bytes) = 0;  // bounds `reserved`, and so `in_use`; kNoCap lifts it
    virtual void set_growth(const Growth& growth) = 0;
    // For tests: the next `n` allocations behave as usual, and the one after them throws
    // OutOfMemory (is_final), once. kNever cancels this.
    virtual void fail_after(uint64_t n) = 0;
    static constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
};

}  // namespace megjit::runtime
