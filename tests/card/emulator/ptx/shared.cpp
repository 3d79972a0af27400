#include "tests/card/emulator/ptx/shared.h"

#include <algorithm>

#include "tests/card/emulator/core.h"

namespace megjit::card::ptx {

void SharedLog::barrier() {
    if (++epoch_ < UINT32_MAX / kEpoch) return;
    std::fill_n(writes_.get(), bytes_, 0);
    std::fill_n(reads_.get(), bytes_, 0);
    epoch_ = 1;
}

[[gnu::always_inline]] inline bool SharedLog::conflicts(uint32_t warp, Kind kind, size_t at) const {
    const uint32_t w = writes_[at], r = reads_[at];
    const bool is_written =
        is_now(w) & ((w & kWarp) != warp) & !(kind == Kind::atomic && w & kAtomic);
    const bool is_read = is_now(r) & (((r & kSeveral) != 0) | ((r & kWarp) != warp));
    return is_written | (is_read & (kind != Kind::read));
}

bool SharedLog::note(uint32_t warp, Kind kind, size_t offset, size_t bytes) {
    bool is_wrong = false;
    for (size_t i = offset; i < offset + bytes; ++i) is_wrong |= conflicts(warp, kind, i);
    if (is_wrong) return false;
    const uint32_t mine = epoch_ * kEpoch + warp;
    if (kind != Kind::read)
        std::fill_n(writes_.get() + offset, bytes, mine + (kind == Kind::atomic ? kAtomic : 0));
    else
        for (size_t i = offset; i < offset + bytes; ++i) {
            const uint32_t r = reads_[i];
            const bool is_others = is_now(r) & (((r & kSeveral) != 0) | ((r & kWarp) != warp));
            reads_[i] = mine + (is_others ? kSeveral : 0);
        }
    return true;
}

std::string SharedLog::describe(uint32_t warp, Kind kind, size_t offset, size_t bytes) const {
    size_t at = offset;
    while (at + 1 < offset + bytes && !conflicts(warp, kind, at)) ++at;
    const uint32_t w = writes_[at], r = reads_[at];
    const bool is_written = is_now(w) && (w & kWarp) != warp;
    const std::string others = !is_written && r & kSeveral
                                   ? "several warps have"
                                   : text("warp %u has", (is_written ? w : r) & kWarp);
    return text("a barrier is missing: warp %u %s byte %zu of shared memory, which ", warp,
                kind == Kind::read ? "reads" : "writes", at) +
           others + (is_written ? " written" : " read") + " since the last one";
}

}  // namespace megjit::card::ptx
