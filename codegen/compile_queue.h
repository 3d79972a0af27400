// codegen/compile_queue.h -- CompileQueue: one thread that compiles kernels beside execution. LLVM
// and the linkers behind it serve one request at a time, so a second thread would only wait.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace megjit::codegen {

// Fork-safe: who forks takes `running` first (so that no job is in the middle of something), then
// calls before_fork(), and after_fork() on both sides; the child starts a thread of its own when it
// needs one.
class CompileQueue {
public:
    using Clock = std::chrono::steady_clock;
    using Job = std::function<void()>;  // must not throw
    static constexpr size_t kMaxJobs = 4096;

    // `running` is held from before a job leaves the queue until it has ended.
    explicit CompileQueue(std::mutex& running) : running_(running) {}
    ~CompileQueue();  // drops what waits

    bool add(Job job);  // false: it is full, or stopped
    // Returns when `done` holds (asked after each job), `until` has passed or the queue was
    // stopped. Calls runtime::check_interrupt() every 50 ms, which may throw.
    void wait(const std::function<bool()>& done, Clock::time_point until);
    // Drops what waits and gives the running job some time to end; nothing is run afterwards.
    void stop(std::chrono::milliseconds grace);

    bool is_stopped() const { return stopped_; }

    void before_fork() { mutex_.lock(); }
    void after_fork(bool in_child);

private:
    // What a forked child must not touch again: its thread is gone, and conditions remember waiters
    // that are.
    struct Worker {
        std::thread thread;
        std::condition_variable added, ended;
    };
    void start();  // with mutex_
    void run(Worker& worker);

    std::mutex& running_;
    std::mutex mutex_;  // of all below
    std::deque<Job> jobs_;
    std::atomic<bool> stopped_{false};  // written with mutex_
    bool busy_ = false;
    std::unique_ptr<Worker> worker_ = std::make_unique<Worker>();
};

}  // namespace megjit::codegen
