#include "backends/processes/mpi/mpi_communicator.h"

#include <algorithm>
#include <cstring>

namespace megjit::processes::mpi {

using runtime::Combine;
using runtime::DType;
using runtime::IncomingBytes;
using runtime::OutgoingBytes;

namespace {

constexpr int64_t kMost = int64_t{1} << 30;  // MPI counts by ints

std::byte* behind(void* start, int64_t bytes) { return static_cast<std::byte*>(start) + bytes; }
const std::byte* behind(const void* start, int64_t bytes) {
    return static_cast<const std::byte*>(start) + bytes;
}

// Calls body(at, n) for pieces [at, at + n) that MPI can count.
template <class Body>
void for_countable(int64_t count, Body&& body) {
    for (int64_t at = 0; at < count; at += kMost)
        body(at, static_cast<int>(std::min(kMost, count - at)));
}

}  // namespace

MpiCommunicator::MpiCommunicator(std::shared_ptr<Engine> engine, std::shared_ptr<World> world,
                                 std::vector<int> members)
    : SocketCommunicator(std::move(world), std::move(members)), engine_(std::move(engine)) {}

void MpiCommunicator::run(Operation& op, std::vector<Begin> steps) {
    if (steps.empty()) return;
    std::vector<Handle> requests;
    op.accompany([&] {
        if (requests.empty()) {
            const Handle comm = engine_->communicator(group().members);
            for (const Begin& begin : steps) begin(comm, &requests.emplace_back());
        }
        return std::ranges::all_of(requests, [&](Handle& each) { return engine_->is_done(each); });
    });
}

void MpiCommunicator::all_reduce(const Call& call, const void* in, void* out, int64_t count,
                                 DType dtype, Combine by) {
    Operation op(group(), named(call));
    op.meet();
    const auto width = static_cast<int64_t>(size_of(dtype));
    std::vector<Begin> steps;
    for_countable(count, [&](int64_t at, int n) {
        steps.push_back([=, this](Handle comm, Handle* request) {
            engine_->check(engine_->all_reduce(
                in == out ? engine_->in_place() : behind(in, at * width), behind(out, at * width),
                n, engine_->type_of(dtype), engine_->op_of(dtype, by), comm, request));
        });
    });
    run(op, std::move(steps));
}

void MpiCommunicator::reduce(const Call& call, const void* in, void* out, int64_t count,
                             DType dtype, Combine by, int root) {
    Operation op(group(), named(call));
    op.meet();
    const auto width = static_cast<int64_t>(size_of(dtype));
    std::vector<Begin> steps;
    for_countable(count, [&](int64_t at, int n) {
        steps.push_back([=, this](Handle comm, Handle* request) {
            engine_->check(engine_->reduce(
                behind(in, at * width), rank() == root ? behind(out, at * width) : nullptr, n,
                engine_->type_of(dtype), engine_->op_of(dtype, by), root, comm, request));
        });
    });
    run(op, std::move(steps));
}

void MpiCommunicator::reduce_scatter(const Call& call, const void* in, void* out, int64_t count,
                                     DType dtype, Combine by) {
    Operation op(group(), named(call));
    op.meet();
    const auto width = static_cast<int64_t>(size_of(dtype));
    std::vector<Begin> steps;
    if (count && count <= kMost)
        steps.push_back([=, this](Handle comm, Handle* request) {
            engine_->check(engine_->reduce_scatter(in, out, static_cast<int>(count),
                                                   engine_->type_of(dtype),
                                                   engine_->op_of(dtype, by), comm, request));
        });
    else
        for (int member = 0; member < size(); ++member)
            for_countable(count, [&](int64_t at, int n) {
                steps.push_back([=, this](Handle comm, Handle* request) {
                    engine_->check(engine_->reduce(
                        behind(in, (member * count + at) * width),
                        rank() == member ? behind(out, at * width) : nullptr, n,
                        engine_->type_of(dtype), engine_->op_of(dtype, by), member, comm, request));
                });
            });
    run(op, std::move(steps));
}

void MpiCommunicator::all_gather(const Call& call, const void* in, void* out, size_t bytes) {
    Operation op(group(), named(call));
    op.meet();
    const auto count = static_cast<int64_t>(bytes);
    std::vector<Begin> steps;
    if (count && count <= kMost)
        steps.push_back([=, this](Handle comm, Handle* request) {
            const int n = static_cast<int>(count);
            engine_->check(engine_->all_gather(in, n, engine_->bytes(), out, n, engine_->bytes(),
                                               comm, request));
        });
    else {
        if (bytes) std::memcpy(behind(out, rank() * count), in, bytes);
        for (int member = 0; member < size(); ++member)
            for_countable(count, [&](int64_t at, int n) {
                steps.push_back([=, this](Handle comm, Handle* request) {
                    engine_->check(engine_->broadcast(behind(out, member * count + at), n,
                                                      engine_->bytes(), member, comm, request));
                });
            });
    }
    run(op, std::move(steps));
}

void MpiCommunicator::broadcast(const Call& call, const void* in, void* out, size_t bytes,
                                int root) {
    Operation op(group(), named(call));
    op.meet();
    if (rank() == root && in != out && bytes) std::memcpy(out, in, bytes);
    std::vector<Begin> steps;
    for_countable(static_cast<int64_t>(bytes), [&](int64_t at, int n) {
        steps.push_back([=, this](Handle comm, Handle* request) {
            engine_->check(
                engine_->broadcast(behind(out, at), n, engine_->bytes(), root, comm, request));
        });
    });
    run(op, std::move(steps));
}

void MpiCommunicator::exchange(const Call& call, std::span<const OutgoingBytes> sends,
                               std::span<const IncomingBytes> receives) {
    Operation op(group(), named(call));
    std::vector<Begin> steps;
    for (const IncomingBytes& part : receives) {
        op.receive(part.peer, nullptr, 0);
        for_countable(static_cast<int64_t>(part.bytes), [&](int64_t at, int n) {
            steps.push_back([=, this](Handle comm, Handle* request) {
                engine_->check(engine_->receive(behind(part.data, at), n, engine_->bytes(),
                                                part.peer, /*tag=*/0, comm, request));
            });
        });
    }
    for (const OutgoingBytes& part : sends) {
        op.send(part.peer, nullptr, 0);
        for_countable(static_cast<int64_t>(part.bytes), [&](int64_t at, int n) {
            steps.push_back([=, this](Handle comm, Handle* request) {
                engine_->check(engine_->send(behind(part.data, at), n, engine_->bytes(), part.peer,
                                             /*tag=*/0, comm, request));
            });
        });
    }
    op.run();
    run(op, std::move(steps));
}

}  // namespace megjit::processes::mpi
