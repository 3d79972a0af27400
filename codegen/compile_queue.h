// codegen/compile_queue.h -- CompileQueue: one thread that compiles kernels beside execution. LLVM
// and the linkers that it uses serve one request at a time, so a second thread would only wait.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <thread>

#include "runtime/host/per_process.h"

namespace megjit::codegen {

// A fork waits for the running job; a child starts a thread of its own when it needs one.
class CompileQueue {
public:
    using Clock = std::chrono::steady_clock;
    using Job = std::function<void()>;  // must not throw
    static constexpr size_t kMaxJobs = 4096;

    // `running` is locked from before a job leaves the queue until it has ended.
    explicit CompileQueue(runtime::Mutex& running) : running_(running) {}
    ~CompileQueue();  // drops jobs that wait

    bool add(Job job);  // false: the queue is full, or stopped
    // Returns when `done` holds (asked after each job), `until` has passed or the queue was
    // stopped. Calls runtime::check_interrupt() every 50 ms, which may throw.
    void wait(const std::function<bool()>& done, Clock::time_point until);
    // Drops the jobs that wait and gives the running one some time to end; nothing runs afterwards.
    void stop(std::chrono::milliseconds grace);

    bool is_stopped() const { return stopped_; }

private:
    struct Worker {
        std::thread thread;
        std::condition_variable_any added, ended;
    };
    void start();  // with mutex_ held
    void run(Worker& worker);

    runtime::Mutex& running_;
    runtime::Mutex mutex_{"kernels that wait"};  // guards everything below
    std::deque<Job> jobs_;
    std::atomic<bool> stopped_{false};  // written under mutex_
    bool busy_ = false;
    runtime::PerProcess<Worker> worker_;
};

}  // namespace megjit::codegen
