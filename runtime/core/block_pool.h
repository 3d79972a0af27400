// runtime/core/block_pool.h -- BlockPool: blocks of one size that a thread has freed and takes
// again.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <new>

namespace megjit::runtime {

// Blocks of `kBytes`, aligned to cache lines; each thread keeps at most `kMost` that it has freed.
template <size_t kBytes, int kMost>
class BlockPool {
public:
    static void* take() {
        if (pool_.count > 0 && pool_.count <= kMost) return pool_.blocks[--pool_.count];
        void* block = std::aligned_alloc(kLine, (kBytes + kLine - 1) / kLine * kLine);
        if (!block) throw std::bad_alloc();
        return block;
    }
    static void give_back(void* block) {
        if (!pool_.has_closer) [[unlikely]]
            closer_.is_armed = pool_.has_closer = true;  // its first use makes it
        if (pool_.count < kKept) pool_.blocks[pool_.count++] = block;
        else std::free(block);
    }

private:
    static constexpr size_t kLine = 64;
#ifdef __SANITIZE_ADDRESS__
    static constexpr int kKept = 0;  // so that the sanitizer sees each use of a freed block
#else
    static constexpr int kKept = kMost;
#endif
    static constexpr int kClosed = kMost + 1;  // no blocks go in or out
    struct Blocks {
        void* blocks[kMost];
        int count;
        bool has_closer;
    };
    // Empties the pool when its thread ends. It is an object of its own: the pool itself is never
    // destroyed, and serves whatever is destroyed later.
    struct Closer {
        bool is_armed = false;
        ~Closer() {
            while (pool_.count > 0) std::free(pool_.blocks[--pool_.count]);
            pool_.count = kClosed;
        }
    };
    static inline thread_local constinit Blocks pool_{};
    static inline thread_local Closer closer_;
};

}  // namespace megjit::runtime
