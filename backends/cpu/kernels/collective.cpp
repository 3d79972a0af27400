// backends/cpu/kernels/collective.cpp -- collective operations and messages of the host's tensors:
// each is handed to the communicator of its group when it runs.
#include <cstring>

#include "backends/cpu/elements.h"
#include "runtime/communicator.h"
#include "runtime/error.h"
#include "runtime/user_line.h"

namespace megjit::cpu {
namespace {

using runtime::cat;
using runtime::Combine;
using runtime::Communicator;
using runtime::IncomingBytes;
using runtime::OutgoingBytes;

// Calls run(communicator, call, x, y); the number for `after` is the last result.
template <class Run>
Prepared collective(const OpCall& call, std::span<const Type> outputs, std::string what, Run run) {
    return executable([group = call.text("group"), what = std::move(what), results = outputs.size(),
                       run](void* const* in, void* const* out, void*) {
        const std::shared_ptr<Communicator> members = runtime::find_communicator(group);
        run(*members, Communicator::Call{what, runtime::user_line()}, in[0],
            results > 1 ? out[0] : nullptr);
        *static_cast<float*>(out[results - 1]) = 0;
    });
}
template <class Run>
Prepared collective(const OpCall& call, std::span<const Type> outputs, Run run) {
    return collective(call, outputs, cat(call.op.name, " of ", to_string(call.inputs[0])), run);
}

template <Combine by>
Prepared prepare_all_reduce(const OpCall& call, std::span<const Type> outputs) {
    return collective(call, outputs,
                      [dtype = call.inputs[0].dtype, n = call.inputs[0].numel()](
                          Communicator& group, const Communicator::Call& as, const void* x,
                          void* y) { group.all_reduce(as, x, y, n, dtype, by); });
}

Prepared prepare_reduce(const OpCall& call, std::span<const Type> outputs) {
    return collective(call, outputs,
                      [dtype = call.inputs[0].dtype, n = call.inputs[0].numel()](
                          Communicator& group, const Communicator::Call& as, const void* x,
                          void* y) { group.reduce(as, x, y, n, dtype, Combine::sum, 0); });
}

Prepared prepare_reduce_scatter(const OpCall& call, std::span<const Type> outputs) {
    return collective(call, outputs,
                      [dtype = outputs[0].dtype, n = outputs[0].numel()](
                          Communicator& group, const Communicator::Call& as, const void* x,
                          void* y) { group.reduce_scatter(as, x, y, n, dtype, Combine::sum); });
}

Prepared prepare_broadcast(const OpCall& call, std::span<const Type> outputs) {
    return collective(call, outputs,
                      [bytes = outputs[0].bytes()](
                          Communicator& group, const Communicator::Call& as, const void* x,
                          void* y) { group.broadcast(as, x, y, bytes, 0); });
}

Prepared prepare_all_gather(const OpCall& call, std::span<const Type> outputs) {
    return collective(call, outputs,
                      [bytes = call.inputs[0].bytes()](
                          Communicator& group, const Communicator::Call& as, const void* x,
                          void* y) { group.all_gather(as, x, y, bytes); });
}

// Each process sends part k of x to process k and puts what it got from process k into part k of y;
// what lies in parts of `stride` 0 is one for all. Others than the root may have nothing to send,
// or to get.
struct Exchange {
    size_t bytes = 0;  // of a part
    size_t from_stride = 0, to_stride = 0;
    bool root_alone_sends = false, root_alone_receives = false;

    void operator()(Communicator& group, const Communicator::Call& as, const void* x,
                    void* y) const {
        const auto* from = static_cast<const std::byte*>(x);
        auto* to = static_cast<std::byte*>(y);
        const int rank = group.rank();
        std::vector<OutgoingBytes> sends;
        std::vector<IncomingBytes> receives;
        const auto sends_to = [&](int sender, int receiver) {
            return (sender == 0 || !root_alone_sends) && (receiver == 0 || !root_alone_receives);
        };
        for (int peer = 0; peer < group.size(); ++peer) {
            const auto k = static_cast<size_t>(peer);
            if (peer != rank && sends_to(rank, peer))
                sends.push_back({peer, from + k * from_stride, bytes});
            if (peer != rank && sends_to(peer, rank))
                receives.push_back({peer, to + k * to_stride, bytes});
        }
        group.exchange(as, sends, receives);
        const auto own = static_cast<size_t>(rank);
        if (bytes && sends_to(rank, rank))
            std::memcpy(to + own * to_stride, from + own * from_stride, bytes);
    }
};

Prepared prepare_gather(const OpCall& call, std::span<const Type> outputs) {
    const size_t bytes = call.inputs[0].bytes();
    return collective(call, outputs,
                      Exchange{.bytes = bytes, .to_stride = bytes, .root_alone_receives = true});
}
Prepared prepare_scatter(const OpCall& call, std::span<const Type> outputs) {
    const size_t bytes = outputs[0].bytes();
    return collective(call, outputs,
                      Exchange{.bytes = bytes, .from_stride = bytes, .root_alone_sends = true});
}
Prepared prepare_all_to_all(const OpCall& call, std::span<const Type> outputs) {
    const size_t bytes = outputs[0].bytes() / static_cast<size_t>(call.integer("size"));
    return collective(call, outputs,
                      Exchange{.bytes = bytes, .from_stride = bytes, .to_stride = bytes});
}

Prepared prepare_send(const OpCall& call, std::span<const Type> outputs) {
    return collective(
        call, outputs, cat("a message of ", to_string(call.inputs[0])),
        [peer = static_cast<int>(call.integer("peer")), bytes = call.inputs[0].bytes()](
            Communicator& group, const Communicator::Call& as, const void* x, void*) {
        const OutgoingBytes part{peer, x, bytes};
        group.exchange(as, {&part, 1}, {});
    });
}
Prepared prepare_receive(const OpCall& call, std::span<const Type> outputs) {
    return collective(call, outputs, cat("a message of ", to_string(outputs[0])),
                      [peer = static_cast<int>(call.integer("peer")), bytes = outputs[0].bytes()](
                          Communicator& group, const Communicator::Call& as, const void*, void* y) {
        const IncomingBytes part{peer, y, bytes};
        group.exchange(as, {}, {&part, 1});
    });
}

}  // namespace

void register_collective_kernels() {
    register_kernel("all_reduce_sum", prepare_all_reduce<Combine::sum>);
    register_kernel("all_reduce_prod", prepare_all_reduce<Combine::prod>);
    register_kernel("all_reduce_max", prepare_all_reduce<Combine::max>);
    register_kernel("all_reduce_min", prepare_all_reduce<Combine::min>);
    register_kernel("reduce_sum_to_root", prepare_reduce);
    register_kernel("broadcast_from_root", prepare_broadcast);
    register_kernel("all_gather", prepare_all_gather);
    register_kernel("reduce_scatter_sum", prepare_reduce_scatter);
    register_kernel("gather_to_root", prepare_gather);
    register_kernel("scatter_from_root", prepare_scatter);
    register_kernel("all_to_all", prepare_all_to_all);
    register_kernel("send_to", prepare_send);
    register_kernel("receive_from", prepare_receive);
}

}  // namespace megjit::cpu
