#include "backends/processes/socket_communicator.h"

#include <algorithm>
#include <cstring>

#include "backends/processes/combine.h"
#include "runtime/host/error.h"

namespace megjit::processes {

using runtime::Combine;
using runtime::DType;
using runtime::IncomingBytes;
using runtime::OutgoingBytes;

namespace {

// Up to this size each member sends its vector to all others, in one step; above, each member
// combines a part.
constexpr size_t kSmallBytes = 32 << 10;
// Only this much of a larger vector is under way at once: received bytes are combined while they
// are in a cache.
constexpr size_t kSliceBytes = 2 << 20;

std::string key_of(const std::vector<int>& members) {
    std::string key;
    for (const int member : members) {
        if (!key.empty()) key += ',';
        key += std::to_string(member);
    }
    return key;
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

// Where a peer's vector is in a buffer of the others' vectors, one after the other.
std::byte* behind_others(const Operation& op, std::byte* others, int peer, size_t bytes) {
    return others + static_cast<size_t>(peer - (peer > op.rank())) * bytes;
}

// The vectors of all members, in the order of ranks.
std::vector<const void*> in_order(const Operation& op, const void* own, std::byte* others,
                                  size_t bytes) {
    std::vector<const void*> parts;
    for (int member = 0; member < op.size(); ++member)
        parts.push_back(member == op.rank() ? own : behind_others(op, others, member, bytes));
    return parts;
}

// Receives the vectors of all other members, of `count` elements, and combines all into `out`.
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
        op.for_others(
            [&](int peer) { op.receive(peer, behind_others(op, others, peer, bytes()), bytes()); });
    }
    void combine_into(void* out, const void* own, Combine by) const {
        combine(in_order(op, own, others, bytes()), out, count, dtype, by);
    }
};

}  // namespace

SocketCommunicator::SocketCommunicator(std::shared_ptr<World> world, std::vector<int> members)
    : world_(std::move(world)), key_(key_of(members)), group_{*world_, std::move(members)} {
    const auto own = std::ranges::find(group_.members, world_->rank());
    group_.rank = static_cast<int>(own - group_.members.begin());
}

SocketCommunicator::Call SocketCommunicator::named(const Call& call) const {
    return {runtime::cat(call.what, " in the group ", key_), call.where};
}

std::string SocketCommunicator::lost(int peer) {
    const std::span<const int> members = group_.members;
    return world_->lost(peer == kAll ? members : members.subspan(static_cast<size_t>(peer), 1));
}

void SocketCommunicator::give_up(const Call& call, std::string what, std::string why) {
    world_->give_up(named(call), std::move(what), std::move(why));
}

namespace {

// Combines `count` elements that begin `at` bytes after each member's offer, with `own` for ours.
void combine_offered(Operation& op, const Operation::Offers& offers, size_t at, const void* own,
                     void* out, int64_t count, DType dtype, Combine by) {
    op.for_pieces(static_cast<size_t>(count) * size_of(dtype), [&](size_t lo, size_t hi) {
        std::vector<std::byte> others(static_cast<size_t>(op.size() - 1) * (hi - lo));
        op.for_others([&](int peer) {
            op.read_offer(offers, peer, at + lo, behind_others(op, others.data(), peer, hi - lo),
                          hi - lo);
        });
        combine(in_order(op, behind(own, lo), others.data(), hi - lo), behind(out, lo),
                static_cast<int64_t>((hi - lo) / size_of(dtype)), dtype, by);
    });
}

void copy_offered(Operation& op, const Operation::Offers& offers, int peer, size_t at, void* to,
                  size_t bytes) {
    op.for_pieces(bytes, [&](size_t lo, size_t hi) {
        op.read_offer(offers, peer, at + lo, behind(to, lo), hi - lo);
    });
}

}  // namespace

void SocketCommunicator::all_reduce(const Call& call, const void* in, void* out, int64_t count,
                                    DType dtype, Combine by) {
    Operation op(group_, named(call));
    const size_t element = size_of(dtype), bytes = static_cast<size_t>(count) * element;
    if (bytes <= kSmallBytes) {
        op.for_others([&](int peer) { op.send(peer, in, bytes); });
        const Gathered all(op, count, dtype);
        op.run();
        return all.combine_into(out, in, by);
    }
    if (const auto given = op.offers(bytes, in, out)) {
        const Parts parts(count, size());
        const auto at = [&](int member) {
            return static_cast<size_t>(parts.begin(member)) * element;
        };
        combine_offered(op, *given, at(rank()), behind(in, at(rank())), behind(out, at(rank())),
                        parts.size(rank()), dtype, by);
        const auto combined = op.offers(bytes, out);
        op.for_others([&](int peer) {
            copy_offered(op, combined.value(), peer, at(peer), behind(out, at(peer)),
                         at(peer + 1) - at(peer));
        });
        return op.meet();
    }
    // Each member combines its part of a slice; while the next slice's parts travel, the results of
    // the last one travel, too.
    const auto slice = static_cast<int64_t>(kSliceBytes / element);
    int64_t done_at = 0, done = 0;
    const auto share = [&] {
        const Parts parts(done, size());
        std::byte* at = behind(out, static_cast<size_t>(done_at) * element);
        op.for_others([&](int peer) {
            op.send(peer, at + static_cast<size_t>(parts.begin(rank())) * element,
                    static_cast<size_t>(parts.size(rank())) * element);
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
        const Gathered all(op, parts.size(rank()), dtype);
        op.run();
        const size_t own = static_cast<size_t>(at + parts.begin(rank())) * element;
        all.combine_into(behind(out, own), behind(in, own), by);
        done_at = at, done = n;
    }
    share();
    op.run();
}

void SocketCommunicator::reduce(const Call& call, const void* in, void* out, int64_t count,
                                DType dtype, Combine by, int root) {
    Operation op(group_, named(call));
    const size_t element = size_of(dtype);
    if (const auto given = op.offers(static_cast<size_t>(count) * element, in)) {
        if (rank() == root) combine_offered(op, *given, 0, in, out, count, dtype, by);
        return op.meet();
    }
    const auto slice = static_cast<int64_t>(kSliceBytes / element);
    for (int64_t at = 0; at == 0 || at < count; at += slice) {
        const int64_t n = std::min(slice, count - at);
        const std::byte* own = behind(in, static_cast<size_t>(at) * element);
        if (rank() != root) {
            op.send(root, own, static_cast<size_t>(n) * element);
            op.run();
            continue;
        }
        const Gathered all(op, n, dtype);
        op.run();
        all.combine_into(behind(out, static_cast<size_t>(at) * element), own, by);
    }
}

void SocketCommunicator::reduce_scatter(const Call& call, const void* in, void* out, int64_t count,
                                        DType dtype, Combine by) {
    Operation op(group_, named(call));
    const size_t element = size_of(dtype), bytes = static_cast<size_t>(count) * element;
    if (const auto given = op.offers(bytes, in)) {
        const size_t own = static_cast<size_t>(rank()) * bytes;
        combine_offered(op, *given, own, behind(in, own), out, count, dtype, by);
        return op.meet();
    }
    const auto slice = static_cast<int64_t>(kSliceBytes / element);
    for (int64_t at = 0; at == 0 || at < count; at += slice) {
        const int64_t n = std::min(slice, count - at);
        const auto part = [&](int member) {
            return behind(in, static_cast<size_t>(member * count + at) * element);
        };
        op.for_others(
            [&](int peer) { op.send(peer, part(peer), static_cast<size_t>(n) * element); });
        const Gathered all(op, n, dtype);
        op.run();
        all.combine_into(behind(out, static_cast<size_t>(at) * element), part(rank()), by);
    }
}

void SocketCommunicator::all_gather(const Call& call, const void* in, void* out, size_t bytes) {
    Operation op(group_, named(call));
    const auto place = [&](int member) { return behind(out, static_cast<size_t>(member) * bytes); };
    if (const auto given = op.offers(bytes, in)) {
        op.for_others([&](int peer) { copy_offered(op, *given, peer, 0, place(peer), bytes); });
        op.meet();
    } else {
        op.for_others([&](int peer) {
            op.send(peer, in, bytes);
            op.receive(peer, place(peer), bytes);
        });
        op.run();
    }
    copy(place(rank()), in, bytes);
}

void SocketCommunicator::broadcast(const Call& call, const void* in, void* out, size_t bytes,
                                   int root) {
    Operation op(group_, named(call));
    if (const auto given = op.offers(bytes, rank() == root ? in : out)) {
        if (rank() == root) copy(out, in, bytes);
        else copy_offered(op, *given, root, 0, out, bytes);
        return op.meet();
    }
    if (bytes <= kSmallBytes || size() == 2) {
        if (rank() != root) op.receive(root, out, bytes);
        else op.for_others([&](int peer) { op.send(peer, in, bytes); });
        op.run();
        if (rank() == root) copy(out, in, bytes);
        return;
    }
    // Each member receives one part, and passes it on.
    const Parts parts(static_cast<int64_t>(bytes), size());
    const auto part = [&](int member) { return static_cast<size_t>(parts.begin(member)); };
    const auto length = [&](int member) { return static_cast<size_t>(parts.size(member)); };
    if (rank() != root) op.receive(root, behind(out, part(rank())), length(rank()));
    else op.for_others([&](int peer) { op.send(peer, behind(in, part(peer)), length(peer)); });
    op.run();
    const void* own = rank() == root ? in : out;
    op.for_others([&](int peer) {
        if (peer != root) op.send(peer, behind(own, part(rank())), length(rank()));
        if (rank() != root) op.receive(peer, behind(out, part(peer)), length(peer));
    });
    op.run();
    if (rank() == root) copy(out, in, bytes);
}

void SocketCommunicator::exchange(const Call& call, std::span<const OutgoingBytes> sends,
                                  std::span<const IncomingBytes> receives) {
    Operation op(group_, named(call));
    for (const OutgoingBytes& part : sends) op.send(part.peer, part.data, part.bytes);
    for (const IncomingBytes& part : receives) op.receive(part.peer, part.data, part.bytes);
    op.run();
}

void SocketCommunicator::send(const Call& call, const OutgoingBytes& part) {
    Operation op(group_, named(call), HeldSends::joined);
    op.send(part.peer, part.data, part.bytes);
    if (!op.is_held()) op.run();
}

void SocketCommunicator::receive(const Call& call, const IncomingBytes& part) {
    Operation op(group_, named(call), HeldSends::joined);
    op.receive(part.peer, part.data, part.bytes);
    op.run();
}

}  // namespace megjit::processes
