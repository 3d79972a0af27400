// runtime/core/communicator.h -- Communicator: how the processes of a group exchange bytes of the
// host's memory, without knowing the transport (backends/processes). It also keeps them in step
// where another library moves the bytes.
//
// Calls that belong together meet in the order in which each process makes them. Members that make
// different calls get an error that names both calls; a member that waits for a process that is
// gone gets an error, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "runtime/core/dtype.h"

namespace megjit::runtime {

class Device;
struct OpCall;

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

// One operation: what all participants must agree on, "all_reduce_sum f32[4]", and the user's line.
struct CommunicatorCall {
    std::string what;
    std::string where;
};

class Communicator {
public:
    using Call = CommunicatorCall;
    virtual ~Communicator() = default;
    virtual int rank() const = 0;  // this process's place in the group
    virtual int size() const = 0;

    // Elements are combined in the order of ranks, whatever the sizes: every member gets the same
    // bits, in each run. `out` may be `in`.
    virtual void all_reduce(const Call& call, const void* in, void* out, int64_t count, DType dtype,
                            Combine combine) = 0;
    // Only `root` gets the result; elsewhere `out` is left as it is.
    virtual void reduce(const Call& call, const void* in, void* out, int64_t count, DType dtype,
                        Combine combine, int root) = 0;
    // `in` has size() parts of `count` elements; this process gets the one of its rank.
    virtual void reduce_scatter(const Call& call, const void* in, void* out, int64_t count,
                                DType dtype, Combine combine) = 0;
    // `out` has size() parts of `bytes`, in the order of ranks.
    virtual void all_gather(const Call& call, const void* in, void* out, size_t bytes) = 0;
    // `in` is read in `root` alone.
    virtual void broadcast(const Call& call, const void* in, void* out, size_t bytes, int root) = 0;
    // All parts travel at once; parts for one peer arrive in order. Nothing is sent to oneself.
    virtual void exchange(const Call& call, std::span<const OutgoingBytes> sends,
                          std::span<const IncomingBytes> receives) = 0;
    // Sends one message. A send may be held back until the next receive, and travel beside it.
    virtual void send(const Call& call, const OutgoingBytes& part) {
        exchange(call, {&part, 1}, {});
    }
    virtual void receive(const Call& call, const IncomingBytes& part) {
        exchange(call, {}, {&part, 1});
    }

    // Backends that move bytes in a way of their own call this in operations that began with
    // meet(). Returns "rank 1 is gone", or why the group has ended; empty while all is well. Does
    // not wait. `peer`: the member whose loss counts, or kAll.
    static constexpr int kAll = -1;
    virtual std::string lost(int peer) = 0;
    // Ends the group in this call, and tells the others; throws what the user is told.
    [[noreturn]] virtual void give_up(const Call& call, std::string what, std::string why) = 0;
    virtual double seconds() const = 0;  // a member that says nothing for so long is taken to hang
};

// Returns when all members have made this call.
void meet(Communicator& members, const CommunicatorCall& call);

// The device of this process that exchanges tensors directly with the same device of other
// processes; null: all tensors go through the host. All processes have one, or none has.
void set_exchanging_device(const Device* device);
const Device* exchanging_device();

// About how many bytes of gradients are added up at once (gradient_sums.h): the same in all
// processes.
struct BucketSizes {
    size_t first = size_t{1} << 20;  // small: the first and the last exchange then take little time
    size_t others = size_t{25} << 20;
};
void set_bucket_sizes(BucketSizes sizes);
BucketSizes bucket_sizes();

// `group` is the group's key: its ranks in the world, "0,1,2". Null takes the group away.
void set_communicator(const std::string& group, std::shared_ptr<Communicator> communicator);

// What a call assumes about its group, by those of its attributes that say so.
struct GroupClaims {
    std::optional<int64_t> size = {}, peer = {}, is_root = {};
};
GroupClaims claims_of(const OpCall& call);
// UserError where this process is in no such group, or where the group differs from the claims.
std::shared_ptr<Communicator> find_communicator(const std::string& group,
                                                const GroupClaims& claims = {});

}  // namespace megjit::runtime
