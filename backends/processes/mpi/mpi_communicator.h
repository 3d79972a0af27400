// backends/processes/mpi/mpi_communicator.h -- the collective operations of one group by MPI. The
// World's sockets find out which members are there and check that all make the same call; messages
// between two members use them, too.
#pragma once

#include <memory>
#include <vector>

#include "backends/processes/mpi/engine.h"
#include "backends/processes/socket_communicator.h"

namespace megjit::processes::mpi {

class MpiCommunicator final : public SocketCommunicator {
public:
    MpiCommunicator(std::shared_ptr<Engine> engine, std::shared_ptr<World> world,
                    std::vector<int> members);

    // Elements are combined in MPI's order: the same library has the same order for the same group
    // and count.
    void all_reduce(const Call& call, const void* in, void* out, int64_t count,
                    runtime::DType dtype, runtime::Combine combine) override;
    void reduce(const Call& call, const void* in, void* out, int64_t count, runtime::DType dtype,
                runtime::Combine combine, int root) override;
    void reduce_scatter(const Call& call, const void* in, void* out, int64_t count,
                        runtime::DType dtype, runtime::Combine combine) override;
    void all_gather(const Call& call, const void* in, void* out, size_t bytes) override;
    void broadcast(const Call& call, const void* in, void* out, size_t bytes, int root) override;
    void exchange(const Call& call, std::span<const runtime::OutgoingBytes> sends,
                  std::span<const runtime::IncomingBytes> receives) override;

private:
    // MPI calls that make up one call of ours, in order: each begins one, sets the request to wait
    // for, and returns MPI's error code.
    using Begin = std::function<int(Handle comm, Handle* request)>;
    void run(Operation& op, const std::vector<Begin>& steps);
    void add_reduction(std::vector<Begin>& steps, const void* in, void* out, int64_t count,
                       runtime::DType dtype, runtime::Combine by, int root) const;
    void add_broadcast(std::vector<Begin>& steps, void* data, int64_t bytes, int root) const;

    std::shared_ptr<Engine> engine_;
};

}  // namespace megjit::processes::mpi
