// tests/card/emulator/stream.h -- streams and events, and what is known of them while they are
// captured.
#pragma once

#include <mutex>

#include "tests/card/emulator/device.h"

namespace megjit::card {

class Capture;
struct Node;

class Stream {
public:
    Stream(Card& card, bool blocking, int priority, uint64_t serial)
        : card(card),
          blocking(blocking),
          priority(priority),
          serial(serial),
          line(std::make_shared<Timeline>(card, serial)) {}

    Card& card;
    const bool blocking;
    const int priority;
    const uint64_t serial;
    const std::shared_ptr<Timeline> line;

    // ---- while capturing
    std::shared_ptr<Capture> capture;
    std::vector<Node*> frontier;  // what the next node comes after
};

// One thread may record again what another waits for: that one waits for what it saw when it began.
class Event {
public:
    struct Record {
        bool is_there = false;
        Timeline::Point point = {};
        // In a capture:
        std::shared_ptr<Capture> capture = {};
        std::vector<Node*> frontier = {};
    };

    Event(Card& card, bool timed) : card(card), timed(timed) {}
    void set(Record record) {
        const std::lock_guard lock(mutex_);
        last_ = std::move(record);
    }
    Record last() const {
        const std::lock_guard lock(mutex_);
        return last_;
    }

    Card& card;
    const bool timed;

private:
    mutable std::mutex mutex_;
    Record last_;
};

}  // namespace megjit::card
