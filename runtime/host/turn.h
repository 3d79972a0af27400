// runtime/host/turn.h -- Turn: it admits one thread at a time, and the thread whose turn it is may
// wait for the host's lock, for a peer or for a device, as a run of a program or an exchange with
// other processes does. Unlike a mutex, no thread waits for it while it holds the host's lock,
// Ctrl-C ends the wait, and fork() does not wait for it: in a child, a turn that another thread had
// taken is refused with an error.
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
    // `what` goes on while the turn is taken, for errors: "a run of a traced function".
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

    // Waits until nobody else is on turn. UserError where this very thread is on turn, or a thread
    // that fork() left behind.
    [[nodiscard]] Held take();
    [[nodiscard]] std::optional<Held> try_take();

private:
    void end();
    void refuse_own_and_abandoned() const;

    const char* const what_;
    std::atomic<uint64_t> owner_{0};  // thread and process on turn; 0: nobody
    std::atomic<int> waiting_{0};  // threads that wait, even if fork() left them behind
    Mutex mutex_{"a turn"};  // guards the members below, for a moment
    PerProcess<std::condition_variable_any> ended_;
};

}  // namespace megjit::runtime
