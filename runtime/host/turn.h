// runtime/host/turn.h -- Turn: one thread at a time, where the thread whose turn it is may wait for
// the host's lock, for a peer or for a device: a run of a program, an exchange with other
// processes. Unlike a mutex it is never waited for with the host's lock held, Ctrl-C ends the wait,
// and fork() does not wait for it: a child where it was taken by another thread is told so.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <optional>
#include <utility>

#include "runtime/host/per_process.h"

namespace megjit::runtime {

class Turn {
public:
    // `what` is under way while it is taken, for errors: "a run of a traced function".
    explicit Turn(const char* what) : what_(what) {}
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

    class Held {
    public:
        Held(Held&& other) noexcept : turn_(std::exchange(other.turn_, nullptr)) {}
        Held& operator=(Held&&) = delete;
        ~Held() {
            if (turn_) turn_->end();
        }

    private:
        friend class Turn;
        explicit Held(Turn& turn) : turn_(&turn) {}
        Turn* turn_;
    };

    // Waits until nobody else is on turn. UserError where this very thread is, or a thread that
    // fork() left behind.
    [[nodiscard]] Held take();
    [[nodiscard]] std::optional<Held> try_take();

private:
    void end();
    void refuse_own_and_abandoned() const;

    const char* const what_;
    std::atomic<uint64_t> owner_{0};  // thread and process that are on turn; 0: nobody
    std::atomic<int> waiting_{0};  // threads, those that fork() left behind included
    Mutex mutex_{"a turn"};  // of what follows, for a moment
    PerProcess<std::condition_variable_any> ended_;
};

}  // namespace megjit::runtime
