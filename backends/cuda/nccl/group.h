// backends/cuda/nccl/ -- what the processes of a group exchange from GPU to GPU, by NCCL. In:
// addresses on a GPU, and a group's communicator (runtime/core/communicator.h), in which members
// meet before each call: so that all make the same call, and errors name a member that is gone or
// hangs.
//
// backends/cuda/nccl/group.h -- Group: NCCL's communicator of one group of processes, each of which
// has a GPU of its own.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "backends/cuda/cuda_stream.h"
#include "backends/cuda/nccl/nccl_api.h"
#include "runtime/core/communicator.h"

namespace megjit::cuda::nccl {

// What this process must say of itself before a group can be made: "2.28.9 of the GPU ...". A group
// is possible if all say the same version and each names another GPU. Empty, with the reason, where
// this process cannot take part.
std::string place_of(const Gpu& gpu, std::string* why_not);

// A call of the group, for errors; a message is a call between this process and `peer` alone.
struct Call : runtime::CommunicatorCall {
    int peer = runtime::Communicator::kAll;
};

class Group : public std::enable_shared_from_this<Group> {
public:
    // Calls NCCL.
    using Queue = std::function<Status(const Library&, Comm, StreamHandle)>;

    // Finds a group by its key. UserError where this process is in no such group, or has no NCCL.
    static std::shared_ptr<Group> of(Gpu& gpu, const std::string& key,
                                     const runtime::GroupClaims& claims);
    Group(Gpu& gpu, const Library& library, std::shared_ptr<runtime::Communicator> members);
    ~Group();
    Group(const Group&) = delete;

    int rank() const { return members_->rank(); }
    int size() const { return members_->size(); }

    // Queues the call that all members make now on `stream`; the first one must not be a message.
    // It is watched for later failures: `results` is the stream whose work reads the results.
    // `queue` may be empty: then the members only meet.
    void run(const Call& call, CudaStream& stream, CudaStream& results, const Queue& queue);

private:
    friend class Watch;
    // Ends NCCL's work, on the GPU as well; later calls throw `error`.
    void end(const std::exception_ptr& error);
    // Returns the lock. Throws the error that ended the group.
    std::unique_lock<std::mutex> alive() const;
    // Returns the state of NCCL's earlier work; 0 while all is well.
    Status state() const;
    std::string text_of(Status status) const;

    void meet(const Call& call);
    void connect(const Call& call);
    void check(Status status, const char* what) const;
    // Waits until NCCL has taken over the work it was asked for.
    void settle(Status status, const char* what, int peer) const;
    void queue(const Call& call, CudaStream& stream, CudaStream& results, const Queue& queue);

    Gpu& gpu_;
    const Library& library_;
    const std::shared_ptr<runtime::Communicator> members_;
    bool is_connected_ = false;
    mutable std::mutex mutex_;  // guards the members below; held during calls of NCCL
    Comm comm_ = nullptr;
    std::exception_ptr error_;
};

}  // namespace megjit::cuda::nccl
