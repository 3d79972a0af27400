#include "backends/emulated/worker_stream.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "runtime/error.h"

namespace megjit::emulated {
namespace {

constexpr size_t kClocksKept = size_t{1} << 20;

// What the task that this thread queues next is for.
thread_local std::string next_op, next_where;

// Tells of the task, where the error does not say it itself.
std::exception_ptr named(const std::exception_ptr& error, const std::string& op,
                         const std::string& where) {
    try {
        std::rethrow_exception(error);
    } catch (const runtime::UserError& user) {
        runtime::Message message = user.message;
        if (message.at.empty()) message.at = where;
        return std::make_exception_ptr(runtime::UserError(user.kind, std::move(message)));
    } catch (const std::exception& other) {
        return std::make_exception_ptr(
            runtime::DeviceError(runtime::cat(op, ": ", other.what(), "\n  at:  ", where)));
    } catch (...) { return error; }
}

}  // namespace

WorkerStream::WorkerStream(std::string device, std::shared_ptr<DeviceMemory> memory, uint64_t seed)
    : device_(std::move(device)),
      memory_(std::move(memory)),
      random_(static_cast<uint32_t>(seed)),
      process_(getpid()),
      thread_([this] { work(); }) {}

WorkerStream::~WorkerStream() {
    {
        const std::lock_guard lock(mutex_);
        stops_ = true;
    }
    changed_.notify_all();
    if (process_ == getpid()) thread_.join();
    else thread_.detach();  // a child of fork() has no such thread
}

// ---- queueing

void WorkerStream::refuse_in_child() const {
    if (process_ == getpid()) return;
    throw runtime::DeviceError(runtime::cat(
        device_, " was in use before fork(), and a child cannot use it",
        "\n  fix: start processes with multiprocessing's method \"spawn\", or use the device in "
        "children only"));
}

runtime::Ticket WorkerStream::push(Task task) {
    refuse_in_child();
    task.op = std::exchange(next_op, {});
    task.where = std::exchange(next_where, {});
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(task));
    changed_.notify_all();
    return ++queued_;
}

void WorkerStream::run(std::function<void()> work, double seconds) {
    push({.work = std::move(work), .seconds = seconds});
}

void WorkerStream::name_next(std::string_view op, const std::string& where) {
    next_op = op;
    next_where = where;
}

void WorkerStream::copy(void* to, const void* from, size_t bytes) {
    void* target = memory_->on_host(to);
    const void* source = memory_->on_host(from);
    run([=] { std::memcpy(target, source, bytes); }, static_cast<double>(bytes) / kSpeeds.bytes);
}

void WorkerStream::upload(void* to, const void* from, size_t bytes, bool stays) {
    void* target = memory_->on_host(to);
    const double seconds = static_cast<double>(bytes) / kSpeeds.link_bytes;
    std::vector<std::byte> staged;
    if (!stays) {
        const auto* begin = static_cast<const std::byte*>(from);
        staged.assign(begin, begin + bytes);
    }
    push({.work = [=, staged = std::move(staged)] {
        std::memcpy(target, staged.empty() ? from : staged.data(), bytes);
    }, .seconds = seconds, .runs_anyway = !stays});
}

void WorkerStream::download(void* to, const void* from, size_t bytes) {
    const void* source = memory_->on_host(from);
    run([=] { std::memcpy(to, source, bytes); }, static_cast<double>(bytes) / kSpeeds.link_bytes);
}

void WorkerStream::wait(runtime::Stream& other, Ticket ticket) {
    if (&other == this || other.is_inline()) return;
    auto& source = dynamic_cast<WorkerStream&>(other);
    push({.work = [this, &source, ticket] {
        std::unique_lock lock(source.mutex_);
        source.changed_.wait(lock, [&] { return source.done_ >= ticket || source.stops_; });
        const double then = source.clock_at(ticket);
        lock.unlock();
        const std::lock_guard own(mutex_);
        now_ = std::max(now_, then);
    }, .runs_anyway = true});
}

// ---- waiting

runtime::Ticket WorkerStream::record() {
    refuse_in_child();
    const std::lock_guard lock(mutex_);
    return queued_;
}

void WorkerStream::synchronize(Ticket ticket) {
    refuse_in_child();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= ticket; });
    if (!has_failed_ || lost_.back().first > ticket) return;
    has_failed_ = false;
    lost_.back().last = queued_;
    std::rethrow_exception(lost_.back().error);
}

void WorkerStream::wait_until_idle() noexcept {
    if (process_ != getpid()) return;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ == queued_; });
}

const WorkerStream::Lost* WorkerStream::range_of(Ticket ticket) const {
    for (const Lost& range : lost_)
        if (range.first <= ticket && ticket <= range.last) return &range;
    return nullptr;
}

std::exception_ptr WorkerStream::loss(Ticket ticket) {
    refuse_in_child();
    const std::lock_guard lock(mutex_);
    const Lost* range = range_of(ticket);
    // What nobody was told of yet is told by synchronize().
    const bool is_told = range && !(has_failed_ && range == &lost_.back());
    return is_told ? range->error : nullptr;
}

runtime::Ticket WorkerStream::record_time() { return push({.work = nullptr}); }

double WorkerStream::seconds_between(Ticket begin, Ticket end) const {
    refuse_in_child();
    const std::lock_guard lock(mutex_);
    return clock_at(end) - clock_at(begin);
}

double WorkerStream::clock_at(Ticket ticket) const {
    const Ticket first = done_ - std::min<Ticket>(done_, clocks_.size()) + 1;
    if (ticket < first || ticket > done_) return ticket > done_ ? now_ : 0;
    return clocks_[static_cast<size_t>(ticket - first)];
}

// ---- the thread

void WorkerStream::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return stops_ || !queue_.empty(); });
        if (stops_) return;
        Task task = std::move(queue_.front());
        queue_.pop_front();
        const Ticket ticket = done_ + 1;
        const bool runs = task.runs_anyway || !range_of(ticket);
        const uint32_t dice = random_();
        lock.unlock();
        if (dice % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(dice / 8 % 200));
        if (runs) run_one(task, ticket);
        task = {};  // what it holds goes before it is past
        lock.lock();
        done_ = ticket;
        clocks_.push_back(now_);
        if (clocks_.size() > kClocksKept) clocks_.pop_front();
        changed_.notify_all();
    }
}

void WorkerStream::run_one(Task& task, Ticket ticket) {
    std::exception_ptr error;
    try {
        if (task.work) task.work();
    } catch (...) { error = named(std::current_exception(), task.op, task.where); }
    const std::lock_guard lock(mutex_);
    now_ += task.seconds;
    if (!error) return;
    has_failed_ = true;
    lost_.push_back({ticket, std::numeric_limits<Ticket>::max(), error});
}

}  // namespace megjit::emulated
