#include "runtime/host/mutex.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/host/error.h"

namespace megjit::runtime {

class Mutex::All {
public:
    static All& instance() {
        static All& one = *new All;  // outlives every mutex
        return one;
    }

    void add(Mutex* mutex) {
        const std::lock_guard lock(changes_);
        all_.push_back(mutex);
    }
    void remove(Mutex* mutex) {
        const std::lock_guard lock(changes_);
        std::erase(all_, mutex);
    }

    // Takes all mutexes, or releases those it took and tries again: a thread that holds one may be
    // waiting for changes_, as it makes another.
    void take_all() {
        for (;;) {
            changes_.lock();
            const auto taken = std::ranges::find_if(all_, [](Mutex* mutex) {
                int expected = Mutex::kFree;
                return !mutex->state_.compare_exchange_strong(expected, Mutex::kTaken,
                                                              std::memory_order_acquire);
            });
            if (taken == all_.end()) return;
            std::for_each(all_.begin(), taken, [](Mutex* mutex) { mutex->release(); });
            changes_.unlock();
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    }
    void release_all() {
        for (Mutex* mutex : all_) mutex->release();
        changes_.unlock();
    }

private:
    std::mutex changes_;
    std::vector<Mutex*> all_;
};

namespace {

std::atomic<uint64_t> fork_count{0};
thread_local Mutex* innermost = nullptr;  // the one that this thread noted last

[[maybe_unused]] const int kForkHandler = register_mutexes_at_fork();

}  // namespace

uint64_t forks() { return fork_count; }

int register_mutexes_at_fork() {
    using All = Mutex::All;
    static const int registered = pthread_atfork([] { All::instance().take_all(); },
                                                 [] { All::instance().release_all(); }, [] {
        ++fork_count;
        All::instance().release_all();
    });
    return registered;
}

Mutex::Mutex(const char* name, Rank rank) : rank_(rank), name_(name) { All::instance().add(this); }

Mutex::~Mutex() { All::instance().remove(this); }

void Mutex::wait() {
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree)
        state_.wait(kAwaited, std::memory_order_relaxed);
}

void Mutex::note_taken() {
    is_noted_ = true;
    outer_ = innermost;
    innermost = this;
}

void Mutex::note_released() {
    is_noted_ = false;
    Mutex** link = &innermost;
    while (*link != this) link = &(*link)->outer_;
    *link = outer_;
}

void Mutex::verify_rank() const {
    for (const Mutex* held = innermost; held; held = held->outer_)
        if (held->rank_ >= rank_)
            throw InternalError(cat("the lock of ", name_, " is asked for under that of ",
                                    held->name_, ", which ranks no lower"));
}

void Mutex::verify_wait(const char* what) {
    if (innermost)
        throw InternalError(
            cat(what, " is waited for with the lock of ", innermost->name_, " held"));
}

}  // namespace megjit::runtime
