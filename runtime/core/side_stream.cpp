#include "runtime/core/side_stream.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/host/error.h"
#include "runtime/host/interrupt.h"
#include "runtime/host/parallel.h"
#include "runtime/host/per_process.h"
#include "runtime/host/quiet_thread.h"

namespace megjit::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(100);  // how often who waits looks for Ctrl-C
constexpr size_t kMostTimes = 65536;  // older looks at the clock are forgotten

thread_local bool is_the_side_thread = false;
thread_local std::shared_ptr<BesideWork> beside;  // of RunsBeside

class SideStream final : public Stream {
public:
    static SideStream& instance() {
        static auto* one = new SideStream;  // never destroyed: as devices
        return *one;
    }

    Ticket record() override {
        const std::lock_guard lock(mutex_);
        return queued_;
    }

    void synchronize(Ticket ticket) override {
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
    using Stream::synchronize;

    void wait(Stream& other, Ticket ticket) override {
        if (!other.is_inline()) add([&other, ticket] { other.synchronize(ticket); });
    }

    void copy(void* to, const void* from, size_t bytes) override {
        add([=] { std::memcpy(to, from, bytes); });
    }
    void upload(void* to, const void* from, size_t bytes, bool stays) override {
        copy(to, from, bytes);
        if (!stays) synchronize();
    }
    void download(void* to, const void* from, size_t bytes) override { copy(to, from, bytes); }

    void add(std::function<void()> work) {
        const std::lock_guard lock(mutex_);
        start();
        jobs_.push_back(std::move(work));
        ++queued_;
        worker().added.notify_one();
    }

    Ticket record_time() override {
        const std::lock_guard lock(mutex_);
        start();
        const Ticket ticket = ++queued_;
        jobs_.push_back([this, ticket] {
            const std::lock_guard job_lock(mutex_);
            times_[ticket] = Clock::now();
            if (times_.size() > kMostTimes) times_.erase(times_.begin());
        });
        worker().added.notify_one();
        return ticket;
    }
    double seconds_between(Ticket begin, Ticket end) const override {
        const std::lock_guard lock(mutex_);
        const auto a = times_.find(begin), b = times_.find(end);
        if (a == times_.end() || b == times_.end()) return 0;
        return std::chrono::duration<double>(b->second - a->second).count();
    }

private:
    struct Worker {
        std::thread thread;
        std::condition_variable_any added, ended;
    };

    Worker& worker() {  // with mutex_
        if (worker_.is_inherited()) {  // a child lacks the thread, and whom it was to serve
            jobs_.clear();
            ended_ = queued_;
            error_ = nullptr;
        }
        return *worker_;
    }
    void start() {  // with mutex_
        Worker& here = worker();
        if (here.thread.joinable()) return;
        here.thread = quiet_thread([this, &here] { run(here); });
    }

    [[noreturn]] void run(Worker& worker);

    // Who waited was interrupted: what runs for it ends, and what was to follow does not run.
    void stop_all() {
        std::unique_lock lock(mutex_);
        is_stopped_ = true;
        worker().ended.wait(lock, [&] { return ended_ == queued_; });
        is_stopped_ = false;
        error_ = nullptr;
    }

    mutable Mutex mutex_{"the side stream"};  // of all below
    std::deque<std::function<void()>> jobs_;
    Ticket queued_ = 0, ended_ = 0;
    std::exception_ptr error_;  // not told yet: until then nothing runs
    Ticket failed_ = 0;
    std::map<Ticket, Clock::time_point> times_;
    std::atomic<bool> is_stopped_{false};
    PerProcess<Worker> worker_;
};

void SideStream::run(Worker& worker) {
    is_the_side_thread = true;
    set_own_interrupt_check([] {
        if (instance().is_stopped_)
            user_error({.what = "the wait for other processes was interrupted"},
                       ErrorKind::runtime);
    });
    const HelpScope alone(1, nullptr, nullptr);
    std::unique_lock lock(mutex_);
    for (;;) {
        worker.added.wait(lock, [&] { return !jobs_.empty(); });
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

}  // namespace

Stream& side_stream() { return SideStream::instance(); }

void run_on_host(Stream& stream, std::function<void()> work) {
    if (beside) {
        beside->is_queued = true;
        return SideStream::instance().add(
            [work = std::move(work), done = beside, reads = std::move(beside->reads)] {
            work();
            done->has_run = true;
        });
    }
    if (&stream == &SideStream::instance()) return SideStream::instance().add(std::move(work));
    stream.synchronize();
    work();
}

RunsBeside::RunsBeside(std::shared_ptr<BesideWork> work) { beside = std::move(work); }
RunsBeside::~RunsBeside() { beside = nullptr; }

bool is_side_thread() { return is_the_side_thread; }

}  // namespace megjit::runtime
