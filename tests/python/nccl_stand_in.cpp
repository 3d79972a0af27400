// tests/python/nccl_stand_in.cpp -- a library with NCCL's ABI, for emulated cards: processes
// exchange bytes through sockets, between copies that are queued on the caller's stream. As strict
// as NCCL's documentation: calls of a communicator that does not block are queued a while later,
// nothing may be called meanwhile, and who waits for a process that is gone waits until he is
// aborted.
//
// MEGJIT_STAND_IN_VERSION: what it says it is. MEGJIT_STAND_IN_FAULT: "N remote": the N-th
// operation of a communicator fails later; "N hang": it never ends; "N die": it kills the process;
// "connect": nobody gets connected.
#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/host/half.h"

namespace {

constexpr int kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6, kInProgress = 7;

[[noreturn]] void misuse(const char* what) {
    std::fprintf(stderr, "stand-in of NCCL: %s\n", what);
    std::abort();
}

// ---- the driver, which is loaded already

using Stream = void*;
template <class Fn>
Fn driver(const char* name) {
    static void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void* found = library ? dlsym(library, name) : nullptr;
    if (!found) misuse(name);
    return reinterpret_cast<Fn>(found);
}
template <class... Args>
void call(const char* name, Args... args) {
    if (driver<int (*)(Args...)>(name)(args...) != 0) misuse(name);
}
void download(void* to, const void* from, size_t bytes, Stream stream) {
    if (bytes) call("cuMemcpyDtoHAsync_v2", to, reinterpret_cast<uint64_t>(from), bytes, stream);
}
void upload(void* to, const void* from, size_t bytes, Stream stream) {
    if (bytes) call("cuMemcpyHtoDAsync_v2", reinterpret_cast<uint64_t>(to), from, bytes, stream);
}
std::shared_ptr<std::byte[]> pinned(size_t bytes) {  // never freed: a test is short
    void* memory = nullptr;
    call("cuMemHostAlloc", &memory, bytes + 1, 0u);
    return {static_cast<std::byte*>(memory), [](std::byte*) {}};
}

// ---- one operation

struct Part {  // of an exchange, in memory of the host
    int peer;
    std::byte* data;
    size_t bytes;
};
struct Copy {  // between a GPU and the host
    const void* device;
    std::byte* host;
    size_t bytes;
};
struct Operation {
    uint64_t kind = 0;  // what all must agree on
    std::vector<Copy> downloads, uploads;
    std::vector<Part> sends, receives;
    std::function<void()> combine = [] {};
    Stream stream = nullptr;
};

std::atomic<int> operations{0};  // of all communicators

struct Header {
    uint64_t kind, bytes;
};

struct Comm {
    Comm(int rank, int size) : rank(rank), size(size), sockets(static_cast<size_t>(size), -1) {}
    const int rank, size;
    std::vector<int> sockets;
    void* context = nullptr;
    std::atomic<int> state{kInProgress};
    std::atomic<bool> is_aborted{false};
    std::atomic<int> working{0}, count{0};
    std::string last_error;
    std::mutex mutex;  // of exchanges

    bool move(int socket, void* data, size_t bytes, bool sends) {
        auto* at = static_cast<std::byte*>(data);
        while (bytes) {
            if (is_aborted) return false;
            pollfd polled{socket, static_cast<short>(sends ? POLLOUT : POLLIN), 0};
            if (poll(&polled, 1, 5) <= 0) continue;
            const ssize_t moved = sends ? ::send(socket, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                                        : ::recv(socket, at, bytes, MSG_DONTWAIT);
            if (moved < 0 && (errno == EAGAIN || errno == EINTR)) continue;
            if (moved <= 0) return hang();
            at += moved, bytes -= static_cast<size_t>(moved);
        }
        return true;
    }
    bool hang() {
        while (!is_aborted) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return false;
    }
    bool send(const Part& part, uint64_t kind) {
        Header header{kind, part.bytes};
        const int socket = sockets[static_cast<size_t>(part.peer)];
        return move(socket, &header, sizeof header, true) &&
               move(socket, part.data, part.bytes, true);
    }
    bool receive(const Part& part, uint64_t kind) {
        Header header{};
        const int socket = sockets[static_cast<size_t>(part.peer)];
        if (!move(socket, &header, sizeof header, false)) return false;
        if (header.kind != kind || header.bytes != part.bytes)
            misuse("processes make different calls");
        return move(socket, part.data, part.bytes, false);
    }
    void exchange(const Operation& op) {
        const std::lock_guard lock(mutex);
        std::thread sender([&] {
            for (const Part& part : op.sends)
                if (!send(part, op.kind)) return;
        });
        bool is_whole = true;
        for (const Part& part : op.receives) is_whole = is_whole && receive(part, op.kind);
        sender.join();
        if (is_whole) op.combine();
    }
    // Fails, hangs or dies, if the environment says so.
    bool is_spoilt(int number) {
        const char* fault = std::getenv("MEGJIT_STAND_IN_FAULT");
        if (!fault || std::atoi(fault) != number) return false;
        if (std::strstr(fault, "die")) raise(SIGKILL);
        if (std::strstr(fault, "remote")) {
            last_error = "the network is down";
            state = kRemoteError;
        }
        return std::strstr(fault, "remote") || std::strstr(fault, "hang");
    }
    void queue(std::shared_ptr<Operation> op) {
        call("cuCtxSetCurrent", context);
        for (const Copy& copy : op->downloads)
            download(copy.host, copy.device, copy.bytes, op->stream);
        struct Task {
            Comm* comm;
            std::shared_ptr<Operation> op;
            int number;
        };
        void (*run)(void*) = [](void* data) {
            const std::unique_ptr<Task> task(static_cast<Task*>(data));
            if (task->comm->is_spoilt(task->number)) task->comm->hang();
            else task->comm->exchange(*task->op);
            --task->comm->working;
        };
        ++working, ++operations;
        call("cuLaunchHostFunc", op->stream, run, static_cast<void*>(new Task{this, op, ++count}));
        for (const Copy& copy : op->uploads)
            upload(const_cast<void*>(copy.device), copy.host, copy.bytes, op->stream);
    }
};

Comm& checked(Comm* comm) {
    if (!comm || comm->is_aborted) misuse("a communicator that was aborted is used");
    return *comm;
}

// Later, as a communicator that does not block does it.
int queue_later(Comm& comm, std::shared_ptr<Operation> op) {
    int expected = 0;
    if (!comm.state.compare_exchange_strong(expected, kInProgress)) return kInvalidUsage;
    ++comm.working;
    std::thread([&comm, op = std::move(op)] {
        std::this_thread::sleep_for(std::chrono::microseconds(rand() % 500));
        if (!comm.is_aborted) comm.queue(op);
        int waiting = kInProgress;
        comm.state.compare_exchange_strong(waiting, 0);
        --comm.working;
    }).detach();
    return kInProgress;
}

// ---- groups of sends and receives

thread_local int depth = 0;
thread_local Comm* grouped = nullptr;
thread_local std::shared_ptr<Operation> group;

int submit(Comm& comm, std::shared_ptr<Operation> op) {
    if (depth == 0) return queue_later(comm, std::move(op));
    if (!group) {
        group = std::move(op);
        grouped = &comm;
        return 0;
    }
    const auto join = [](auto& to, auto& from) { to.insert(to.end(), from.begin(), from.end()); };
    join(group->downloads, op->downloads);
    join(group->uploads, op->uploads);
    join(group->sends, op->sends);
    join(group->receives, op->receives);
    return 0;
}

// ---- elements

size_t size_of(int type) {
    switch (type) {
        case 0:
        case 1: return 1;
        case 6:
        case 9: return 2;
        case 2:
        case 7: return 4;
        default: misuse("a dtype that nobody uses");
    }
}
template <class T>
T combined(T a, T b, int by) {
    switch (by) {
        case 0: return static_cast<T>(a + b);
        case 1: return static_cast<T>(a * b);
        case 2: return std::max(a, b);
        case 3: return std::min(a, b);
        default: misuse("a reduction that nobody uses");
    }
}
template <class T, class Wide, class Widen, class Narrow>
void combine_as(std::byte* to, const std::byte* with, size_t count, int by, Widen widen,
                Narrow narrow) {
    auto* x = reinterpret_cast<T*>(to);
    const auto* y = reinterpret_cast<const T*>(with);
    for (size_t i = 0; i < count; ++i)
        x[i] = static_cast<T>(narrow(combined<Wide>(widen(x[i]), widen(y[i]), by)));
}
void combine(std::byte* to, const std::byte* with, size_t count, int type, int by) {
    const auto same = [](auto v) { return v; };
    using namespace megjit::runtime;
    switch (type) {
        case 0: return combine_as<int8_t, int8_t>(to, with, count, by, same, same);
        case 1: return combine_as<uint8_t, uint8_t>(to, with, count, by, same, same);
        case 2: return combine_as<int32_t, int64_t>(to, with, count, by, same, same);
        case 6:
            return combine_as<uint16_t, float>(to, with, count, by, half_to_float, float_to_half);
        case 7: return combine_as<float, float>(to, with, count, by, same, same);
        case 9:
            return combine_as<uint16_t, float>(to, with, count, by, bfloat_to_float,
                                               float_to_bfloat);
        default: misuse("a dtype that nobody uses");
    }
}

uint64_t kind_of(int function, size_t count, int type, int by) {
    return ((count * 16 + static_cast<uint64_t>(type)) * 8 + static_cast<uint64_t>(by)) * 8 +
           static_cast<uint64_t>(function);
}

// `to_each`: part k of `in` is for process k; else all of it is for each that receives.
int reduction(const void* in, void* out, size_t count, int type, int by, Comm& comm, Stream stream,
              int function, bool to_each, const std::function<bool(int)>& receives) {
    const size_t bytes = count * size_of(type), size = static_cast<size_t>(comm.size),
                 whole = to_each ? size * bytes : bytes;
    auto op = std::make_shared<Operation>();
    op->stream = stream;
    op->kind = kind_of(function, count, type, by);
    auto own = pinned(whole);
    op->downloads.push_back({in, own.get(), whole});
    const auto part = [&](int peer) {
        return own.get() + (to_each ? static_cast<size_t>(peer) * bytes : 0);
    };
    for (int peer = 0; peer < comm.size; ++peer)
        if (peer != comm.rank && receives(peer)) op->sends.push_back({peer, part(peer), bytes});
    if (receives(comm.rank)) {
        auto all = pinned(size * bytes);
        const auto at = [bytes](const auto& memory, int peer) {
            return memory.get() + static_cast<size_t>(peer) * bytes;
        };
        for (int peer = 0; peer < comm.size; ++peer)
            if (peer != comm.rank) op->receives.push_back({peer, at(all, peer), bytes});
        op->combine = [=, mine = part(comm.rank), rank = comm.rank, ranks = comm.size] {
            std::memcpy(at(all, rank), mine, bytes);
            for (int peer = 1; peer < ranks; ++peer)
                combine(at(all, 0), at(all, peer), count, type, by);
        };
        op->uploads.push_back({out, all.get(), bytes});
    }
    return submit(comm, op);
}

std::string address_of(const char* id, int rank) {
    return std::string("megjit-nccl-") + id + "-" + std::to_string(rank);
}
sockaddr_un address(const std::string& name, socklen_t* length) {
    sockaddr_un made{};
    made.sun_family = AF_UNIX;
    std::memcpy(made.sun_path + 1, name.data(), name.size());  // abstract: no file
    *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return made;
}

void connect_all(Comm& comm, const std::string& id, int listener) {
    for (int peer = 0; peer < comm.rank; ++peer) {
        socklen_t length = 0;
        const sockaddr_un to = address(address_of(id.c_str(), peer), &length);
        const int made = socket(AF_UNIX, SOCK_STREAM, 0);
        while (connect(made, reinterpret_cast<const sockaddr*>(&to), length) != 0) {
            if (comm.is_aborted) return;
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
        ::send(made, &comm.rank, sizeof comm.rank, MSG_NOSIGNAL);
        comm.sockets[static_cast<size_t>(peer)] = made;
    }
    for (int peer = comm.rank + 1; peer < comm.size; ++peer) {
        pollfd polled{listener, POLLIN, 0};
        while (poll(&polled, 1, 5) <= 0)
            if (comm.is_aborted) return;
        const int made = accept(listener, nullptr, nullptr);
        int rank = -1;
        if (recv(made, &rank, sizeof rank, MSG_WAITALL) != sizeof rank) return;
        comm.sockets[static_cast<size_t>(rank)] = made;
    }
    close(listener);
    comm.state = 0;
}

}  // namespace

#define API extern "C" __attribute__((visibility("default")))

struct Id {
    char text[128];
};
struct Config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

API int ncclGetVersion(int* version) {
    const char* told = std::getenv("MEGJIT_STAND_IN_VERSION");
    *version = told ? std::atoi(told) : 22809;
    return 0;
}
API const char* ncclGetErrorString(int status) {
    return status == kRemoteError ? "remote process exited or there was a network error"
                                  : "invalid usage";
}
API const char* ncclGetLastError(Comm* comm) { return comm ? comm->last_error.c_str() : ""; }
API int ncclGetUniqueId(Id* id) {
    static std::atomic<int> count{0};
    std::snprintf(id->text, sizeof id->text, "%d.%d", getpid(), ++count);
    return 0;
}
API int ncclCommInitRankConfig(Comm** comm, int size, Id id, int rank, Config* config) {
    if (config->size != sizeof(Config) || config->magic != 0xcafebeef || config->version != 21400 ||
        config->blocking != 0 || rank < 0 || rank >= size)
        return kInvalidArgument;
    *comm = new Comm(rank, size);
    call("cuCtxGetCurrent", &(*comm)->context);
    if (!(*comm)->context) misuse("no context is current");
    const char* fault = std::getenv("MEGJIT_STAND_IN_FAULT");
    if (fault && !std::strcmp(fault, "connect")) return kInProgress;
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    socklen_t length = 0;
    const sockaddr_un own = address(address_of(id.text, rank), &length);
    if (bind(listener, reinterpret_cast<const sockaddr*>(&own), length) != 0 ||
        listen(listener, size) != 0)
        misuse("cannot listen");
    std::thread([made = *comm, name = std::string(id.text), listener] {
        connect_all(*made, name, listener);
    }).detach();
    return kInProgress;
}
API int ncclCommGetAsyncError(Comm* comm, int* state) {
    *state = checked(comm).state;
    return 0;
}
// What was queued ends; nobody may use it any more, so nothing is given back.
API int ncclCommAbort(Comm* comm) {
    checked(comm).is_aborted = true;
    while (comm->working) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (const int socket : comm->sockets)
        if (socket >= 0) close(socket);
    return 0;
}

API int ncclGroupStart() { return ++depth, 0; }
API int ncclGroupEnd() {
    if (--depth || !group) return 0;
    Comm* comm = std::exchange(grouped, nullptr);
    return queue_later(*comm, std::exchange(group, nullptr));
}

API int ncclAllReduce(const void* in, void* out, size_t count, int type, int by, Comm* comm,
                      Stream stream) {
    return reduction(in, out, count, type, by, checked(comm), stream, 1, false,
                     [](int) { return true; });
}
API int ncclReduce(const void* in, void* out, size_t count, int type, int by, int root, Comm* comm,
                   Stream stream) {
    return reduction(in, out, count, type, by, checked(comm), stream, 2, false,
                     [root](int rank) { return rank == root; });
}
API int ncclReduceScatter(const void* in, void* out, size_t count, int type, int by, Comm* comm,
                          Stream stream) {
    return reduction(in, out, count, type, by, checked(comm), stream, 3, true,
                     [](int) { return true; });
}
API int ncclBroadcast(const void* in, void* out, size_t count, int type, int root, Comm* given,
                      Stream stream) {
    Comm& comm = checked(given);
    const size_t bytes = count * size_of(type);
    auto op = std::make_shared<Operation>();
    op->stream = stream;
    op->kind = kind_of(4, count, type, 0);
    auto memory = pinned(bytes);
    if (comm.rank == root) {
        op->downloads.push_back({in, memory.get(), bytes});
        for (int peer = 0; peer < comm.size; ++peer)
            if (peer != root) op->sends.push_back({peer, memory.get(), bytes});
    } else {
        op->receives.push_back({root, memory.get(), bytes});
    }
    op->uploads.push_back({out, memory.get(), bytes});
    return submit(comm, op);
}
API int ncclAllGather(const void* in, void* out, size_t count, int type, Comm* given,
                      Stream stream) {
    Comm& comm = checked(given);
    const size_t bytes = count * size_of(type);
    auto op = std::make_shared<Operation>();
    op->stream = stream;
    op->kind = kind_of(5, count, type, 0);
    auto all = pinned(bytes * static_cast<size_t>(comm.size));
    const auto at = [&](int peer) { return all.get() + static_cast<size_t>(peer) * bytes; };
    op->downloads.push_back({in, at(comm.rank), bytes});
    for (int peer = 0; peer < comm.size; ++peer) {
        if (peer == comm.rank) continue;
        op->sends.push_back({peer, at(comm.rank), bytes});
        op->receives.push_back({peer, at(peer), bytes});
    }
    op->uploads.push_back({out, all.get(), bytes * static_cast<size_t>(comm.size)});
    return submit(comm, op);
}
// In a group they say that they are in progress, as a communicator that does not block may.
int submit_part(Comm& comm, const std::shared_ptr<Operation>& op) {
    const int status = submit(comm, op);
    return depth && status == 0 ? kInProgress : status;
}
API int ncclSend(const void* in, size_t count, int type, int peer, Comm* comm, Stream stream) {
    const size_t bytes = count * size_of(type);
    auto op = std::make_shared<Operation>();
    op->stream = stream;
    auto memory = pinned(bytes);
    op->downloads.push_back({in, memory.get(), bytes});
    op->sends.push_back({peer, memory.get(), bytes});
    return submit_part(checked(comm), op);
}
API int ncclRecv(void* out, size_t count, int type, int peer, Comm* comm, Stream stream) {
    const size_t bytes = count * size_of(type);
    auto op = std::make_shared<Operation>();
    op->stream = stream;
    auto memory = pinned(bytes);
    op->receives.push_back({peer, memory.get(), bytes});
    op->uploads.push_back({out, memory.get(), bytes});
    return submit_part(checked(comm), op);
}
// For tests: how many operations were queued.
API int megjit_stand_in_operations() { return operations; }
