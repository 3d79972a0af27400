#include "backends/processes/world.h"

#include <netdb.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "runtime/core/side_stream.h"
#include "runtime/host/error.h"
#include "runtime/host/interrupt.h"

namespace megjit::processes {

using runtime::cat;
using Clock = std::chrono::steady_clock;

namespace {

constexpr uint32_t kMagic = 0x314A474D;
constexpr size_t kMostText = 2000;
// The time that a small message takes on one machine; a longer spin takes the core from the
// answering process.
constexpr auto kSpin = std::chrono::microseconds(50);
constexpr int kLookMilliseconds = 100;  // how often a sleeping thread looks for Ctrl-C
// Other means of moving bytes may make progress only when they are asked.
constexpr auto kNap = std::chrono::microseconds(20);
constexpr auto kOnTheWay =
    std::chrono::seconds(2);  // a finished process may end before its last bytes arrive

uint64_t hash_of(std::string_view text) {  // FNV-1a: the same in every process
    uint64_t hash = 0xCBF29CE484222325u;
    for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
    return hash;
}

}  // namespace

World::World(int rank, std::vector<int> sockets, WorldOptions options)
    : rank_(rank),
      peers_(sockets.size()),
      options_(std::move(options)),
      seconds_(options_.seconds) {
    for (size_t i = 0; i < sockets.size(); ++i)
        if (static_cast<int>(i) != rank) peers_[i].socket = sockets[i];
}

World::~World() { close(); }

void World::close() {
    if (failure_.empty()) failure_ = "the process group was closed";
    seal_.break_up();
    for (Peer& peer : peers_) {
        if (peer.socket >= 0) ::close(peer.socket);
        peer.socket = -1;
    }
}

void World::end() {
    is_ending_ = true;
    if (const auto turn = turn_.try_take()) close();
}

// ---- errors

std::string World::here() const {
    return cat(call_->what, call_->where.empty() ? "" : " at ", call_->where);
}

void World::fail(std::string what, std::string why) {
    failure_ = what;
    if (options_.on_failure)
        if (std::string cause = options_.on_failure(why.empty() ? what : cat(what, "\n", why));
            !cause.empty())
            why = cat(why, why.empty() ? "" : "\n", cause);
    close();
    runtime::user_error({.what = std::move(what), .why = std::move(why), .at = call_->where},
                        runtime::ErrorKind::runtime);
}

void World::lose(const Peer& peer, int error) {
    fail(cat("rank ", rank_of(peer), " is gone, which rank ", rank_, " waits for in ", here()),
         cat(error ? std::strerror(error) : "its connection was closed",
             peer.last_call.empty() ? "" : "; the last call of both was " + peer.last_call));
}

void World::refuse_ended(const runtime::CommunicatorCall& call) const {
    if (!failure_.empty())
        runtime::user_error({.what = cat(call.what, ": this process group has ended"),
                             .why = failure_,
                             .at = call.where},
                            runtime::ErrorKind::runtime);
}

// ---- for other ways of moving bytes

bool World::is_near(int rank) const {
    return rank == rank_ || processes::is_near(peers_[static_cast<size_t>(rank)].socket);
}

std::string World::address() const {
    int socket = -1;
    for (int rank = 0; rank < size(); ++rank)
        if (rank != rank_ && (socket < 0 || !is_near(rank)))
            socket = peers_[static_cast<size_t>(rank)].socket;
    sockaddr_storage own{};
    socklen_t bytes = sizeof own;
    char text[NI_MAXHOST] = "";
    auto* address = reinterpret_cast<sockaddr*>(&own);
    if (getsockname(socket, address, &bytes) != 0 ||
        getnameinfo(address, bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0)
        throw runtime::DeviceError("this process has no address");
    return text;
}

std::string World::lost(std::span<const int> ranks) {
    const auto turn = turn_.try_take();
    if (!turn) return {};
    if (!failure_.empty()) return failure_;
    const auto gone = std::ranges::find_if(ranks, [this](int rank) { return is_gone(rank); });
    return gone == ranks.end() ? std::string() : cat("rank ", *gone, " is gone");
}

bool World::is_gone(int rank) const {
    if (rank == rank_) return false;
    pollfd polled{peers_[static_cast<size_t>(rank)].socket, POLLRDHUP, 0};
    return poll(&polled, 1, 0) > 0;
}

void World::accompany(const runtime::CommunicatorCall& call, std::span<const int> ranks,
                      const std::function<bool()>& moves) {
    refuse_ended(call);
    call_ = &call;
    const auto begin = Clock::now();
    auto looked = begin, lost = Clock::time_point::max();
    try {
        while (!moves()) {
            const auto now = Clock::now();
            if (now - begin < kSpin) sched_yield();
            else std::this_thread::sleep_for(kNap);
            if (now - looked < std::chrono::milliseconds(kLookMilliseconds)) continue;
            looked = now;
            runtime::check_interrupt();
            if (is_ending_) fail(cat("rank ", rank_, " has ended in ", here()));
            const auto gone =
                std::ranges::find_if(ranks, [this](int rank) { return is_gone(rank); });
            if (gone != ranks.end()) lost = std::min(lost, now);
            if (gone != ranks.end() && now - lost > kOnTheWay)
                lose(peers_[static_cast<size_t>(*gone)], 0);
            if (now - begin > std::chrono::duration<double>(seconds_))
                fail(cat(here(), " has not ended for ", seconds(), " s"));
        }
    } catch (const runtime::DeviceError& error) {
        fail(cat(here(), " has failed"), error.what());
    } catch (...) { leave(); }
}

void World::give_up(const runtime::CommunicatorCall& call, std::string what, std::string why) {
    const runtime::Turn::Held turn = turn_.take();
    refuse_ended(call);
    call_ = &call;
    fail(cat(what, " while rank ", rank_, " waits in ", here()), std::move(why));
}

// ---- one exchange

void World::exchange(const runtime::CommunicatorCall& call,
                     std::span<const runtime::OutgoingBytes> sends,
                     std::span<const runtime::IncomingBytes> receives) {
    refuse_ended(call);
    call_ = &call;
    hash_ = hash_of(call.what);
    text_ = here();
    text_.resize(std::min(text_.size(), kMostText));
    std::vector<int> waiting;
    const auto expect = [&](int rank) -> Peer& {
        Peer& peer = peers_[static_cast<size_t>(rank)];
        if (peer.sends.empty() && peer.receives.empty()) waiting.push_back(rank);
        return peer;
    };
    for (const auto& part : sends) expect(part.peer).sends.push_back(part);
    for (const auto& part : receives) expect(part.peer).receives.push_back(part);
    // Beside a thread that computes, it does not spin at all.
    const auto spin = runtime::is_side_thread() ? Clock::duration(0) : Clock::duration(kSpin);
    try {
        auto moved = Clock::now();
        while (true) {
            bool any = false;
            for (const int rank : waiting) any |= progress(peers_[static_cast<size_t>(rank)]);
            std::erase_if(waiting, [&](int rank) {
                Peer& peer = peers_[static_cast<size_t>(rank)];
                if (!peer.is_done()) return false;
                peer.sends.clear(), peer.receives.clear();
                peer.sent = peer.received = 0;
                return true;
            });
            if (waiting.empty()) return;
            if (is_ending_) fail(cat("rank ", rank_, " has ended in ", here()));
            const auto now = Clock::now();
            if (any) moved = now;
            else if (now - moved < spin) sched_yield();
            else if (now - moved < std::chrono::duration<double>(seconds_)) sleep(waiting);
            else {
                const Peer& peer = peers_[static_cast<size_t>(waiting.front())];
                fail(cat("rank ", waiting.front(), " has not answered for ", seconds(),
                         " s, which rank ", rank_, " waits for in ", here()),
                     cat("it hangs, or did not come here",
                         peer.last_call.empty() ? "" : "; the last call of both was ",
                         peer.last_call));
            }
        }
    } catch (...) { leave(); }
}

// Called with an error under way: messages are half sent, and nobody can go on with them.
void World::leave() {
    if (failure_.empty()) {
        failure_ = cat("rank ", rank_, " was interrupted in ", here());
        if (options_.on_failure) options_.on_failure(failure_);
    }
    close();
    throw;
}

void World::sleep(std::span<const int> waiting) {
    std::vector<pollfd> polled;
    for (const int rank : waiting) {
        const Peer& peer = peers_[static_cast<size_t>(rank)];
        const bool sends = peer.sent < peer.sends.size(),
                   receives = peer.received < peer.receives.size();
        polled.push_back(
            {peer.socket, static_cast<short>((sends ? POLLOUT : 0) | (receives ? POLLIN : 0)), 0});
    }
    if (poll(polled.data(), polled.size(), kLookMilliseconds) <= 0) runtime::check_interrupt();
}

bool World::progress(Peer& peer) {
    bool any = false;
    while (peer.sent < peer.sends.size() && send_some(peer)) any = true;
    while (peer.received < peer.receives.size() && receive_some(peer)) any = true;
    return any;
}

// Returns false when the socket takes no more for now.
bool World::send_some(Peer& peer) {
    const runtime::OutgoingBytes& part = peer.sends[peer.sent];
    if (peer.sent_bytes == 0)
        peer.sending = {kMagic, static_cast<uint32_t>(text_.size()), part.bytes, hash_};
    iovec pieces[3] = {{&peer.sending, sizeof(Header)},
                       {text_.data(), text_.size()},
                       {const_cast<void*>(part.data), part.bytes}};
    size_t skipped = peer.sent_bytes, whole = 0;
    for (iovec& piece : pieces) {
        whole += piece.iov_len;
        const size_t done = std::min(skipped, piece.iov_len);
        piece.iov_base = static_cast<char*>(piece.iov_base) + done;
        piece.iov_len -= done;
        skipped -= done;
    }
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = 3;
    const ssize_t count = sendmsg(peer.socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0) {
        if (errno == EAGAIN || errno == EINTR) return false;
        // The peer's last bytes may have come before its end.
        const int error = errno;
        while (peer.received < peer.receives.size() && receive_some(peer)) {}
        lose(peer, error);
    }
    peer.sent_bytes += static_cast<size_t>(count);
    if (peer.sent_bytes == whole) {
        ++peer.sent;
        peer.sent_bytes = 0;
    }
    return true;
}

// Returns false when nothing has arrived for now.
bool World::receive_some(Peer& peer) {
    const runtime::IncomingBytes& part = peer.receives[peer.received];
    const size_t at = peer.received_bytes, text_end = sizeof(Header) + peer.receiving.text_bytes;
    void* to = nullptr;
    size_t bytes = 0;
    if (at < sizeof(Header)) {
        to = reinterpret_cast<char*>(&peer.receiving) + at;
        bytes = sizeof(Header) - at;
    } else if (at < text_end) {
        to = peer.text.data() + (at - sizeof(Header));
        bytes = text_end - at;
    } else {
        to = static_cast<char*>(part.data) + (at - text_end);
        bytes = part.bytes - (at - text_end);
    }
    const ssize_t count = recv(peer.socket, to, bytes, MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (count <= 0) lose(peer, count < 0 ? errno : 0);
    peer.received_bytes += static_cast<size_t>(count);
    if (peer.received_bytes == sizeof(Header)) begin_message(peer);
    const size_t behind_text = sizeof(Header) + peer.receiving.text_bytes;
    if (peer.received_bytes == behind_text) check_message(peer);
    if (peer.received_bytes == behind_text + part.bytes) {
        ++peer.received;
        peer.received_bytes = 0;
        peer.receiving = {};
    }
    return true;
}

void World::begin_message(Peer& peer) {
    if (peer.receiving.magic != kMagic || peer.receiving.text_bytes == 0 ||
        peer.receiving.text_bytes > kMostText)
        fail(cat("rank ", rank_of(peer), " sent something else than this version of megjit does"));
    peer.text.resize(peer.receiving.text_bytes);
}

void World::check_message(Peer& peer) {
    const Header& header = peer.receiving;
    if (header.call != hash_ || header.bytes != peer.receives[peer.received].bytes)
        fail(
            "the processes of a group make different calls",
            cat("rank ", rank_, " calls ", here(), "\nrank ", rank_of(peer), " calls ", peer.text));
    std::swap(peer.last_call, peer.text);
}

}  // namespace megjit::processes
