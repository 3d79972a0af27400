// runtime/core/live_blocks.h -- which large blocks of a device are alive, and what they hold: the
// text of an out-of-memory error. Small blocks are not listed: noting a line costs a microsecond,
// as much as a small op.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/core/allocator.h"
#include "runtime/host/error.h"
#include "runtime/host/mutex.h"

namespace megjit::runtime {

struct LiveBlock {
    size_t bytes = 0;
    std::string what = {};  // "conv2d f32[8, 64, 56, 56]"
    std::string where = {};  // the user's line, or ""
};

// Every call is safe from any thread.
class LiveBlocks {
public:
    static constexpr size_t kLeastBytes = size_t{1} << 20;

    void add(const void* data, LiveBlock block);
    void remove(const void* data) noexcept;
    LiveBlock take(const void* data);  // unlists it; zero bytes if it was not listed
    std::vector<LiveBlock> largest(size_t count) const;

private:
    mutable Mutex mutex_{"the blocks of a device", Rank::memory};
    std::unordered_map<const void*, LiveBlock> blocks_;
};

// What users are told of an OutOfMemory.
Message message_of(const OutOfMemory& error);

}  // namespace megjit::runtime
