// backends/processes/hierarchical.h -- Hierarchical: a group on several machines that adds up large
// vectors within each machine first, where members read each other's memory, then between machines,
// with one member of each.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "backends/processes/socket_communicator.h"

namespace megjit::processes {

// `Flat`: how the group does everything else: SocketCommunicator or a class derived from it.
template <class Flat>
class Hierarchical final : public Flat {
public:
    // `machines`: a number for the machine of each rank of the world; `more`: other arguments of
    // Flat.
    template <class... More>
    Hierarchical(const std::vector<int>& machines, std::shared_ptr<World> world,
                 const std::vector<int>& members, const More&... more)
        : Flat(world, members, more...) {
        const auto machine = [&](int rank) { return machines[static_cast<size_t>(rank)]; };
        std::vector<int> here, leaders;
        for (const int member : members) {
            if (machine(member) == machine(world->rank())) here.push_back(member);
            if (std::ranges::none_of(
                    leaders, [&](int leader) { return machine(leader) == machine(member); }))
                leaders.push_back(member);
        }
        near_ = std::make_unique<SocketCommunicator>(world, here);
        if (here.front() == world->rank()) far_ = std::make_unique<Flat>(world, leaders, more...);
    }

    void all_reduce(const runtime::CommunicatorCall& call, const void* in, void* out, int64_t count,
                    runtime::DType dtype, runtime::Combine combine) override {
        const size_t bytes = static_cast<size_t>(count) * runtime::size_of(dtype);
        if (bytes <= kFlatBytes) return Flat::all_reduce(call, in, out, count, dtype, combine);
        Operation(this->group(), this->named(call)).meet();
        if (near_->size() > 1) near_->reduce(call, in, out, count, dtype, combine, /*root=*/0);
        else if (in != out) std::memcpy(out, in, bytes);
        if (far_) far_->all_reduce(call, out, out, count, dtype, combine);
        if (near_->size() > 1) near_->broadcast(call, out, out, bytes, /*root=*/0);
    }

private:
    static constexpr size_t kFlatBytes = 32 << 10;  // below it one step is faster than three

    std::unique_ptr<SocketCommunicator> near_;
    std::unique_ptr<Flat> far_;  // only in the first member on a machine
};

}  // namespace megjit::processes
