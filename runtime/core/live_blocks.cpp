#include "runtime/core/live_blocks.h"

#include <algorithm>

#include "runtime/host/size_text.h"
#include "runtime/host/user_line.h"

namespace megjit::runtime {

void LiveBlocks::add(const void* data, LiveBlock block) {
    const std::lock_guard lock(mutex_);
    blocks_.insert_or_assign(data, std::move(block));
}

void LiveBlocks::remove(const void* data) noexcept {
    const std::lock_guard lock(mutex_);
    blocks_.erase(data);
}

LiveBlock LiveBlocks::take(const void* data) {
    const std::lock_guard lock(mutex_);
    const auto node = blocks_.extract(data);
    return node ? std::move(node.mapped()) : LiveBlock{};
}

std::vector<LiveBlock> LiveBlocks::largest(size_t count) const {
    const std::lock_guard lock(mutex_);
    std::vector<const LiveBlock*> order;
    for (const auto& [data, block] : blocks_) order.push_back(&block);
    const size_t shown = std::min(count, order.size());
    const auto is_before = [](const LiveBlock* a, const LiveBlock* b) {
        return a->bytes != b->bytes ? a->bytes > b->bytes : a->where < b->where;
    };
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown),
                      order.end(), is_before);
    std::vector<LiveBlock> result;
    for (size_t i = 0; i < shown; ++i) result.push_back(*order[i]);
    return result;
}

Message message_of(const OutOfMemory& error) {
    const std::string in_use = bytes_text(error.in_use, error.cap);
    std::string cap = error.cap == kNoCap ? "the system has no more"
                                          : "the cap is " + bytes_text(error.cap, error.in_use);
    if (error.is_threshold)
        cap = cat("and nothing is left to evict: dtr.eviction_threshold of ", bytes_text(error.cap),
                  " is too small by ", bytes_text(error.in_use + error.bytes - error.cap));
    const std::string what_for = error.what_for(), holders = error.holders();
    return {
        .what = cat("out of memory: ", what_for, what_for.empty() ? "" : " needs ",
                    bytes_text(error.bytes), ", ", in_use, " are in use, ", cap),
        .why = holders.empty() ? "" : "the largest tensors alive: " + holders,
        .fix =
            error.is_threshold
                ? "raise dtr.eviction_threshold, lower dtr.evictee_minimum_size, or free tensors that are no longer needed"
                : "use smaller inputs, free tensors that are no longer needed, or trace with memory_limit",
        .at = user_line()};
}

}  // namespace megjit::runtime
