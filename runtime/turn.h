// runtime/turn.h -- Turn: one at a time, where whoever is on turn may wait for the host's lock, for
// a peer or for a device: a run of a program, an exchange with other processes. Unlike a mutex it
// is never waited for with the host's lock held, Ctrl-C ends the wait, and fork() does not wait for
// it: a child where it was taken by another thread is told so.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/leaf_mutex.h"

namespace megjit::runtime {

uint64_t forks();  // between the process that loaded megjit and this one

class Turn {
public:
    // `what` is under way while it is taken, for errors: "a run of a traced function".
    explicit Turn(const char* what) : what_(what) {}
    ~Turn();
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
    void look_around();  // with mutex_: after a fork
    bool begin();  // with mutex_
    void end();

    const char* const what_;
    LeafMutex mutex_;  // of all below, for a moment
    bool is_taken_ = false, is_abandoned_ = false;
    std::thread::id owner_;
    int waiting_ = 0;  // threads
    uint64_t process_ = 0;  // in which it was looked at last
    std::unique_ptr<std::condition_variable_any> ended_ =
        std::make_unique<std::condition_variable_any>();
};

}  // namespace megjit::runtime
