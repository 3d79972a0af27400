// backends/cpu/kernels/collective.cpp -- collective operations and messages of the host's tensors:
// each run hands the call to the communicator of its group.
#include <cstring>

#include "backends/cpu/elements.h"
#include "runtime/core/communicator.h"
#include "runtime/core/part_exchange.h"
#include "runtime/core/side_stream.h"
#include "runtime/host/error.h"
#include "runtime/host/user_line.h"

namespace megjit::cpu {
namespace {

using runtime::cat;
using runtime::Combine;
using runtime::Communicator;
using runtime::IncomingBytes;
using runtime::OutgoingBytes;
using runtime::PartExchange;

// Calls run(communicator, call, x, y); the last result is the number for `after`. `in_place`: y may
// be x.
template <class Run>
Prepared collective(const OpCall& call, std::span<const Type> outputs, std::string what, Run run,
                    bool in_place = false) {
    return runtime::function_executable(
        [group = call.text("group"), claims = runtime::claims_of(call), what = std::move(what),
         results = outputs.size(),
         run](runtime::Stream& stream, void* const* in, void* const* out, void*) {
        runtime::run_on_host(stream, [run, members = runtime::find_communicator(group, claims),
                                      as = Communicator::Call{what, runtime::user_line()},
                                      x = in[0], y = results > 1 ? out[0] : nullptr,
                                      after = static_cast<float*>(out[results - 1])] {
            run(*members, as, x, y);
            *after = 0;
        });
    },
        0, in_place);
}
template <class Run>
Prepared collective(const OpCall& call, std::span<const Type> outputs, Run run,
                    bool in_place = false) {
    return collective(call, outputs, cat(call.op.name, " of ", to_string(call.inputs[0])), run,
                      in_place);
}

template <Combine by>
Prepared prepare_all_reduce(const OpCall& call, std::span<const Type> outputs) {
    return collective(call, outputs,
                      [dtype = call.inputs[0].dtype, n = call.inputs[0].numel()](
                          Communicator& group, const Communicator::Call& as, const void* x,
                          void* y) { group.all_reduce(as, x, y, n, dtype, by); },
                      /*in_place=*/true);
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

Prepared exchange(const OpCall& call, std::span<const Type> outputs, const PartExchange& parts) {
    return collective(
        call, outputs,
        [parts](Communicator& group, const Communicator::Call& as, const void* x, void* y) {
        const int rank = group.rank(), size = group.size();
        group.exchange(as, parts.sends(rank, size, x), parts.receives(rank, size, y));
        if (parts.bytes && parts.sends_to(rank, rank))
            std::memcpy(parts.to(y, rank), parts.from(x, rank), parts.bytes);
    });
}

Prepared prepare_gather(const OpCall& call, std::span<const Type> outputs) {
    return exchange(call, outputs, PartExchange::gather(call.inputs[0].bytes()));
}
Prepared prepare_scatter(const OpCall& call, std::span<const Type> outputs) {
    return exchange(call, outputs, PartExchange::scatter(outputs[0].bytes()));
}
Prepared prepare_all_to_all(const OpCall& call, std::span<const Type> outputs) {
    const size_t members = static_cast<size_t>(call.integer("size"));
    return exchange(call, outputs, PartExchange::all_to_all(outputs[0].bytes() / members));
}

Prepared prepare_send(const OpCall& call, std::span<const Type> outputs) {
    return collective(
        call, outputs, "a message",
        [peer = static_cast<int>(call.integer("peer")), bytes = call.inputs[0].bytes()](
            Communicator& group, const Communicator::Call& as, const void* x, void*) {
        group.send(as, {peer, x, bytes});
    });
}
Prepared prepare_receive(const OpCall& call, std::span<const Type> outputs) {
    return collective(call, outputs, "a message",
                      [peer = static_cast<int>(call.integer("peer")), bytes = outputs[0].bytes()](
                          Communicator& group, const Communicator::Call& as, const void*, void* y) {
        group.receive(as, {peer, y, bytes});
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
