// backends/card/stream.h -- streams and events, and what is known of them while they are captured.
#pragma once

#include "backends/card/device.h"

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

struct Event {
    Card* card = nullptr;
    bool timed = true;
    bool recorded = false;
    Timeline::Point point;
    // Recorded in a capture:
    std::shared_ptr<Capture> capture;
    std::vector<Node*> frontier;
};

}  // namespace megjit::card
