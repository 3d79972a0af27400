#include "codegen/compile_queue.h"

#include <mutex>

#include "runtime/host/interrupt.h"
#include "runtime/host/quiet_thread.h"

namespace megjit::codegen {

CompileQueue::~CompileQueue() {
    stop(std::chrono::milliseconds(0));
    if (worker_->thread.joinable()) worker_->thread.join();
}

bool CompileQueue::add(Job job) {
    const std::lock_guard lock(mutex_);
    if (stopped_ || jobs_.size() >= kMaxJobs) return false;
    jobs_.push_back(std::move(job));
    start();
    worker_->added.notify_one();
    return true;
}

void CompileQueue::start() {
    if (worker_->thread.joinable()) return;
    worker_->thread = runtime::quiet_thread([this, worker = &*worker_] { run(*worker); });
}

void CompileQueue::run(Worker& worker) {
    for (;;) {
        {
            std::unique_lock lock(mutex_);
            worker.added.wait(lock, [&] { return stopped_ || !jobs_.empty(); });
            if (stopped_) return;
        }
        const std::lock_guard running(running_);
        Job job;
        {
            const std::lock_guard lock(mutex_);
            if (stopped_) return;
            if (jobs_.empty()) continue;
            job = std::move(jobs_.front());
            jobs_.pop_front();
            busy_ = true;
        }
        job();
        job = {};
        const std::lock_guard lock(mutex_);
        busy_ = false;
        worker.ended.notify_all();
    }
}

void CompileQueue::wait(const std::function<bool()>& done, Clock::time_point until) {
    constexpr std::chrono::milliseconds kSlice{50};
    for (;;) {
        {
            std::unique_lock lock(mutex_);
            if (stopped_) return;
            if (!jobs_.empty()) start();  // a child of fork() inherits jobs, but no thread
            worker_->ended.wait_until(lock, std::min(until, Clock::now() + kSlice),
                                      [&] { return stopped_ || done(); });
            if (stopped_ || done()) return;
        }
        if (Clock::now() >= until) return;
        runtime::check_interrupt();
    }
}

void CompileQueue::stop(std::chrono::milliseconds grace) {
    std::unique_lock lock(mutex_);
    stopped_ = true;
    jobs_.clear();
    worker_->added.notify_all();
    worker_->ended.notify_all();
    worker_->ended.wait_for(lock, grace, [&] { return !busy_; });
    const bool is_idle = !busy_ && running_.try_lock();
    if (!is_idle) return;
    running_.unlock();
    lock.unlock();  // the thread needs it before it ends
    if (worker_->thread.joinable()) worker_->thread.join();
}

}  // namespace megjit::codegen
