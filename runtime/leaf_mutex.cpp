#include "runtime/leaf_mutex.h"

#include <pthread.h>

#include <algorithm>
#include <vector>

namespace megjit::runtime {
namespace {

struct All {
    std::mutex mutex;
    std::vector<LeafMutex*> leaves;
};
All& all() {
    static All& instance = *new All;  // outlives every leaf
    return instance;
}

void lock_all() {
    all().mutex.lock();
    for (LeafMutex* leaf : all().leaves) leaf->lock();
}

void unlock_all() {
    for (LeafMutex* leaf : all().leaves) leaf->unlock();
    all().mutex.unlock();
}

// At load time: handlers of locks that are taken before leaves are registered later, and so run
// earlier.
[[maybe_unused]] const int kForkHandler = pthread_atfork(lock_all, unlock_all, unlock_all);

}  // namespace

LeafMutex::LeafMutex() {
    const std::lock_guard lock(all().mutex);
    all().leaves.push_back(this);
}

LeafMutex::~LeafMutex() {
    const std::lock_guard lock(all().mutex);
    std::erase(all().leaves, this);
}

}  // namespace megjit::runtime
