#include "memory/system_pages.h"

#include <sys/mman.h>

#include <cstdint>

namespace megjit::memory {
namespace {

class SystemPages final : public runtime::PageSource {
public:
    void* map(size_t bytes) override {
        const bool huge = bytes >= kHugePageBytes;
        // The system aligns to 4 KiB only: we ask for more, and give both ends back.
        const size_t asked = huge ? bytes + kHugePageBytes : bytes;
        void* p = mmap(nullptr, asked, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) return nullptr;
        if (!huge) return p;
        char* const raw = static_cast<char*>(p);
        const size_t head = -reinterpret_cast<uintptr_t>(raw) & (kHugePageBytes - 1);
        const size_t tail = kHugePageBytes - head;
        if (head != 0) munmap(raw, head);
        if (tail != 0) munmap(raw + head + bytes, tail);
        madvise(raw + head, bytes, MADV_HUGEPAGE);  // only a wish: the kernel may have none
        return raw + head;
    }
    void unmap(void* p, size_t bytes) noexcept override { munmap(p, bytes); }
    bool unmaps_parts() const override { return true; }
};

}  // namespace

std::unique_ptr<runtime::PageSource> system_pages() { return std::make_unique<SystemPages>(); }

}  // namespace megjit::memory
