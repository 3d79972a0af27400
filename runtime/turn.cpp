#include "runtime/turn.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <mutex>

#include "runtime/error.h"
#include "runtime/host_lock.h"
#include "runtime/interrupt.h"

namespace megjit::runtime {
namespace {

constexpr auto kLookAround =
    std::chrono::milliseconds(100);  // how often who waits looks for Ctrl-C

// Forks between this process and the first one.
std::atomic<uint64_t> fork_count{0};
[[maybe_unused]] const int kCountForks = pthread_atfork(nullptr, nullptr, [] { ++fork_count; });

}  // namespace

uint64_t forks() { return fork_count; }

Turn::~Turn() {
    if (process_ != forks())
        static_cast<void>(ended_.release());  // it would wait for waiters that are gone
}

void Turn::look_around() {
    if (process_ == forks()) return;
    process_ = forks();
    static_cast<void>(ended_.release());
    ended_ = std::make_unique<std::condition_variable_any>();
    waiting_ = 0;
    is_abandoned_ = is_taken_ && owner_ != std::this_thread::get_id();
}

bool Turn::begin() {
    look_around();
    if (is_abandoned_)
        user_error(
            {.what = cat(what_, " was under way in another thread when this process was forked"),
             .why = "that thread is not in this process, and what it had begun cannot be ended",
             .fix = "fork while no other thread is in it, or start processes by spawn"},
            ErrorKind::runtime);
    if (is_taken_ && owner_ == std::this_thread::get_id())
        user_error({.what = cat(what_, " is under way in this very thread"),
                    .why = "a signal's handler or a callback came back to it",
                    .fix = "call it when it has ended"},
                   ErrorKind::runtime);
    if (is_taken_) return false;
    is_taken_ = true;
    owner_ = std::this_thread::get_id();
    return true;
}

std::optional<Turn::Held> Turn::try_take() {
    const std::lock_guard lock(mutex_);
    if (!begin()) return {};
    return Held(*this);
}

Turn::Held Turn::take() {
    if (auto held = try_take()) return std::move(*held);
    const WithoutHostLock others_run;
    for (;;) {
        {
            std::unique_lock lock(mutex_);
            if (begin()) return Held(*this);
            ++waiting_;
            ended_->wait_for(lock, kLookAround, [this] { return !is_taken_; });
            --waiting_;
            if (begin()) return Held(*this);
        }
        check_interrupt();
    }
}

void Turn::end() {
    const std::lock_guard lock(mutex_);
    look_around();
    is_taken_ = false;
    if (waiting_ > 0) ended_->notify_one();
}

}  // namespace megjit::runtime
