// backends/processes/socket_communicator.h -- the collective operations of one group of a World, in
// which every member exchanges with every other one: two steps whatever the size of the group, and
// as few bytes as a ring moves.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/processes/operation.h"

namespace megjit::processes {

class SocketCommunicator : public runtime::Communicator {
public:
    // `members` are ranks of the world, and include this process's.
    SocketCommunicator(std::shared_ptr<World> world, std::vector<int> members);

    int rank() const override { return group_.rank; }
    int size() const override { return group_.size(); }
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
    void send(const Call& call, const runtime::OutgoingBytes& part) override;
    void receive(const Call& call, const runtime::IncomingBytes& part) override;
    std::string lost(int peer) override;
    [[noreturn]] void give_up(const Call& call, std::string what, std::string why) override;
    double seconds() const override { return world_->seconds(); }

protected:
    Call named(const Call& call) const;
    Group& group() { return group_; }

private:
    std::shared_ptr<World> world_;
    std::string key_;
    Group group_;
};

}  // namespace megjit::processes
