// backends/cuda/kernels/collective.cpp -- collective operations and messages of a GPU's tensors, by
// NCCL (backends/cuda/nccl). Elements of dtypes that NCCL does not know move as bytes.
#include <map>
#include <optional>

#include "backends/cuda/kernels/collective.h"
#include "backends/cuda/kernels/executables.h"
#include "backends/cuda/nccl/group.h"
#include "runtime/core/part_exchange.h"
#include "runtime/host/user_line.h"

namespace megjit::cuda {
namespace {

using nccl::Comm;
using nccl::Group;
using nccl::kInProgress;
using nccl::Library;
using nccl::Reduction;
using nccl::Status;
using runtime::Combine;
using runtime::PartExchange;

// How elements of a dtype are combined: each as `each` elements of an NCCL type.
struct Combined {
    nccl::Type type = nccl::Type::f32;
    Reduction by = Reduction::sum;
    size_t each = 1;
};

Reduction plain(Combine by) {
    switch (by) {
        case Combine::sum: return Reduction::sum;
        case Combine::prod: return Reduction::prod;
        case Combine::max: return Reduction::max;
        case Combine::min: return Reduction::min;
    }
    return {};
}

std::optional<Combined> combined(DType dtype, Combine by) {
    switch (dtype) {
        case DType::f32: return Combined{nccl::Type::f32, plain(by)};
        case DType::f16: return Combined{nccl::Type::f16, plain(by)};
        case DType::bf16: return Combined{nccl::Type::bf16, plain(by)};
        case DType::i32: return Combined{nccl::Type::i32, plain(by)};
        case DType::i8: return Combined{nccl::Type::i8, plain(by)};
        case DType::u8: return Combined{nccl::Type::u8, plain(by)};
        case DType::b8: {  // 0 or 1
            const bool is_or = by == Combine::sum || by == Combine::max;
            return Combined{nccl::Type::u8, is_or ? Reduction::max : Reduction::min};
        }
        case DType::c64:
            if (by != Combine::sum) return {};
            return Combined{nccl::Type::f32, Reduction::sum, 2};
        case DType::i16:
        case DType::u16:
        case DType::f64:
        case DType::i64: return {};
    }
    return {};
}

constexpr nccl::Type kBytes = nccl::Type::u8;

struct Options {
    bool in_place = false;  // y may be x
    PartExchange parts = {};  // a member copies the parts that it keeps
    int peer = runtime::Communicator::kAll;  // the other member of a message
};

// `work` calls NCCL; its y is null where this process has no result. Without `elements` the members
// only meet. The last result is the number for `after`.
template <class Work>
Prepared collective(CudaDevice& device, const OpCall& call, std::span<const Type> outputs,
                    int64_t elements, Work work, const Options& options = {}) {
    const bool is_message = options.peer != runtime::Communicator::kAll;
    const Type& subject = is_message && outputs.size() > 1 ? outputs[0] : call.inputs[0];
    return executable(
        [&device, work, elements, parts = options.parts, peer = options.peer,
         results = outputs.size(), key = call.text("group"), claims = runtime::claims_of(call),
         what = cat(is_message ? "a message" : call.op.name, " of ", to_string(subject),
                    " on GPUs, by NCCL,")](CudaStream& stream, void* const* in, void* const* out,
                                           void*) {
        const std::shared_ptr<Group> group = Group::of(device.gpu(), key, claims);
        const void* x = in[0];
        void* y = results > 1 ? out[0] : nullptr;
        Group::Queue queue;
        if (elements)
            queue = [&](const Library& library, Comm comm, StreamHandle handle) {
                return work(*group, x, y, library, comm, handle);
            };
        group->run({{what, runtime::user_line()}, peer}, stream,
                   dynamic_cast<CudaStream&>(device.stream()), queue);
        if (const int rank = group->rank(); parts.sends_to(rank, rank))
            stream.copy(parts.to(y, rank), parts.from(x, rank), parts.bytes);
        stream.clear(reinterpret_cast<Address>(out[results - 1]), sizeof(float));
    },
        0, options.in_place);
}

template <Combine by>
Prepared prepare_all_reduce(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    const Type& type = call.inputs[0];
    const std::optional<Combined> as = combined(type.dtype, by);
    if (!as) return nullptr;
    return collective(device, call, outputs, type.numel(),
                      [as = *as, n = as->each * static_cast<size_t>(type.numel())](
                          const Group&, const void* x, void* y, const Library& library, Comm comm,
                          StreamHandle stream) {
        return library.all_reduce(x, y, n, as.type, as.by, comm, stream);
    },
                      {.in_place = true});
}

Prepared prepare_reduce(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    const Type& type = call.inputs[0];
    const std::optional<Combined> as = combined(type.dtype, Combine::sum);
    if (!as) return nullptr;
    return collective(device, call, outputs, type.numel(),
                      [as = *as, n = as->each * static_cast<size_t>(type.numel())](
                          const Group&, const void* x, void* y, const Library& library, Comm comm,
                          StreamHandle stream) {
        return library.reduce(x, y, n, as.type, as.by, 0, comm, stream);
    });
}

Prepared prepare_reduce_scatter(CudaDevice& device, const OpCall& call,
                                std::span<const Type> outputs) {
    const Type& part = outputs[0];
    const std::optional<Combined> as = combined(part.dtype, Combine::sum);
    if (!as) return nullptr;
    return collective(device, call, outputs, part.numel(),
                      [as = *as, n = as->each * static_cast<size_t>(part.numel())](
                          const Group&, const void* x, void* y, const Library& library, Comm comm,
                          StreamHandle stream) {
        return library.reduce_scatter(x, y, n, as.type, as.by, comm, stream);
    });
}

Prepared prepare_broadcast(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    return collective(
        device, call, outputs, outputs[0].numel(),
        [bytes = outputs[0].bytes()](const Group&, const void* x, void* y, const Library& library,
                                     Comm comm, StreamHandle stream) {
        return library.broadcast(x, y, bytes, kBytes, 0, comm, stream);
    });
}

Prepared prepare_all_gather(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    return collective(
        device, call, outputs, call.inputs[0].numel(),
        [bytes = call.inputs[0].bytes()](const Group&, const void* x, void* y,
                                         const Library& library, Comm comm, StreamHandle stream) {
        return library.all_gather(x, y, bytes, kBytes, comm, stream);
    });
}

// All parts travel at once, for a sender waits for its receiver.
Status send_and_receive(std::span<const runtime::OutgoingBytes> sends,
                        std::span<const runtime::IncomingBytes> receives, const Library& library,
                        Comm comm, StreamHandle stream) {
    // A communicator that does not block may report at each call that it is in progress.
    const auto has_failed = [](Status status) { return status && status != kInProgress; };
    Status status = library.begin_group();
    for (const auto& part : sends)
        if (!has_failed(status))
            status = library.send(part.data, part.bytes, kBytes, part.peer, comm, stream);
    for (const auto& part : receives)
        if (!has_failed(status))
            status = library.receive(part.data, part.bytes, kBytes, part.peer, comm, stream);
    const Status end = library.end_group();
    return has_failed(status) ? status : end;
}

Prepared exchange(CudaDevice& device, const OpCall& call, std::span<const Type> outputs,
                  const PartExchange& parts) {
    return collective(device, call, outputs, static_cast<int64_t>(parts.bytes),
                      [parts](const Group& group, const void* x, void* y, const Library& library,
                              Comm comm, StreamHandle stream) {
        return send_and_receive(parts.sends(group.rank(), group.size(), x),
                                parts.receives(group.rank(), group.size(), y), library, comm,
                                stream);
    },
                      {.parts = parts});
}

Prepared prepare_gather(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    return exchange(device, call, outputs, PartExchange::gather(call.inputs[0].bytes()));
}
Prepared prepare_scatter(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    return exchange(device, call, outputs, PartExchange::scatter(outputs[0].bytes()));
}
Prepared prepare_all_to_all(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    const size_t members = static_cast<size_t>(call.integer("size"));
    return exchange(device, call, outputs, PartExchange::all_to_all(outputs[0].bytes() / members));
}

Prepared prepare_send(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    const int peer = static_cast<int>(call.integer("peer"));
    return collective(
        device, call, outputs, call.inputs[0].numel(),
        [peer, bytes = call.inputs[0].bytes()](
            const Group&, const void* x, void*, const Library& library, Comm comm,
            StreamHandle stream) { return library.send(x, bytes, kBytes, peer, comm, stream); },
        {.peer = peer});
}
Prepared prepare_receive(CudaDevice& device, const OpCall& call, std::span<const Type> outputs) {
    const int peer = static_cast<int>(call.integer("peer"));
    return collective(
        device, call, outputs, outputs[0].numel(),
        [peer, bytes = outputs[0].bytes()](const Group&, const void*, void* y,
                                           const Library& library, Comm comm, StreamHandle stream) {
        return library.receive(y, bytes, kBytes, peer, comm, stream);
    },
        {.peer = peer});
}

// The ops that combine elements, and how.
const std::map<std::string_view, Combine>& combining() {
    static const std::map<std::string_view, Combine> table = {
        {"all_reduce_sum", Combine::sum},     {"all_reduce_prod", Combine::prod},
        {"all_reduce_max", Combine::max},     {"all_reduce_min", Combine::min},
        {"reduce_sum_to_root", Combine::sum}, {"reduce_scatter_sum", Combine::sum},
    };
    return table;
}

}  // namespace

bool exchanged_by_nccl(std::string_view op, DType dtype) {
    const auto found = combining().find(op);
    return found == combining().end() || combined(dtype, found->second);
}

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

}  // namespace megjit::cuda
