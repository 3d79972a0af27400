// The plug-in: Gloo's collective operations behind plain C. No other code of ours sees Gloo.
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/context.h>
#include <gloo/reduce.h>
#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "backends/processes/gloo/abi.h"

namespace megjit::processes::gloo { namespace {

using Device = std::shared_ptr<::gloo::transport::Device>;

constexpr double kMostMilliseconds = 1e12;  // Gloo adds it to the present time

// The members of a group, which tell each other their addresses through us.
class Members final : public ::gloo::Context {
public:
    // A connection takes the time limit that is set when it is made. Gloo itself sets none: the
    // value is what the memory held before, and one that is not valid ends the process in Gloo's
    // thread.
    Members(Device device, int rank, int size, double seconds)
        : ::gloo::Context(rank, size), sent(peers()), received(peers()) {
        device_ = std::move(device);
        transportContext_ = device_->createContext(rank, size);
        set_seconds(seconds);
    }
    void set_seconds(double seconds) {
        const std::chrono::milliseconds timeout(
            static_cast<int64_t>(std::clamp(seconds * 1000, 1., kMostMilliseconds)));
        setTimeout(timeout);
        transportContext_->setTimeout(timeout);
    }
    void tell(char* addresses) {
        for_others([&](int peer) {
            const auto own = transportContext_->createPair(peer)->address().bytes();
            if (own.size() + sizeof(size_t) > kAddressBytes)
                throw std::runtime_error("the address of a connection is too long");
            char* place = addresses + static_cast<size_t>(peer) * kAddressBytes;
            const size_t bytes = own.size();
            std::memcpy(place, &bytes, sizeof bytes);
            std::memcpy(place + sizeof bytes, own.data(), bytes);
        });
    }
    void connect(const char* addresses) {
        for_others([&](int peer) {
            const char* place = addresses + static_cast<size_t>(peer) * kAddressBytes;
            size_t bytes = 0;
            std::memcpy(&bytes, place, sizeof bytes);
            if (bytes + sizeof bytes > kAddressBytes)
                throw std::runtime_error("what another process told is no address");
            const char* begin = place + sizeof bytes;
            getPair(peer)->connect({begin, begin + bytes});
        });
    }
    void close() {
        for_others([&](int peer) { getPair(peer)->close(); });
    }
    uint32_t next_tag() { return tag_++; }  // equal in all members, for they make the same calls
    std::vector<uint64_t> sent, received;  // numbers of messages, by peer

private:
    size_t peers() const { return static_cast<size_t>(size); }
    template <class Fn>
    void for_others(Fn&& fn) const {
        for (int peer = 0; peer < size; ++peer)
            if (peer != rank) fn(peer);
    }
    uint32_t tag_ = 0;
};

using Context = std::shared_ptr<Members>;
const Context& of(void* context) { return *static_cast<Context*>(context); }

template <class Body>
bool tried(char* error, Body&& body) {
    try {
        body();
        return true;
    } catch (const std::exception& caught) {
        std::strncpy(error, caught.what(), kErrorBytes - 1);
        error[kErrorBytes - 1] = '\0';
        return false;
    }
}

bool open(const char* address, void** device, char* error) {
    return tried(error, [&] {
        *device =
            new Device(::gloo::transport::tcp::CreateDevice(::gloo::transport::tcp::attr(address)));
    });
}

bool create(void* device, int rank, int size, double seconds, void** context, char* addresses,
            char* error) {
    return tried(error, [&] {
        auto made = std::make_unique<Context>(
            std::make_shared<Members>(*static_cast<Device*>(device), rank, size, seconds));
        (*made)->tell(addresses);
        *context = made.release();
    });
}

// Returns when all members have connected: Gloo's thread ends the process (by an exception that
// nobody catches) if the other side closes a connection before it is known to be open.
bool connect(void* context, const char* addresses, char* error) {
    return tried(error, [&] {
        const Context group = of(context);
        group->connect(addresses);
        ::gloo::BarrierOptions options(group);
        options.setTag(group->next_tag());
        ::gloo::barrier(options);
    });
}

// Calls body with an element of `width` bytes, for Gloo's templates.
template <class Body>
void with_element(size_t width, Body&& body) {
    switch (width) {
        case 1: return body(std::array<char, 1>{});
        case 2: return body(std::array<char, 2>{});
        case 4: return body(std::array<char, 4>{});
        case 8: return body(std::array<char, 8>{});
        case 16: return body(std::array<char, 16>{});
        default: throw std::runtime_error("elements of another width");
    }
}

template <class Options>
void set_reduction(Options& options, const Context& context, const void* in, void* out,
                   size_t count, const Reduction& reduction) {
    with_element(reduction.width, [&]<class Element>(Element) {
        if (in != out) options.setInput(static_cast<Element*>(const_cast<void*>(in)), count);
        options.setOutput(static_cast<Element*>(out), count);
    });
    options.setReduceFunction([&reduction](void* to, const void* a, const void* b, size_t n) {
        reduction.function(&reduction, to, a, b, n);
    });
    options.setTag(context->next_tag());
}

bool all_reduce(void* context, const void* in, void* out, size_t count, const Reduction* reduction,
                char* error) {
    return tried(error, [&] {
        ::gloo::AllreduceOptions options(of(context));
        set_reduction(options, of(context), in, out, count, *reduction);
        ::gloo::allreduce(options);
    });
}

bool reduce(void* context, const void* in, void* out, size_t count, const Reduction* reduction,
            int root, char* error) {
    return tried(error, [&] {
        ::gloo::ReduceOptions options(of(context));
        set_reduction(options, of(context), in, out, count, *reduction);
        options.setRoot(root);
        ::gloo::reduce(options);
    });
}

bool all_gather(void* context, const void* in, void* out, size_t bytes, char* error) {
    return tried(error, [&] {
        const Context group = of(context);
        ::gloo::AllgatherOptions options(group);
        options.setInput(static_cast<char*>(const_cast<void*>(in)), bytes);
        options.setOutput(static_cast<char*>(out), bytes * static_cast<size_t>(group->size));
        options.setTag(group->next_tag());
        ::gloo::allgather(options);
    });
}

bool broadcast(void* context, void* data, size_t bytes, int root, char* error) {
    return tried(error, [&] {
        ::gloo::BroadcastOptions options(of(context));
        options.setOutput(static_cast<char*>(data), bytes);
        options.setRoot(root);
        options.setTag(of(context)->next_tag());
        ::gloo::broadcast(options);
    });
}

bool exchange(void* context, const Part* sends, size_t send_count, const Part* receives,
              size_t receive_count, char* error) {
    return tried(error, [&] {
        const Context kept = of(context);  // a thread that waits too long may outlive the group
        Members& group = *kept;
        std::vector<std::unique_ptr<::gloo::transport::UnboundBuffer>> sent, received;
        for (const Part* part = receives; part != receives + receive_count; ++part) {
            received.push_back(group.createUnboundBuffer(part->data, part->bytes));
            received.back()->recv(part->peer, group.received[static_cast<size_t>(part->peer)]++);
        }
        for (const Part* part = sends; part != sends + send_count; ++part) {
            sent.push_back(group.createUnboundBuffer(part->data, part->bytes));
            sent.back()->send(part->peer, group.sent[static_cast<size_t>(part->peer)]++);
        }
        for (auto& each : received) each->waitRecv(group.getTimeout());
        for (auto& each : sent) each->waitSend(group.getTimeout());
    });
}

void set_seconds(void* context, double seconds) { of(context)->set_seconds(seconds); }

void close(void* context) {
    char ignored[kErrorBytes];
    tried(ignored, [&] { of(context)->close(); });
}

void destroy(void* context) { delete static_cast<Context*>(context); }

constexpr Table kTable = {open,      create,   connect,     all_reduce, reduce, all_gather,
                          broadcast, exchange, set_seconds, close,      destroy};

}}  // namespace megjit::processes::gloo

extern "C" __attribute__((visibility("default"))) const megjit::processes::gloo::Table*
megjit_gloo_table_2() {
    return &megjit::processes::gloo::kTable;
}
