// tests/card/emulator/timeline.h -- the order of a stream's work: a queue and the thread that runs
// it, later. A point of a timeline is what an event stands for.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/card/emulator/core.h"

namespace megjit::card {

class Card;

// What a stream does: a kernel, a copy, a host function, a whole graph.
class Work {
public:
    virtual ~Work() = default;
    // On the stream's thread. Returns the nanoseconds that a card would take. Throws Fault.
    virtual double run(Card& card) = 0;
    // Host functions are called even when the card has failed: someone may wait for them.
    virtual bool runs_after_fault() const { return false; }
};

class Timeline : public std::enable_shared_from_this<Timeline> {
public:
    class Point {
    public:
        Point() = default;
        bool reached() const;
        void wait() const;
        double card_ns() const;  // on the card's clock; once reached

    private:
        friend class Timeline;
        std::shared_ptr<Timeline> line_;
        uint64_t position_ = 0;
        std::shared_ptr<double> ns_;
    };

    explicit Timeline(Card& card, uint64_t seed) : card_(card), random_(seed * 2654435761u + 1) {}

    // `work` may be null: a point alone. Runs after everything queued before and after `after`.
    Point queue(std::shared_ptr<Work> work, std::vector<Point> after = {});
    Point last() const;  // of all that is queued
    void close();  // the thread ends when it has run everything

private:
    struct Task {
        std::shared_ptr<Work> work;
        std::vector<Point> after;
        std::shared_ptr<double> ns;
        double floor_ns = 0;
    };
    void run();
    void delay();

    Card& card_;
    uint64_t random_;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::deque<Task> tasks_;
    uint64_t queued_ = 0, done_ = 0;
    std::shared_ptr<double> last_ns_ = std::make_shared<double>(0);
    bool has_thread_ = false, closed_ = false;
    double clock_ns_ = 0;  // of the thread alone
};

}  // namespace megjit::card
