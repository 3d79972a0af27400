// backends/processes/gloo/gloo_communicator.h -- the collective operations of one group by Gloo.
// The World's sockets find out which members are there and check that all make the same call; small
// vectors travel with that.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/processes/gloo/engine.h"
#include "backends/processes/socket_communicator.h"

namespace megjit::processes::gloo {

class GlooCommunicator : public SocketCommunicator {
public:
    GlooCommunicator(std::shared_ptr<World> world, std::vector<int> members,
                     std::shared_ptr<Engine> engine);
    ~GlooCommunicator() override;

    // Elements are combined in Gloo's order: the same library has the same order for the same group
    // and count.
    void all_reduce(const Call& call, const void* in, void* out, int64_t count,
                    runtime::DType dtype, runtime::Combine combine) override;
    void reduce(const Call& call, const void* in, void* out, int64_t count, runtime::DType dtype,
                runtime::Combine combine, int root) override;
    // Elements are combined in the order of ranks.
    void reduce_scatter(const Call& call, const void* in, void* out, int64_t count,
                        runtime::DType dtype, runtime::Combine combine) override;
    void all_gather(const Call& call, const void* in, void* out, size_t bytes) override;
    void broadcast(const Call& call, const void* in, void* out, size_t bytes, int root) override;
    void exchange(const Call& call, std::span<const runtime::OutgoingBytes> sends,
                  std::span<const runtime::IncomingBytes> receives) override;

private:
    // The work of Gloo in one call, after all members have met. It runs on a thread of its own, so
    // that interrupts, and members that are gone or hang, are noticed meanwhile. It holds copies of
    // all that it needs.
    using Body = std::function<bool(const Table& gloo, void* context, char* error)>;
    void run(Operation& op, Body body);
    std::string exchanged_addresses(Operation& op);

    std::shared_ptr<Engine> engine_;
    void* context_ = nullptr;  // made in the first call
};

}  // namespace megjit::processes::gloo
