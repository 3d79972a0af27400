// runtime/leaf_mutex.h -- LeafMutex: a mutex that fork() waits for. A child has only the thread
// that forked, and what another thread held would stay taken there for ever. Only for locks under
// which no other lock is asked for: fork() takes all of them, in any order.
#pragma once

#include <mutex>

namespace megjit::runtime {

class LeafMutex {
public:
    LeafMutex();
    ~LeafMutex();
    LeafMutex(const LeafMutex&) = delete;
    LeafMutex& operator=(const LeafMutex&) = delete;
    void lock() { mutex_.lock(); }
    void unlock() { mutex_.unlock(); }

private:
    std::mutex mutex_;
};

}  // namespace megjit::runtime
