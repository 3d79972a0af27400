// runtime/core/page_source.h -- PageSource: where an allocator gets the memory of a device.
#pragma once

#include <cstddef>

namespace megjit::runtime {

// Tests replace it to simulate a system that refuses.
class PageSource {
public:
    virtual ~PageSource() = default;
    virtual void* map(size_t bytes) = 0;  // page-aligned, null when the system refuses
    virtual void unmap(void* p, size_t bytes) noexcept = 0;
    // May a part of what map() returned be unmapped on its own?
    virtual bool unmaps_parts() const { return false; }
    // May the host touch the pages? If not, as on a GPU, the allocator keeps no books inside free
    // blocks.
    virtual bool is_host_memory() const { return true; }
};

}  // namespace megjit::runtime
