#include "runtime/host/parallel.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>

#include "runtime/host/mutex.h"
#include "runtime/host/quiet_thread.h"
#include "runtime/host/thread_limits.h"

namespace megjit::runtime {
namespace {

using std::chrono::steady_clock;

constexpr int kMostThreads = 512;
// Longer than the time between two steps of a training loop: waking a thread takes 50 us on a
// virtual machine.
constexpr auto kHelperSpin = std::chrono::milliseconds(2);
constexpr auto kCallerSpin = std::chrono::microseconds(20);
constexpr auto kLostCore = std::chrono::microseconds(
    200);  // a longer time between two looks at the clock: others had the core meanwhile

thread_local bool is_inside = false;  // inside a parallel region

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");  // a few ns, as long as x86-64's; `yield` does nothing
#endif
}

// Returns false when the time is over, or others want the core: then it is better to sleep.
template <class Done>
bool spin_until(steady_clock::duration limit, const Done& done) {
    const auto begin = steady_clock::now();
    for (auto now = begin, last = begin; now - begin < limit && now - last < kLostCore;
         last = std::exchange(now, steady_clock::now()))
        for (int i = 0; i < 16; ++i) {
            if (done()) return true;
            pause();
        }
    return false;
}

// One region at a time. Its chunks are divided into one share for each thread: neighbours in memory
// stay with one core from loop to loop, and a thread that has finished its own share takes chunks
// from the others. A share is one word, so that one exchange claims a chunk, and fails if the
// region that the thread looked at has ended: a thread that comes late, or slept between looking
// and claiming, does no harm and nobody waits for it.
class Pool {
public:
    static Pool& instance() {
        static auto* const one = new Pool;  // never destroyed: its threads outlive main()
        return *one;
    }

    int wanted() {
        const int count = wanted_.load(std::memory_order_relaxed);
        if (count > 0) return count;
        set_wanted(granted_threads());
        return wanted_.load(std::memory_order_relaxed);
    }
    void set_wanted(int count) {
        refused_.store(false, std::memory_order_relaxed);
        wanted_.store(std::clamp(count, 0, kMostThreads), std::memory_order_relaxed);
    }

    bool take() {
        return !is_taken_.load(std::memory_order_relaxed) &&
               !is_taken_.exchange(true, std::memory_order_acquire);
    }
    void give_back() { is_taken_.store(false, std::memory_order_release); }

    // Called by the thread that has taken the pool. Share 0 is the caller's; if chunks are not
    // awaited, each other thread gets one.
    void open(int threads, int64_t count, pool::Chunk chunk, const void* context, bool is_awaited) {
        threads = start_threads(threads);
        const auto border = [=](int i) {
            return is_awaited ? count * i / threads : std::max(0, i - 1);
        };
        // Not before the words of the last region were closed: a thread that sees these fails to
        // claim a chunk of it.
        chunk_.store(chunk, std::memory_order_release);
        context_.store(context, std::memory_order_release);
        is_awaited_.store(is_awaited, std::memory_order_release);
        if (is_awaited) left_.store(static_cast<int>(count), std::memory_order_relaxed);
        ++generation_;
        for (int i = 0; i < threads; ++i)
            shares_[i].word.store(word_of(generation_, border(i), border(i + 1)),
                                  std::memory_order_release);
        share_count_.store(threads, std::memory_order_release);
        for (int i = 0; i + 1 < threads; ++i) {
            bells_[i].rings.fetch_add(1, std::memory_order_release);
            bells_[i].rings.notify_one();
        }
    }
    void close() {
        for (int i = share_count_.load(std::memory_order_relaxed); i-- > 0;)
            shares_[i].word.store(word_of(generation_, 0, 0), std::memory_order_release);
    }

    // Claims and calls chunks until none is left, first those of share `first`.
    void work(int first) {
        const int count = share_count_.load(std::memory_order_acquire);
        for (int i = 0; i < count; ++i) {
            std::atomic<uint64_t>& word = shares_[(first + i) % count].word;
            for (uint64_t seen = word.load(std::memory_order_acquire);
                 next_of(seen) < end_of(seen);) {
                const pool::Chunk chunk = chunk_.load(std::memory_order_acquire);
                const void* const context = context_.load(std::memory_order_acquire);
                const bool is_awaited = is_awaited_.load(std::memory_order_acquire);
                if (!word.compare_exchange_weak(seen, seen + kOneChunk, std::memory_order_acq_rel,
                                                std::memory_order_acquire))
                    continue;
                call(chunk, context, static_cast<int64_t>(next_of(seen)), is_awaited);
                seen = word.load(std::memory_order_acquire);
            }
        }
    }

    // Waits until all chunks have ended; throws the first error that one of them threw.
    void wait() {
        const auto is_done = [this] { return left_.load(std::memory_order_acquire) == 0; };
        if (!spin_until(kCallerSpin, is_done))
            for (int left; (left = left_.load(std::memory_order_acquire)) > 0;)
                left_.wait(left, std::memory_order_acquire);
        if (has_failed_.load(std::memory_order_relaxed)) {
            has_failed_.store(false, std::memory_order_relaxed);
            std::rethrow_exception(std::exchange(error_, nullptr));
        }
    }

    // Called in a child, which has none of the threads. One thread is enough for most of what
    // children do; set_thread_count makes new ones.
    void forget_threads() {
        started_ = 0;
        set_wanted(1);
        close();
    }

private:
    // A share: generation of the region (32 bits), next chunk (16), end (16).
    static constexpr uint64_t kOneChunk = 1 << 16;
    static uint64_t word_of(uint32_t generation, int64_t next, int64_t end) {
        return uint64_t{generation} << 32 | static_cast<uint64_t>(next) << 16 |
               static_cast<uint64_t>(end);
    }
    static uint64_t next_of(uint64_t word) { return word >> 16 & 0xffff; }
    static uint64_t end_of(uint64_t word) { return word & 0xffff; }

    void call(pool::Chunk chunk, const void* context, int64_t index, bool is_awaited) {
        if (!is_awaited) return chunk(context, index);
        try {
            if (!has_failed_.load(std::memory_order_relaxed)) chunk(context, index);
        } catch (...) {
            if (!has_failed_.exchange(true)) error_ = std::current_exception();
        }
        if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) left_.notify_one();
    }

    // Returns how many threads there are for a region that wants `wanted`. If the system refuses
    // threads, they are not requested again.
    int start_threads(int wanted) {
        while (started_ + 1 < wanted && !refused_.load(std::memory_order_relaxed)) {
            try {
                quiet_thread([this, me = started_, rings = bells_[started_].rings.load()] {
                    help(me, rings);
                }).detach();
                ++started_;
            } catch (const std::system_error&) {
                refused_.store(true, std::memory_order_relaxed);
                wanted_.store(started_ + 1, std::memory_order_relaxed);
            }
        }
        return std::min(wanted, started_ + 1);
    }

    [[noreturn]] void help(int me, uint32_t rings) {
        is_inside = true;
        std::atomic<uint32_t>& bell = bells_[me].rings;
        for (;;) {
            if (!spin_until(kHelperSpin,
                            [&] { return bell.load(std::memory_order_acquire) != rings; }))
                bell.wait(rings, std::memory_order_acquire);
            rings = bell.load(std::memory_order_acquire);
            work(me + 1);
        }
    }

    struct alignas(64) Share {
        std::atomic<uint64_t> word{0};
    };
    struct alignas(64) Bell {
        std::atomic<uint32_t> rings{0};
    };
    std::array<Share, kMostThreads> shares_;
    std::array<Bell, kMostThreads> bells_;
    std::atomic<pool::Chunk> chunk_{nullptr};
    std::atomic<const void*> context_{nullptr};
    std::atomic<bool> is_awaited_{false};
    std::atomic<int> share_count_{0};
    alignas(64) std::atomic<int> left_{0};  // chunks that have not ended
    std::atomic<bool> has_failed_{false};
    std::exception_ptr error_;
    alignas(64) std::atomic<bool> is_taken_{false};
    std::atomic<bool> refused_{false};
    std::atomic<int> wanted_{0};  // 0: not yet known
    int started_ = 0;
    uint32_t generation_ = 0;
};

// A fork waits for the running region, so that the child does not find half of one; a thread inside
// a region cannot wait for itself.
thread_local bool holds_for_fork = false;
[[maybe_unused]] const int kMutexForkHandler =
    register_mutexes_at_fork();  // its handler runs after ours, for chunks take mutexes
[[maybe_unused]] const int kPoolForkHandler = pthread_atfork([] {
    if (is_inside) return;
    while (!Pool::instance().take()) std::this_thread::yield();
    holds_for_fork = true;
}, [] {
    if (std::exchange(holds_for_fork, false)) Pool::instance().give_back();
}, [] {
    Pool::instance().forget_threads();
    if (std::exchange(holds_for_fork, false)) Pool::instance().give_back();
});

}  // namespace

int thread_count() { return is_inside ? 1 : Pool::instance().wanted(); }

void set_thread_count(int count) { Pool::instance().set_wanted(count); }

void pool::run(int threads, int64_t count, Chunk chunk, const void* context) {
    Pool& pool = Pool::instance();
    if (threads <= 1 || is_inside || !pool.take()) {
        for (int64_t i = 0; i < count; ++i) chunk(context, i);
        return;
    }
    struct Region {
        Pool& pool;
        ~Region() {
            is_inside = false;
            pool.give_back();
        }
    } const region{pool};
    is_inside = true;
    pool.open(threads, count, chunk, context, true);
    pool.work(0);
    pool.wait();
}

HelpScope::HelpScope(int threads, pool::Chunk help, const void* context) : was_inside_(is_inside) {
    has_pool_ = threads > 1 && !is_inside && Pool::instance().take();
    is_inside = true;
    if (has_pool_) Pool::instance().open(threads, threads - 1, help, context, false);
}

HelpScope::~HelpScope() {
    is_inside = was_inside_;
    if (!has_pool_) return;
    Pool::instance().close();
    Pool::instance().give_back();
}

}  // namespace megjit::runtime
