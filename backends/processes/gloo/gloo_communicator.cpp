#include "backends/processes/gloo/gloo_communicator.h"

#include <chrono>
#include <cstring>
#include <future>
#include <string>
#include <thread>

#include "backends/processes/combine.h"

namespace megjit::processes::gloo {

using runtime::Combine;
using runtime::DType;
using runtime::IncomingBytes;
using runtime::OutgoingBytes;

namespace {

// Smaller vectors travel through the World's sockets: Gloo would begin only after these have met.
constexpr size_t kSmallBytes = 32 << 10;

constexpr std::chrono::microseconds kLook{50};
constexpr std::chrono::seconds kWork{1};  // how long work on received bytes may take
// Gloo's time limit ends this much later than the World's, for Gloo's error names no call.
constexpr double kLaterSeconds = 5;

struct Reducing : Reduction {
    Reducing(DType dtype, Combine by)
        : Reduction{&Reducing::combine_two, runtime::size_of(dtype)}, dtype(dtype), by(by) {}
    static void combine_two(const void* self, void* out, const void* a, const void* b, size_t n) {
        const auto& own = *static_cast<const Reducing*>(static_cast<const Reduction*>(self));
        const void* parts[] = {a, b};
        combine(parts, out, static_cast<int64_t>(n), own.dtype, own.by);
    }
    DType dtype;
    Combine by;
};

bool is_small(int64_t count, DType dtype) {
    return static_cast<size_t>(count) * runtime::size_of(dtype) <= kSmallBytes;
}

}  // namespace

GlooCommunicator::GlooCommunicator(std::shared_ptr<World> world, std::vector<int> members,
                                   std::shared_ptr<Engine> engine)
    : SocketCommunicator(std::move(world), std::move(members)), engine_(std::move(engine)) {}

GlooCommunicator::~GlooCommunicator() {
    if (context_) engine_->table().destroy(context_);
}

// The members tell each other their addresses through the World's sockets.
std::string GlooCommunicator::exchanged_addresses(Operation& op) {
    const auto row = static_cast<size_t>(size()) * kAddressBytes;
    std::string own(row, '\0'), theirs(row, '\0');
    check([&](char* error) {
        return engine_->table().create(engine_->device(), rank(), size(), seconds() + kLaterSeconds,
                                       &context_, own.data(), error);
    });
    op.for_others([&](int peer) {
        const size_t at = static_cast<size_t>(peer) * kAddressBytes;
        op.send(peer, own.data() + at, kAddressBytes);
        op.receive(peer, theirs.data() + at, kAddressBytes);
    });
    op.run();
    return theirs;
}

void GlooCommunicator::run(Operation& op, Body body) {
    const std::string addresses = context_ ? "" : exchanged_addresses(op);
    const Table& gloo = engine_->table();
    gloo.set_seconds(context_, seconds() + kLaterSeconds);
    std::packaged_task<void()> task([&gloo, context = context_, addresses, body = std::move(body)] {
        check([&](char* error) {
            return (addresses.empty() || gloo.connect(context, addresses.data(), error)) &&
                   body(gloo, context, error);
        });
    });
    auto done = task.get_future();
    std::thread(std::move(task)).detach();
    try {
        op.accompany([&] {
            if (done.wait_for(kLook) != std::future_status::ready) return false;
            done.get();
            return true;
        });
    } catch (...) {
        // Closed connections touch no memory any more, but do not wake a thread that waits for
        // them: one that does not end soon is left to its own time limit.
        gloo.close(context_);
        if (done.valid()) done.wait_for(kWork);
        throw;
    }
}

void GlooCommunicator::all_reduce(const Call& call, const void* in, void* out, int64_t count,
                                  DType dtype, Combine by) {
    if (is_small(count, dtype))
        return SocketCommunicator::all_reduce(call, in, out, count, dtype, by);
    Operation op(group(), named(call));
    op.meet();
    const Reducing reducing(dtype, by);
    run(op, [=](const Table& gloo, void* context, char* error) {
        return gloo.all_reduce(context, in, out, static_cast<size_t>(count), &reducing, error);
    });
}

void GlooCommunicator::reduce(const Call& call, const void* in, void* out, int64_t count,
                              DType dtype, Combine by, int root) {
    if (is_small(count, dtype))
        return SocketCommunicator::reduce(call, in, out, count, dtype, by, root);
    Operation op(group(), named(call));
    op.meet();
    const Reducing reducing(dtype, by);
    void* to = rank() == root ? out : op.scratch(static_cast<size_t>(count) * reducing.width);
    run(op, [=](const Table& gloo, void* context, char* error) {
        return gloo.reduce(context, in, to, static_cast<size_t>(count), &reducing, root, error);
    });
}

void GlooCommunicator::reduce_scatter(const Call& call, const void* in, void* out, int64_t count,
                                      DType dtype, Combine by) {
    if (is_small(count, dtype))
        return SocketCommunicator::reduce_scatter(call, in, out, count, dtype, by);
    Operation op(group(), named(call));
    op.meet();
    const size_t bytes = static_cast<size_t>(count) * runtime::size_of(dtype);
    std::byte* others = op.scratch(static_cast<size_t>(size() - 1) * bytes);
    const auto part = [&](int member) {
        return behind(const_cast<void*>(in), static_cast<size_t>(member) * bytes);
    };
    std::vector<Part> sends, receives;
    std::vector<const void*> in_order;
    for (int member = 0; member < size(); ++member) {
        if (member == rank()) {
            in_order.push_back(part(member));
            continue;
        }
        sends.push_back({member, part(member), bytes});
        receives.push_back({member, others, bytes});
        in_order.push_back(others);
        others += bytes;
    }
    run(op, [=](const Table& gloo, void* context, char* error) {
        return gloo.exchange(context, sends.data(), sends.size(), receives.data(), receives.size(),
                             error);
    });
    combine(in_order, out, count, dtype, by);
}

void GlooCommunicator::all_gather(const Call& call, const void* in, void* out, size_t bytes) {
    if (bytes <= kSmallBytes) return SocketCommunicator::all_gather(call, in, out, bytes);
    Operation op(group(), named(call));
    op.meet();
    run(op, [=](const Table& gloo, void* context, char* error) {
        return gloo.all_gather(context, in, out, bytes, error);
    });
}

void GlooCommunicator::broadcast(const Call& call, const void* in, void* out, size_t bytes,
                                 int root) {
    if (bytes <= kSmallBytes) return SocketCommunicator::broadcast(call, in, out, bytes, root);
    Operation op(group(), named(call));
    op.meet();
    if (rank() == root && in != out) std::memcpy(out, in, bytes);
    run(op, [=](const Table& gloo, void* context, char* error) {
        return gloo.broadcast(context, out, bytes, root, error);
    });
}

void GlooCommunicator::exchange(const Call& call, std::span<const OutgoingBytes> sends,
                                std::span<const IncomingBytes> receives) {
    Operation op(group(), named(call));
    std::vector<Part> sent, received;
    for (const OutgoingBytes& part : sends) {
        op.send(part.peer, nullptr, 0);
        if (part.bytes) sent.push_back({part.peer, const_cast<void*>(part.data), part.bytes});
    }
    for (const IncomingBytes& part : receives) {
        op.receive(part.peer, nullptr, 0);
        if (part.bytes) received.push_back({part.peer, part.data, part.bytes});
    }
    op.run();
    if (sent.empty() && received.empty()) return;
    run(op, [=](const Table& gloo, void* context, char* error) {
        return gloo.exchange(context, sent.data(), sent.size(), received.data(), received.size(),
                             error);
    });
}

}  // namespace megjit::processes::gloo
