#include "backends/sockets/socket_communicator.h"

#include <algorithm>
#include <cstring>

#include "backends/sockets/combine.h"
#include "runtime/error.h"
#include "runtime/side_stream.h"

namespace megjit::sockets {

using runtime::Combine;
using runtime::DType;
using runtime::IncomingBytes;
using runtime::OutgoingBytes;

namespace {

// Up to here all is sent to all, in one step; above, each member combines a part of it.
constexpr size_t kSmallBytes = 32 << 10;
// Of larger vectors so much is under way at once: what has come is combined while it is in a cache.
constexpr size_t kSliceBytes = 2 << 20;

std::string key_of(const std::vector<int>& members) {
    std::string key;
    for (const int member : members) {
        if (!key.empty()) key += ',';
        key += std::to_string(member);
    }
    return key;
}

std::byte* behind(void* start, size_t bytes) { return static_cast<std::byte*>(start) + bytes; }
const std::byte* behind(const void* start, size_t bytes) {
    return static_cast<const std::byte*>(start) + bytes;
}
void copy(void* to, const void* from, size_t bytes) {
    if (to != from && bytes) std::memcpy(to, from, bytes);
}

// Equal parts of a slice for the members; the last ones may be shorter, or empty.
struct Parts {
    int64_t count = 0, each = 0;
    Parts(int64_t count, int members) : count(count), each((count + members - 1) / members) {}
    int64_t begin(int member) const { return std::min(count, member * each); }
    int64_t size(int member) const { return begin(member + 1) - begin(member); }
};

}  // namespace

// Processes meet in one order: what was queued to run beside the calling thread goes first.
std::mutex& in_turn(World& world) {
    if (!runtime::is_side_thread()) runtime::side_stream().synchronize();
    return world.mutex();
}

// What one call of a member does. Peers are ranks of the group here.
class SocketCommunicator::Operation {
public:
    Operation(const SocketCommunicator& group, const Call& call)
        : group_(group), call_(group.named(call)), lock_(in_turn(*group.world_)) {}

    int rank() const { return group_.rank_; }
    int size() const { return group_.size(); }

    void send(int peer, const void* data, size_t bytes) {
        sends_.push_back({group_.members_[static_cast<size_t>(peer)], data, bytes});
    }
    void receive(int peer, void* data, size_t bytes) {
        receives_.push_back({group_.members_[static_cast<size_t>(peer)], data, bytes});
    }
    void run() {
        group_.world_->exchange(call_, sends_, receives_);
        sends_.clear(), receives_.clear();
    }
    template <class Fn>
    void for_others(Fn&& fn) const {
        for (int step = 1; step < size(); ++step) fn((rank() + step) % size());
    }
    std::byte* scratch(size_t bytes) {
        scratch_.resize(std::max(scratch_.size(), bytes));
        return scratch_.data();
    }

private:
    const SocketCommunicator& group_;
    const Call call_;
    const std::lock_guard<std::mutex> lock_;
    std::vector<OutgoingBytes> sends_;
    std::vector<IncomingBytes> receives_;
    std::vector<std::byte> scratch_;
};

namespace {

// The vectors of all members in `own`'s place and in `others`, where they follow each other.
std::vector<const void*> in_order(int rank, int size, const void* own, const std::byte* others,
                                  size_t bytes) {
    std::vector<const void*> parts;
    for (int member = 0; member < size; ++member)
        parts.push_back(
            member == rank ? own : others + static_cast<size_t>(member - (member > rank)) * bytes);
    return parts;
}

// Receives everybody's vector of `count` elements, and combines them into `out`.
template <class Operation>
struct Gathered {
    Operation& op;
    int64_t count;
    DType dtype;
    std::byte* others;
    size_t bytes() const { return static_cast<size_t>(count) * size_of(dtype); }
    Gathered(Operation& op, int64_t count, DType dtype)
        : op(op),
          count(count),
          dtype(dtype),
          others(op.scratch(static_cast<size_t>(op.size() - 1) * bytes())) {
        op.for_others([&](int peer) {
            op.receive(peer, others + static_cast<size_t>(peer - (peer > op.rank())) * bytes(),
                       bytes());
        });
    }
    void combine_into(void* out, const void* own, Combine by) const {
        combine(in_order(op.rank(), op.size(), own, others, bytes()), out, count, dtype, by);
    }
};

}  // namespace

SocketCommunicator::SocketCommunicator(std::shared_ptr<World> world, std::vector<int> members)
    : world_(std::move(world)),
      members_(std::move(members)),
      key_(key_of(members_)),
      rank_(static_cast<int>(std::find(members_.begin(), members_.end(), world_->rank()) -
                             members_.begin())) {}

SocketCommunicator::Call SocketCommunicator::named(const Call& call) const {
    return {runtime::cat(call.what, " in the group ", key_), call.where};
}

std::string SocketCommunicator::lost(int peer) {
    const std::span<const int> members = members_;
    return world_->lost(peer == kAll ? members : members.subspan(static_cast<size_t>(peer), 1));
}

void SocketCommunicator::give_up(const Call& call, std::string what, std::string why) {
    world_->give_up(named(call), std::move(what), std::move(why));
}

void SocketCommunicator::all_reduce(const Call& call, const void* in, void* out, int64_t count,
                                    DType dtype, Combine by) {
    Operation op(*this, call);
    const size_t element = size_of(dtype), bytes = static_cast<size_t>(count) * element;
    if (bytes <= kSmallBytes) {
        op.for_others([&](int peer) { op.send(peer, in, bytes); });
        const Gathered<Operation> all(op, count, dtype);
        op.run();
        return all.combine_into(out, in, by);
    }
    // Each member combines its part of a slice; while the next slice's parts travel, so do the
    // results of the last one.
    const auto slice = static_cast<int64_t>(kSliceBytes / element);
    int64_t done_at = 0, done = 0;
    const auto share = [&] {
        const Parts parts(done, size());
        std::byte* at = behind(out, static_cast<size_t>(done_at) * element);
        op.for_others([&](int peer) {
            op.send(peer, at + static_cast<size_t>(parts.begin(rank_)) * element,
                    static_cast<size_t>(parts.size(rank_)) * element);
            op.receive(peer, at + static_cast<size_t>(parts.begin(peer)) * element,
                       static_cast<size_t>(parts.size(peer)) * element);
        });
    };
    for (int64_t at = 0; at < count; at += slice) {
        const int64_t n = std::min(slice, count - at);
        const Parts parts(n, size());
        const std::byte* from = behind(in, static_cast<size_t>(at) * element);
        if (done) share();
        op.for_others([&](int peer) {
            op.send(peer, from + static_cast<size_t>(parts.begin(peer)) * element,
                    static_cast<size_t>(parts.size(peer)) * element);
        });
        const Gathered<Operation> all(op, parts.size(rank_), dtype);
        op.run();
        const size_t own = static_cast<size_t>(at + parts.begin(rank_)) * element;
        all.combine_into(behind(out, own), behind(in, own), by);
        done_at = at, done = n;
    }
    share();
    op.run();
}

void SocketCommunicator::reduce(const Call& call, const void* in, void* out, int64_t count,
                                DType dtype, Combine by, int root) {
    Operation op(*this, call);
    const size_t element = size_of(dtype);
    const auto slice = static_cast<int64_t>(kSliceBytes / element);
    for (int64_t at = 0; at == 0 || at < count; at += slice) {
        const int64_t n = std::min(slice, count - at);
        const std::byte* own = behind(in, static_cast<size_t>(at) * element);
        if (rank_ != root) {
            op.send(root, own, static_cast<size_t>(n) * element);
            op.run();
            continue;
        }
        const Gathered<Operation> all(op, n, dtype);
        op.run();
        all.combine_into(behind(out, static_cast<size_t>(at) * element), own, by);
    }
}

void SocketCommunicator::reduce_scatter(const Call& call, const void* in, void* out, int64_t count,
                                        DType dtype, Combine by) {
    Operation op(*this, call);
    const size_t element = size_of(dtype);
    const auto slice = static_cast<int64_t>(kSliceBytes / element);
    for (int64_t at = 0; at == 0 || at < count; at += slice) {
        const int64_t n = std::min(slice, count - at);
        const auto part = [&](int member) {
            return behind(in, static_cast<size_t>(member * count + at) * element);
        };
        op.for_others(
            [&](int peer) { op.send(peer, part(peer), static_cast<size_t>(n) * element); });
        const Gathered<Operation> all(op, n, dtype);
        op.run();
        all.combine_into(behind(out, static_cast<size_t>(at) * element), part(rank_), by);
    }
}

void SocketCommunicator::all_gather(const Call& call, const void* in, void* out, size_t bytes) {
    Operation op(*this, call);
    op.for_others([&](int peer) {
        op.send(peer, in, bytes);
        op.receive(peer, behind(out, static_cast<size_t>(peer) * bytes), bytes);
    });
    op.run();
    copy(behind(out, static_cast<size_t>(rank_) * bytes), in, bytes);
}

void SocketCommunicator::broadcast(const Call& call, const void* in, void* out, size_t bytes,
                                   int root) {
    Operation op(*this, call);
    if (bytes <= kSmallBytes || size() == 2) {
        if (rank_ != root) op.receive(root, out, bytes);
        else op.for_others([&](int peer) { op.send(peer, in, bytes); });
        op.run();
        if (rank_ == root) copy(out, in, bytes);
        return;
    }
    // Each member gets a part, and passes it on.
    const Parts parts(static_cast<int64_t>(bytes), size());
    const auto part = [&](int member) { return static_cast<size_t>(parts.begin(member)); };
    const auto length = [&](int member) { return static_cast<size_t>(parts.size(member)); };
    if (rank_ != root) op.receive(root, behind(out, part(rank_)), length(rank_));
    else op.for_others([&](int peer) { op.send(peer, behind(in, part(peer)), length(peer)); });
    op.run();
    const void* own = rank_ == root ? in : out;
    op.for_others([&](int peer) {
        if (peer != root) op.send(peer, behind(own, part(rank_)), length(rank_));
        if (rank_ != root) op.receive(peer, behind(out, part(peer)), length(peer));
    });
    op.run();
    if (rank_ == root) copy(out, in, bytes);
}

void SocketCommunicator::exchange(const Call& call, std::span<const OutgoingBytes> sends,
                                  std::span<const IncomingBytes> receives) {
    Operation op(*this, call);
    for (const OutgoingBytes& part : sends) op.send(part.peer, part.data, part.bytes);
    for (const IncomingBytes& part : receives) op.receive(part.peer, part.data, part.bytes);
    op.run();
}

}  // namespace megjit::sockets
