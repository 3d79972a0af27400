// runtime/leaf_mutex.h -- LeafMutex: a mutex that fork() waits for. A child has only the thread
// that forked, and what another thread held would stay taken there for ever. Only for locks under
// which no other lock is asked for: fork() takes all of them, in any order. So nothing that can
// wait (for the host's lock, a peer, a device) is called under one: check_interrupt() verifies
// that. What lasts longer is a Turn (turn.h).
#pragma once

#include <mutex>

namespace megjit::runtime {

class LeafMutex {
public:
    LeafMutex();
    ~LeafMutex();
    LeafMutex(const LeafMutex&) = delete;
    LeafMutex& operator=(const LeafMutex&) = delete;
    void lock() {
        mutex_.lock();
        ++held_;
    }
    void unlock() {
        --held_;
        mutex_.unlock();
    }
    static bool is_any_mine() { return held_ > 0; }  // does this thread hold one?

private:
    static inline thread_local int held_ = 0;
    std::mutex mutex_;
};

}  // namespace megjit::runtime
