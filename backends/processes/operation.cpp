#include "backends/processes/operation.h"

#include <algorithm>
#include <utility>

#include "runtime/core/side_stream.h"
#include "runtime/host/debug.h"
#include "runtime/host/parallel.h"

namespace megjit::processes {

namespace {

// From this size on, three small exchanges cost less than a copy.
constexpr size_t kOfferedBytes = 128 << 10;
constexpr int64_t kPieceBytes = 128 << 10;
constexpr int64_t kThreadBytes = 8 << 20;  // processes of a machine keep its cores busy already

// Processes meet in one order: work queued on the side stream goes first.
runtime::Turn::Held in_turn(World& world) {
    if (!runtime::is_side_thread()) runtime::side_stream().synchronize();
    return world.turn().take();
}

void send_held(World& world, const std::vector<int>& peers = {}) {
    std::vector<World::HeldSend> sent, left;
    for (World::HeldSend& each : world.held()) {
        const bool is_one = peers.empty() || std::ranges::find(peers, each.peer) != peers.end();
        (is_one ? sent : left).push_back(std::move(each));
    }
    world.held() = std::move(left);
    if (sent.empty()) return;
    std::vector<runtime::OutgoingBytes> parts;
    for (const World::HeldSend& each : sent) parts.push_back(each.part());
    world.exchange(sent.front().call, parts, {});
}

}  // namespace

Operation::Operation(Group& group, runtime::CommunicatorCall call, HeldSends held)
    : group_(group), call_(std::move(call)), turn_(in_turn(group.world)) {
    std::vector<World::HeldSend>& waiting = group_.world.held();
    if (waiting.empty()) return;
    if (held == HeldSends::joined && waiting.front().call.what == call_.what)
        held_ = std::exchange(waiting, {});
    else send_held(group_.world);
    for (const World::HeldSend& each : held_) sends_.push_back(each.part());
}

bool Operation::is_held() {
    if (!group_.world.holds_sends()) return false;
    for (size_t i = held_.size(); i < sends_.size(); ++i) {
        const auto* bytes = static_cast<const std::byte*>(sends_[i].data);
        held_.push_back({call_, sends_[i].peer, {bytes, bytes + sends_[i].bytes}});
    }
    group_.world.held() = std::move(held_);
    return true;
}

void hold_sends(World& world, bool is_on, const std::vector<int>& peers) {
    const runtime::Turn::Held turn = in_turn(world);
    world.set_holds_sends(is_on);
    send_held(world, peers);
}

void Operation::send(int peer, const void* data, size_t bytes) {
    sends_.push_back({member(peer), data, bytes});
}
void Operation::receive(int peer, void* data, size_t bytes) {
    receives_.push_back({member(peer), data, bytes});
}
void Operation::run() {
    group_.world.exchange(call_, sends_, receives_);
    sends_.clear(), receives_.clear();
}

void Operation::meet() {
    for_others([&](int peer) { send(peer, nullptr, 0), receive(peer, nullptr, 0); });
    run();
}

void Operation::accompany(const std::function<bool()>& moves) {
    group_.world.accompany(call_, group_.members, moves);
}

std::byte* Operation::scratch(size_t bytes) {
    if (group_.scratch.size() < bytes) group_.scratch.resize(bytes);
    return group_.scratch.data();
}

// ---- what lies in the memory of others

std::optional<Operation::Offers> Operation::offers(size_t bytes, const void* data,
                                                   const void* next) {
    if (bytes < kOfferedBytes) return {};
    if (!group_.reads) group_.reads = all_read();
    if (!*group_.reads) return {};
    Offer own = group_.world.offer(data);
    if (next && group_.world.offer(next).address == 0) own.address = 0;
    Offers all = exchanged(own);
    if (std::ranges::any_of(all, [](const Offer& each) { return each.address == 0; })) return {};
    return all;
}

bool Operation::all_read() {
    const bool wanted = runtime::debug().cross_memory && group_.world.reads();
    if (wanted) permit_siblings();
    const int probe = rank();
    const Offers all = exchanged(group_.world.offer(&probe));
    char good = wanted;
    for_others([&](int peer) {
        int theirs = -1;
        good &= group_.world.is_near(member(peer)) &&
                read_offered(all[static_cast<size_t>(peer)], 0, &theirs, sizeof theirs) &&
                theirs == peer;
    });
    std::vector<char> verdicts(static_cast<size_t>(size()), good);
    for_others([&](int peer) {
        send(peer, &good, 1), receive(peer, &verdicts[static_cast<size_t>(peer)], 1);
    });
    run();
    return std::ranges::all_of(verdicts, [](char each) { return each != 0; });
}

Operation::Offers Operation::exchanged(Offer own) {
    Offers all(static_cast<size_t>(size()), own);
    for_others([&](int peer) {
        send(peer, &own, sizeof own);
        receive(peer, &all[static_cast<size_t>(peer)], sizeof own);
    });
    run();
    return all;
}

void Operation::for_pieces(size_t bytes, const std::function<void(size_t lo, size_t hi)>& body) {
    runtime::parallel_for(static_cast<int64_t>(bytes), kThreadBytes, kPieceBytes,
                          [&](int64_t lo, int64_t hi) {
        for (; lo < hi && gone_ < 0; lo += kPieceBytes)
            body(static_cast<size_t>(lo), static_cast<size_t>(std::min(hi, lo + kPieceBytes)));
    });
    if (gone_ >= 0) group_.world.lose(member(gone_));
}

void Operation::read_offer(const Offers& offers, int peer, size_t at, void* to, size_t bytes) {
    if (!read_offered(offers[static_cast<size_t>(peer)], at, to, bytes)) gone_ = peer;
}

}  // namespace megjit::processes
