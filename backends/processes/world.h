// backends/processes/ -- processes that exchange bytes of the host's memory: through stream
// sockets, by reading each other's memory on one machine, or by MPI (mpi/). In: sockets that are
// connected already, one to each other process. Knows runtime/ alone.
//
// backends/processes/world.h -- World: sends and receives at once, on the calling thread, and finds
// out which process is gone, hangs, or makes another call.
//
// It has no thread of its own, for handing work over and back costs more than a small message
// (benchmarks/README.md, "Collectives").
#pragma once

#include <atomic>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backends/processes/near.h"
#include "runtime/core/communicator.h"
#include "runtime/host/turn.h"

namespace megjit::processes {

struct WorldOptions {
    double seconds = 600;  // a member that sends nothing for so long is taken to hang
    bool reads = true;  // read memory of members on this machine; else use sockets alone
    // Called once with the reason why this process gives up, before the others see its sockets
    // close; returns what is known of the cause: the traceback of the process that failed first.
    std::function<std::string(const std::string& why)> on_failure = {};
};

class World {
public:
    // `sockets` are indexed by rank, and belong to the World from now on; the entry of this
    // process's own rank is ignored.
    World(int rank, std::vector<int> sockets, WorldOptions options);
    ~World();
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    int rank() const { return rank_; }
    int size() const { return static_cast<int>(peers_.size()); }
    void set_seconds(double seconds) { seconds_ = seconds; }
    double seconds() const { return seconds_; }

    // Only one operation runs at a time.
    runtime::Turn& turn() { return turn_; }
    // Peers are ranks of the world. All messages of one operation have the same `call`, which tells
    // them from those of other operations. After an error the world is closed.
    void exchange(const runtime::CommunicatorCall& call,
                  std::span<const runtime::OutgoingBytes> sends,
                  std::span<const runtime::IncomingBytes> receives);
    // Waits while other means move the bytes of a call in which these ranks have met: calls `moves`
    // until it returns true. Meanwhile it watches for ranks that are gone, or hang.
    void accompany(const runtime::CommunicatorCall& call, std::span<const int> ranks,
                   const std::function<bool()>& moves);
    void close();
    // Closes the world, even if another thread is in the midst of an operation: that operation then
    // fails, and closes.
    void end();
    // A message that is held back until the next receive, with a copy of its bytes. The thread that
    // has the turn uses it.
    struct HeldSend {
        runtime::CommunicatorCall call;
        int peer = 0;
        std::vector<std::byte> bytes;
        runtime::OutgoingBytes part() const { return {peer, bytes.data(), bytes.size()}; }
    };
    std::vector<HeldSend>& held() { return held_; }
    bool holds_sends() const { return holds_sends_; }
    void set_holds_sends(bool is_on) { holds_sends_ = is_on; }
    // For large operations whose members are all near: as long as one is under way, the others may
    // read what a member offers. `lose`: a read failed, so that the peer must have ended its part.
    bool is_near(int rank) const;
    bool reads() const { return options_.reads; }
    // The address by which others reach this process; if there are other machines, one that they
    // reach.
    std::string address() const;
    Offer offer(const void* data) const { return seal_.offer(data); }
    [[noreturn]] void lose(int rank) { lose(peers_[static_cast<size_t>(rank)], 0); }
    // Why the world is closed, or which of these ranks is gone. Empty while an operation is under
    // way, which finds out by itself.
    std::string lost(std::span<const int> ranks);
    // Fails as an operation of this call would.
    [[noreturn]] void give_up(const runtime::CommunicatorCall& call, std::string what,
                              std::string why);

private:
    struct Header {
        uint32_t magic = 0;
        uint32_t text_bytes = 0;  // length of the text that names the call and its line, for errors
        uint64_t bytes = 0;
        uint64_t call = 0;  // a hash of what members must agree on
    };
    // The messages of one exchange with one peer, in order.
    struct Peer {
        int socket = -1;
        std::vector<runtime::OutgoingBytes> sends = {};
        size_t sent = 0;  // number of messages
        size_t sent_bytes = 0;  // bytes of the next message, with header and text
        Header sending = {};
        std::vector<runtime::IncomingBytes> receives = {};
        size_t received = 0, received_bytes = 0;
        Header receiving = {};
        std::string text = {};
        std::string last_call = {};  // the last call that it took part in
        bool is_done() const { return sent == sends.size() && received == receives.size(); }
    };

    bool progress(Peer& peer);
    bool send_some(Peer& peer);
    bool receive_some(Peer& peer);
    void begin_message(Peer& peer);
    void check_message(Peer& peer);
    void sleep(std::span<const int> waiting);
    bool is_gone(int rank) const;
    [[noreturn]] void leave();
    int rank_of(const Peer& peer) const { return static_cast<int>(&peer - peers_.data()); }
    std::string here() const;  // names the current call, for errors
    [[noreturn]] void fail(std::string what, std::string why = {});
    [[noreturn]] void lose(const Peer& peer, int error);
    void refuse_ended(const runtime::CommunicatorCall& call) const;

    int rank_ = 0;
    std::vector<Peer> peers_;  // by rank
    WorldOptions options_;
    std::atomic<double> seconds_;  // also read by the thread that watches a GPU
    std::atomic<bool> is_ending_{false};
    runtime::Turn turn_{"an exchange with other processes"};
    std::vector<HeldSend> held_;
    bool holds_sends_ = false;
    const runtime::CommunicatorCall* call_ = nullptr;
    uint64_t hash_ = 0;
    std::string text_;  // text of the call, as it is sent
    std::string failure_;  // why the world is closed
    Seal seal_;  // broken when the world is closed
};

}  // namespace megjit::processes
