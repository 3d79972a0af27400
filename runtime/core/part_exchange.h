// runtime/core/part_exchange.h -- PartExchange: which member sends what to which in a gather, a
// scatter and an all-to-all. The addresses are plain, of any memory.
#pragma once

#include <vector>

#include "runtime/core/communicator.h"

namespace megjit::runtime {

// Each member sends part k of x to member k and puts what it got from member k into part k of y.
// With a stride of 0, one part serves all members. Members other than the root may have nothing to
// send, or to receive.
struct PartExchange {
    size_t bytes = 0;  // size of one part
    size_t from_stride = 0, to_stride = 0;
    bool root_alone_sends = false, root_alone_receives = false;

    static PartExchange gather(size_t bytes) {
        return {.bytes = bytes, .to_stride = bytes, .root_alone_receives = true};
    }
    static PartExchange scatter(size_t bytes) {
        return {.bytes = bytes, .from_stride = bytes, .root_alone_sends = true};
    }
    static PartExchange all_to_all(size_t bytes) {
        return {.bytes = bytes, .from_stride = bytes, .to_stride = bytes};
    }

    bool sends_to(int sender, int receiver) const {
        return (sender == 0 || !root_alone_sends) && (receiver == 0 || !root_alone_receives);
    }
    const void* from(const void* x, int receiver) const {
        return static_cast<const std::byte*>(x) + static_cast<size_t>(receiver) * from_stride;
    }
    void* to(void* y, int sender) const {
        return static_cast<std::byte*>(y) + static_cast<size_t>(sender) * to_stride;
    }
    // sends() and receives() list the parts of other members; each member copies its own part
    // from(x, rank) to(y, rank).
    std::vector<OutgoingBytes> sends(int rank, int size, const void* x) const {
        std::vector<OutgoingBytes> parts;
        for (int peer = 0; peer < size; ++peer)
            if (peer != rank && sends_to(rank, peer)) parts.push_back({peer, from(x, peer), bytes});
        return parts;
    }
    std::vector<IncomingBytes> receives(int rank, int size, void* y) const {
        std::vector<IncomingBytes> parts;
        for (int peer = 0; peer < size; ++peer)
            if (peer != rank && sends_to(peer, rank)) parts.push_back({peer, to(y, peer), bytes});
        return parts;
    }
};

}  // namespace megjit::runtime
