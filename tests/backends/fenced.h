// Memory in front of a page that nobody may touch.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

namespace megjit {

// Memory aligned as on a GPU, whose last bytes lie before a page that nobody may touch.
class Fenced {
public:
    explicit Fenced(size_t bytes) : bytes_((bytes + kPage - 1) / kPage * kPage) {
        base_ = static_cast<char*>(mmap(nullptr, bytes_ + kPage, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        mprotect(base_ + bytes_, kPage, PROT_NONE);
        data_ = base_ + bytes_ - (bytes + 15) / 16 * 16;
    }
    Fenced(Fenced&& other) noexcept
        : bytes_(other.bytes_), base_(std::exchange(other.base_, nullptr)), data_(other.data_) {}
    ~Fenced() {
        if (base_) munmap(base_, bytes_ + kPage);
    }
    char* data() const { return data_; }

private:
    static constexpr size_t kPage = 4096;
    size_t bytes_;
    char *base_, *data_;
};

}  // namespace megjit
