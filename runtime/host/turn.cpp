#include "runtime/host/turn.h"

#include <pthread.h>

#include <atomic>
#include <chrono>
#include <mutex>

#include "runtime/host/error.h"
#include "runtime/host/host_lock.h"
#include "runtime/host/interrupt.h"

namespace megjit::runtime {
namespace {

constexpr auto kLookAround =
    std::chrono::milliseconds(100);  // how often a waiting thread looks for Ctrl-C

// One word holds a thread and its process: pointers have 48 bits.
constexpr int kThreadBits = 48;
uint64_t thread_of(uint64_t owner) { return owner << (64 - kThreadBits); }
uint64_t process_of(uint64_t owner) { return owner >> kThreadBits; }
uint64_t this_thread() {
    const auto thread = reinterpret_cast<uint64_t>(pthread_self());
    return (forks() << kThreadBits) | (thread & ((uint64_t{1} << kThreadBits) - 1));
}

}  // namespace

void Turn::refuse_own_and_abandoned() const {
    const uint64_t owner = owner_, here = this_thread();
    if (owner == 0) return;
    if (thread_of(owner) == thread_of(here))
        user_error({.what = cat(what_, " is under way in this very thread"),
                    .why = "a signal's handler or a callback came back to it",
                    .fix = "call it when it has ended"},
                   ErrorKind::runtime);
    if (process_of(owner) != process_of(here))
        user_error(
            {.what = cat(what_, " was under way in another thread when this process was forked"),
             .why = "that thread is not in this process, and what it had begun cannot be ended",
             .fix = "fork while no other thread is in it, or start processes by spawn"},
            ErrorKind::runtime);
}

std::optional<Turn::Held> Turn::try_take() {
    uint64_t nobody = 0;
    if (owner_.compare_exchange_strong(nobody, this_thread())) return Held(*this);
    refuse_own_and_abandoned();
    return {};
}

Turn::Held Turn::take() {
    if (auto held = try_take()) return std::move(*held);
    const WithoutHostLock others_run;
    for (;;) {
        {
            std::unique_lock lock(mutex_);
            ++waiting_;
            ended_->wait_for(lock, kLookAround, [this] { return owner_ == 0; });
            --waiting_;
        }
        if (auto held = try_take()) return std::move(*held);
        check_interrupt();
    }
}

void Turn::end() {
    owner_ = 0;
    if (waiting_ == 0) return;
    const std::lock_guard lock(mutex_);
    ended_->notify_one();
}

}  // namespace megjit::runtime
