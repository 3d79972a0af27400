#include "backends/processes/mpi/mpi_communicator.h"

#include <algorithm>
#include <cstring>

namespace megjit::processes::mpi {

using runtime::Combine;
using runtime::DType;
using runtime::IncomingBytes;
using runtime::OutgoingBytes;

namespace {

constexpr int64_t kMost = int64_t{1} << 30;  // MPI's counts are ints

// Adds steps body(at, n, ...) for pieces [at, at + n) that MPI can count.
template <class Begin, class Body>
void add_pieces(std::vector<Begin>& steps, int64_t count, const Body& body) {
    for (int64_t at = 0; at < count; at += kMost)
        steps.push_back([=](Handle comm, Handle* request) {
            return body(at, static_cast<int>(std::min(kMost, count - at)), comm, request);
        });
}

}  // namespace

MpiCommunicator::MpiCommunicator(std::shared_ptr<Engine> engine, std::shared_ptr<World> world,
                                 std::vector<int> members)
    : SocketCommunicator(std::move(world), std::move(members)), engine_(std::move(engine)) {}

void MpiCommunicator::run(Operation& op, const std::vector<Begin>& steps) {
    if (steps.empty()) return;
    std::vector<Handle> requests;
    op.accompany([&] {
        if (requests.empty()) {
            const Handle comm = engine_->communicator(group().members);
            for (const Begin& begin : steps) engine_->check(begin(comm, &requests.emplace_back()));
        }
        return std::ranges::all_of(requests, [&](Handle& each) { return engine_->is_done(each); });
    });
}

void MpiCommunicator::add_reduction(std::vector<Begin>& steps, const void* in, void* out,
                                    int64_t count, DType dtype, Combine by, int root) const {
    const auto width = static_cast<int64_t>(size_of(dtype));
    add_pieces(steps, count, [=, this](int64_t at, int n, Handle comm, Handle* request) {
        return engine_->reduce(
            behind(in, at * width), rank() == root ? behind(out, at * width) : nullptr, n,
            engine_->type_of(dtype), engine_->op_of(dtype, by), root, comm, request);
    });
}

void MpiCommunicator::add_broadcast(std::vector<Begin>& steps, void* data, int64_t bytes,
                                    int root) const {
    add_pieces(steps, bytes, [=, this](int64_t at, int n, Handle comm, Handle* request) {
        return engine_->broadcast(behind(data, at), n, engine_->bytes(), root, comm, request);
    });
}

void MpiCommunicator::all_reduce(const Call& call, const void* in, void* out, int64_t count,
                                 DType dtype, Combine by) {
    Operation op(group(), named(call));
    op.meet();
    const auto width = static_cast<int64_t>(size_of(dtype));
    std::vector<Begin> steps;
    add_pieces(steps, count, [=, this](int64_t at, int n, Handle comm, Handle* request) {
        return engine_->all_reduce(in == out ? engine_->in_place() : behind(in, at * width),
                                   behind(out, at * width), n, engine_->type_of(dtype),
                                   engine_->op_of(dtype, by), comm, request);
    });
    run(op, steps);
}

void MpiCommunicator::reduce(const Call& call, const void* in, void* out, int64_t count,
                             DType dtype, Combine by, int root) {
    Operation op(group(), named(call));
    op.meet();
    std::vector<Begin> steps;
    add_reduction(steps, in, out, count, dtype, by, root);
    run(op, steps);
}

void MpiCommunicator::reduce_scatter(const Call& call, const void* in, void* out, int64_t count,
                                     DType dtype, Combine by) {
    Operation op(group(), named(call));
    op.meet();
    const auto bytes = count * static_cast<int64_t>(size_of(dtype));
    std::vector<Begin> steps;
    if (count && count <= kMost)
        steps.push_back([=, this](Handle comm, Handle* request) {
            return engine_->reduce_scatter(in, out, static_cast<int>(count),
                                           engine_->type_of(dtype), engine_->op_of(dtype, by), comm,
                                           request);
        });
    else
        for (int member = 0; member < size(); ++member)
            add_reduction(steps, behind(in, member * bytes), out, count, dtype, by, member);
    run(op, steps);
}

void MpiCommunicator::all_gather(const Call& call, const void* in, void* out, size_t bytes) {
    Operation op(group(), named(call));
    op.meet();
    const auto count = static_cast<int64_t>(bytes);
    std::vector<Begin> steps;
    if (count && count <= kMost)
        steps.push_back([=, this](Handle comm, Handle* request) {
            const int n = static_cast<int>(count);
            return engine_->all_gather(in, n, engine_->bytes(), out, n, engine_->bytes(), comm,
                                       request);
        });
    else {
        if (bytes) std::memcpy(behind(out, rank() * count), in, bytes);
        for (int member = 0; member < size(); ++member)
            add_broadcast(steps, behind(out, member * count), count, member);
    }
    run(op, steps);
}

void MpiCommunicator::broadcast(const Call& call, const void* in, void* out, size_t bytes,
                                int root) {
    Operation op(group(), named(call));
    op.meet();
    if (rank() == root && in != out && bytes) std::memcpy(out, in, bytes);
    std::vector<Begin> steps;
    add_broadcast(steps, out, static_cast<int64_t>(bytes), root);
    run(op, steps);
}

void MpiCommunicator::exchange(const Call& call, std::span<const OutgoingBytes> sends,
                               std::span<const IncomingBytes> receives) {
    Operation op(group(), named(call));
    std::vector<Begin> steps;
    for (const IncomingBytes& part : receives) {
        op.receive(part.peer, nullptr, 0);
        add_pieces(steps, static_cast<int64_t>(part.bytes),
                   [=, this](int64_t at, int n, Handle comm, Handle* request) {
            return engine_->receive(behind(part.data, at), n, engine_->bytes(), part.peer,
                                    /*tag=*/0, comm, request);
        });
    }
    for (const OutgoingBytes& part : sends) {
        op.send(part.peer, nullptr, 0);
        add_pieces(steps, static_cast<int64_t>(part.bytes),
                   [=, this](int64_t at, int n, Handle comm, Handle* request) {
            return engine_->send(behind(part.data, at), n, engine_->bytes(), part.peer,
                                 /*tag=*/0, comm, request);
        });
    }
    op.run();
    run(op, steps);
}

}  // namespace megjit::processes::mpi
