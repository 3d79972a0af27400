#include "tests/card/emulator/timeline.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/card/emulator/device.h"

namespace megjit::card {

bool Timeline::Point::reached() const {
    if (!line_) return true;
    const std::lock_guard lock(line_->mutex_);
    return line_->done_ >= position_;
}

void Timeline::Point::wait() const {
    if (!line_) return;
    std::unique_lock lock(line_->mutex_);
    line_->changed_.wait(lock, [&] { return line_->done_ >= position_; });
}

double Timeline::Point::card_ns() const {
    if (!line_) return 0;
    const std::lock_guard lock(line_->mutex_);
    return *ns_;
}

Timeline::Point Timeline::queue(std::shared_ptr<Work> work, std::vector<Point> after) {
    Point point;
    point.line_ = shared_from_this();
    const std::lock_guard lock(mutex_);
    point.position_ = ++queued_;
    point.ns_ = last_ns_ = std::make_shared<double>(0);
    tasks_.push_back({std::move(work), std::move(after), point.ns_, card_.host_ns()});
    if (!has_thread_) {
        has_thread_ = true;
        std::thread([self = shared_from_this()] { self->run(); }).detach();
    }
    changed_.notify_all();
    return point;
}

Timeline::Point Timeline::last() const {
    Point point;
    point.line_ = std::const_pointer_cast<Timeline>(shared_from_this());
    const std::lock_guard lock(mutex_);
    point.position_ = queued_;
    point.ns_ = last_ns_;
    return point;
}

void Timeline::close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
}

// Half of the tasks start at once, the others up to 0.1 ms later.
void Timeline::delay() {
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    if (random_ & 1) std::this_thread::sleep_for(std::chrono::microseconds(random_ >> 32 & 63));
}

void Timeline::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [&] { return !tasks_.empty() || closed_; });
        if (tasks_.empty()) return;
        Task task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        double start = std::max(clock_ns_, task.floor_ns);
        for (const Point& point : task.after) {
            point.wait();
            start = std::max(start, point.card_ns());
        }
        double took = 0;
        if (task.work) {
            delay();
            if (!card_.failed() || task.work->runs_after_fault()) try {
                    took = task.work->run(card_);
                } catch (const Fault& fault) { card_.fail(fault); }
        }
        task.work.reset();
        task.after.clear();
        lock.lock();
        clock_ns_ = *task.ns = start + took;
        ++done_;
        changed_.notify_all();
    }
}

}  // namespace megjit::card
