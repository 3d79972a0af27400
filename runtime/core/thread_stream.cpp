#include "runtime/core/thread_stream.h"

#include <chrono>
#include <cstring>
#include <mutex>
#include <utility>

#include "runtime/host/interrupt.h"
#include "runtime/host/parallel.h"
#include "runtime/host/quiet_thread.h"

namespace megjit::runtime {
namespace {

constexpr auto kLook = std::chrono::milliseconds(100);  // between two looks for Ctrl-C
constexpr size_t kMostTimes = 65536;  // older readings of the clock are dropped

}  // namespace

// In a child of fork() there is no thread to end.
ThreadStream::~ThreadStream() {
    std::unique_lock lock(mutex_);
    Worker& here = worker();
    if (!here.thread.joinable()) return;
    is_closed_ = true;
    here.added.notify_one();
    lock.unlock();
    here.thread.join();
}

Ticket ThreadStream::record() {
    const std::lock_guard lock(mutex_);
    return queued_;
}

void ThreadStream::synchronize(Ticket ticket) {
    std::unique_lock lock(mutex_);
    while (!worker().ended.wait_for(lock, kLook, [&] { return ended_ >= ticket; })) {
        lock.unlock();
        try {
            check_interrupt();
        } catch (...) {
            stop_all();
            throw;
        }
        lock.lock();
    }
    if (error_ && failed_ <= ticket) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadStream::wait(Stream& other, Ticket ticket) {
    if (!other.is_inline()) add([&other, ticket] { other.synchronize(ticket); });
}

void ThreadStream::copy(void* to, const void* from, size_t bytes) {
    add([=] { std::memcpy(to, from, bytes); });
}

void ThreadStream::upload(void* to, const void* from, size_t bytes, bool stays) {
    copy(to, from, bytes);
    if (!stays) synchronize();
}

void ThreadStream::add(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue(std::move(work));
}

Ticket ThreadStream::record_time() {
    const std::lock_guard lock(mutex_);
    const Ticket ticket = queued_ + 1;
    queue([this, ticket] {
        const std::lock_guard job_lock(mutex_);
        times_[ticket] = std::chrono::steady_clock::now();
        if (times_.size() > kMostTimes) times_.erase(times_.begin());
    });
    return ticket;
}

double ThreadStream::seconds_between(Ticket begin, Ticket end) const {
    const std::lock_guard lock(mutex_);
    const auto a = times_.find(begin), b = times_.find(end);
    if (a == times_.end() || b == times_.end()) return 0;
    return std::chrono::duration<double>(b->second - a->second).count();
}

ThreadStream::Worker& ThreadStream::worker() {  // needs mutex_
    if (worker_.is_inherited()) {  // a child lacks the thread, and those that wait for its work
        jobs_.clear();
        ended_ = queued_;
        error_ = nullptr;
    }
    return *worker_;
}

void ThreadStream::queue(std::function<void()> work) {  // needs mutex_
    Worker& here = worker();
    if (!here.thread.joinable()) here.thread = quiet_thread([this, &here] { run(here); });
    jobs_.push_back(std::move(work));
    ++queued_;
    here.added.notify_one();
}

void ThreadStream::run(Worker& worker) {
    begin_thread();
    const HelpScope alone(1, nullptr, nullptr);
    std::unique_lock lock(mutex_);
    for (;;) {
        worker.added.wait(lock, [&] { return !jobs_.empty() || is_closed_; });
        if (jobs_.empty()) return;
        std::function<void()> job = std::move(jobs_.front());
        jobs_.pop_front();
        const bool runs = !error_ && !is_stopped_;
        lock.unlock();
        std::exception_ptr error;
        if (runs) try {
                job();
            } catch (...) { error = std::current_exception(); }
        job = {};
        lock.lock();
        ++ended_;
        if (error) {
            error_ = error;
            failed_ = ended_;
        }
        worker.ended.notify_all();
    }
}

// Called when the waiting thread was interrupted: running work is told to end, and queued work does
// not run.
void ThreadStream::stop_all() {
    std::unique_lock lock(mutex_);
    is_stopped_ = true;
    worker().ended.wait(lock, [&] { return ended_ == queued_; });
    is_stopped_ = false;
    error_ = nullptr;
}

}  // namespace megjit::runtime
