// runtime/communicator.h -- Communicator: how the processes of a group exchange bytes, without
// knowing by what. A backend gives one for its device's memory (backends/sockets for the host's).
//
// Calls that belong together meet in the order in which each process makes them. Members that make
// different calls get an error which names both; so does who waits for a process that is gone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/dtype.h"

namespace megjit::runtime {

enum class Combine : uint8_t { sum, prod, max, min };

// A part of one exchange, on this side: to or from the member `peer`.
struct OutgoingBytes {
    int peer = 0;
    const void* data = nullptr;
    size_t bytes = 0;
};
struct IncomingBytes {
    int peer = 0;
    void* data = nullptr;
    size_t bytes = 0;
};

// One operation: what all who take part must agree on, "all_reduce_sum f32[4]", and the user's
// line.
struct CommunicatorCall {
    std::string what;
    std::string where;
};

class Communicator {
public:
    using Call = CommunicatorCall;
    virtual ~Communicator() = default;
    virtual int rank() const = 0;  // of this process in the group
    virtual int size() const = 0;

    // Elements are combined in the order of ranks, whatever the sizes: every member has the same
    // bits, in each run. `out` may be `in`.
    virtual void all_reduce(const Call& call, const void* in, void* out, int64_t count, DType dtype,
                            Combine combine) = 0;
    // In `root` alone; elsewhere `out` is left as it is.
    virtual void reduce(const Call& call, const void* in, void* out, int64_t count, DType dtype,
                        Combine combine, int root) = 0;
    // `in` has size() parts of `count` elements; this process gets the one of its rank.
    virtual void reduce_scatter(const Call& call, const void* in, void* out, int64_t count,
                                DType dtype, Combine combine) = 0;
    // `out` has size() parts of `bytes`, in the order of ranks.
    virtual void all_gather(const Call& call, const void* in, void* out, size_t bytes) = 0;
    // `in` is read in `root` alone.
    virtual void broadcast(const Call& call, const void* in, void* out, size_t bytes, int root) = 0;
    // All at once; parts for one peer arrive in order. Nothing is sent to oneself.
    virtual void exchange(const Call& call, std::span<const OutgoingBytes> sends,
                          std::span<const IncomingBytes> receives) = 0;
};

// By the group's key: its ranks in the world, "0,1,2". Null takes a group away.
void set_communicator(const std::string& group, std::shared_ptr<Communicator> communicator);
// UserError where this process is in no such group.
std::shared_ptr<Communicator> find_communicator(const std::string& group);

}  // namespace megjit::runtime
