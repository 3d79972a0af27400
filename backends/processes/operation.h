// backends/processes/operation.h -- Operation: one call of one member of a group, while the call
// runs. Peers are ranks of the group here.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "backends/processes/world.h"

namespace megjit::processes {

// The address `bytes` bytes after a place.
template <std::integral Bytes>
std::byte* behind(void* start, Bytes bytes) {
    return static_cast<std::byte*>(start) + bytes;
}
template <std::integral Bytes>
const std::byte* behind(const void* start, Bytes bytes) {
    return static_cast<const std::byte*>(start) + bytes;
}

// The processes that take part, in the order of ranks.
struct Group {
    World& world;
    std::vector<int> members;
    int rank = 0;  // rank of this process
    std::optional<bool> reads = {};  // can all members read what the others offer?
    std::vector<std::byte> scratch = {};
    int size() const { return static_cast<int>(members.size()); }
};

// When sends that World::held() keeps are made: before an operation, or together with it if it is a
// message itself, so that two processes that send to each other before they receive do not wait for
// each other.
enum class HeldSends : uint8_t { before, joined };

class Operation {
public:
    Operation(Group& group, runtime::CommunicatorCall call, HeldSends held = HeldSends::before);

    int rank() const { return group_.rank; }
    int size() const { return group_.size(); }
    template <class Fn>
    void for_others(Fn&& fn) const {
        for (int step = 1; step < size(); ++step) fn((rank() + step) % size());
    }

    // Messages are collected, and exchanged in run().
    void send(int peer, const void* data, size_t bytes);
    void receive(int peer, void* data, size_t bytes);
    void run();
    // After meet(): calls `moves` until it returns true.
    void accompany(const std::function<bool()>& moves);
    // Does the World hold back sends? Then the sends of this operation are kept, with their bytes.
    bool is_held();
    // Returns when all members are here.
    void meet();
    std::byte* scratch(size_t bytes);

    // The offers of all members, valid until all meet again. Nothing where vectors of `bytes` bytes
    // are better sent, or a member cannot read the others' `data`, or `next`, which they will offer
    // then.
    using Offers = std::vector<Offer>;
    std::optional<Offers> offers(size_t bytes, const void* data, const void* next = nullptr);
    // Runs body(lo, hi) over parts of [0, bytes) that stay in a cache, on several threads; `body`
    // reads the bytes [lo, hi) of a peer's offer by read_offer.
    void for_pieces(size_t bytes, const std::function<void(size_t lo, size_t hi)>& body);
    void read_offer(const Offers& offers, int peer, size_t at, void* to, size_t bytes);

private:
    bool all_read();
    Offers exchanged(Offer own);
    int member(int peer) const { return group_.members[static_cast<size_t>(peer)]; }

    Group& group_;
    const runtime::CommunicatorCall call_;
    const runtime::Turn::Held turn_;
    std::vector<runtime::OutgoingBytes> sends_;
    std::vector<runtime::IncomingBytes> receives_;
    std::vector<World::HeldSend> held_;  // sends of earlier calls, which sends_ includes
    std::atomic<int> gone_ = -1;  // the peer whose offer could not be read
};

// From now on sends are made at once, or (`is_on`) wait for the next receive. Waiting sends to
// `peers`, ranks of the world, are made now; all where it is empty.
void hold_sends(World& world, bool is_on, const std::vector<int>& peers);

}  // namespace megjit::processes
