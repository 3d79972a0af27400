// runtime/host/mutex.h -- Mutex: the one lock for what is held only briefly. Nothing that can wait
// (for the host's lock, a peer, a device) is called under one; what lasts longer is a Turn
// (turn.h).
//
// Each has a rank, and ranks are taken in ascending order, so that no two threads can wait for each
// other. MEGJIT_CHECK=1 verifies both rules.
//
// fork() takes all of them: a child has only the thread that forked, and a mutex that another
// thread held would stay locked there for ever, with half-written data behind it.
#pragma once

#include <atomic>
#include <cstdint>

namespace megjit::runtime {

int register_mutexes_at_fork();  // to be called first by other users of fork handlers

enum class Rank : uint8_t {
    compiling,  // one kernel is compiled at a time
    evictions,  // values are dropped and computed again
    table,  // most mutexes: something is looked up or noted
    inner,  // taken while a `table` is held: opened libraries, packed layouts, warnings
    memory,  // blocks and their books: whatever is released under another lock ends here
};

class Mutex {
public:
    // `name` says what it guards, for errors: "the kernels in memory".
    explicit Mutex(const char* name, Rank rank = Rank::table);
    ~Mutex();
    Mutex(const Mutex&) = delete;
    Mutex& operator=(const Mutex&) = delete;

    void lock() {
        const bool is_checked = checks_.load(std::memory_order_relaxed);
        if (is_checked) [[unlikely]]
            verify_rank();
        take();
        if (is_checked) [[unlikely]]
            note_taken();
    }
    bool try_lock() {
        int expected = kFree;
        if (!state_.compare_exchange_strong(expected, kTaken, std::memory_order_acquire))
            return false;
        if (checks_.load(std::memory_order_relaxed)) [[unlikely]]
            note_taken();
        return true;
    }
    void unlock() {
        if (is_noted_) [[unlikely]]
            note_released();
        release();
    }

    static void check(bool wanted) { checks_ = wanted; }  // MEGJIT_CHECK
    // If mutexes are checked, throws an InternalError when this thread holds one while it is about
    // to wait for `what`, "the host's lock".
    static void refuse_wait(const char* what) {
        if (checks_.load(std::memory_order_relaxed)) [[unlikely]]
            verify_wait(what);
    }

private:
    class All;  // takes and releases all mutexes for fork(), without notes
    friend int register_mutexes_at_fork();
    static constexpr int kFree = 0, kTaken = 1, kAwaited = 2;

    void take() {
        int expected = kFree;
        if (!state_.compare_exchange_strong(expected, kTaken, std::memory_order_acquire))
            [[unlikely]]
            wait();
    }
    void release() {
        if (state_.exchange(kFree, std::memory_order_release) == kAwaited) [[unlikely]]
            state_.notify_one();
    }
    void wait();
    void note_taken();
    void note_released();
    void verify_rank() const;
    static void verify_wait(const char* what);

    static inline std::atomic<bool> checks_ = false;

    std::atomic<int> state_{kFree};
    bool is_noted_ = false;  // it is in the list of those that its thread holds
    const Rank rank_;
    const char* const name_;
    Mutex* outer_ = nullptr;  // the one that its thread noted before it
};

uint64_t forks();  // how many forks lie between the process that loaded megjit and this one

}  // namespace megjit::runtime
