// runtime/core/thread_stream.h -- ThreadStream: a stream of the host whose work runs later, on a
// thread of its own, beside what computes. The thread never spins, and its loops are not cut for
// others.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <thread>

#include "runtime/core/stream.h"
#include "runtime/host/mutex.h"
#include "runtime/host/per_process.h"

namespace megjit::runtime {

class ThreadStream : public Stream {
public:
    // `name` says what the lock guards, for errors: "the side stream".
    explicit ThreadStream(const char* name) : mutex_(name) {}
    ~ThreadStream() override;

    void add(std::function<void()> work);

    Ticket record() override;
    // An interrupt (Ctrl-C) of the waiting thread also ends the work that it waits for.
    void synchronize(Ticket ticket) override;
    using Stream::synchronize;
    void wait(Stream& other, Ticket ticket) override;
    void copy(void* to, const void* from, size_t bytes) override;
    void upload(void* to, const void* from, size_t bytes, bool stays) override;
    void download(void* to, const void* from, size_t bytes) override { copy(to, from, bytes); }
    Ticket record_time() override;
    double seconds_between(Ticket begin, Ticket end) const override;

protected:
    virtual void begin_thread() {}  // runs first on the thread
    bool is_stopped() const { return is_stopped_; }  // true: running work must end

private:
    using Time = std::chrono::steady_clock::time_point;
    struct Worker {
        std::thread thread;
        std::condition_variable_any added, ended;
    };

    Worker& worker();
    void queue(std::function<void()> work);
    void run(Worker& worker);
    void stop_all();

    mutable Mutex mutex_;  // guards everything below
    std::deque<std::function<void()>> jobs_;
    Ticket queued_ = 0, ended_ = 0;
    std::exception_ptr error_;  // not thrown yet: until it is, nothing runs
    Ticket failed_ = 0;
    std::map<Ticket, Time> times_;
    std::atomic<bool> is_stopped_ = false;
    bool is_closed_ = false;  // tells the thread to end
    PerProcess<Worker> worker_;
};

}  // namespace megjit::runtime
