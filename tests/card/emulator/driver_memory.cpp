// The driver's ABI: memory, copies, fills.
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "tests/card/emulator/calls.h"
#include "tests/card/emulator/works.h"

using namespace megjit::card;

namespace {

Address allocate(size_t bytes, bool live) {
    if (bytes == 0) throw Fault(Result::invalid_value, "an allocation of no bytes");
    const Address address = current_card().memory.allocate(bytes, live);
    if (!address) throw Fault(Result::out_of_memory, text("%zu bytes are not free", bytes));
    return address;
}

// Returns the card of the allocation that begins there.
Card& owner_of(Address address) {
    Card* card = card_of(address);
    Address begin = 0;
    Allocation found;
    if (!card || !card->memory.allocation_at(address, begin, found) || begin != address ||
        !found.of_user)
        throw Fault(
            Result::invalid_value,
            text("no allocation begins at 0x%llx: ", static_cast<unsigned long long>(address)) +
                (card ? card->memory.describe(address) : "no address of a card"));
    return *card;
}

CopyWork::Side on_card(Address address) { return {address, true, 0}; }
CopyWork::Side on_host(const void* address) {
    return {reinterpret_cast<Address>(address), false, 0};
}
CopyWork::Side anywhere(Address address) { return {address, card_of(address) != nullptr, 0}; }

void wait(Stream& stream) {
    const Timeline::Point point = stream.line->last();
    point.wait();
    stream.card.host_saw(point.card_ns());
    if (stream.card.failed()) throw Fault(stream.card.result());
}

// The driver copies pageable memory by itself, behind what the stream has queued. (Its promise that
// the target is written by then is left out, as nobody ought to rely on it.)
void wait_if_pageable(Stream& stream, const CopyWork::Side& to, const CopyWork::Side& from,
                      size_t bytes) {
    const auto is_pageable = [&](const CopyWork::Side& side) {
        return !side.on_card && bytes > 0 &&
               PinnedMemory::instance().find(side.address, bytes).begin == 0;
    };
    if (stream.capture || (!is_pageable(to) && !is_pageable(from))) return;
    begin_call(kPageableCopy);
    wait(stream);
}

int copy(CopyWork::Side to, CopyWork::Side from, size_t bytes, Stream* stream,
         const char* caller = __builtin_FUNCTION()) {
    return call(Needs::context, [&] {
        Stream& on = stream_of(stream);
        to.pitch = from.pitch = bytes;
        wait_if_pageable(on, to, from, bytes);
        submit(on, std::make_shared<CopyWork>(on.card, to, from, bytes, 1, !on.capture));
    }, caller);
}

int copy_now(CopyWork::Side to, CopyWork::Side from, size_t bytes,
             const char* caller = __builtin_FUNCTION()) {
    return call(Needs::context, [&] {
        check_not_capturing("a synchronous copy");
        Stream& on = current_card().legacy();
        to.pitch = from.pitch = bytes;
        submit(on, std::make_shared<CopyWork>(on.card, to, from, bytes, 1, false));
        wait(on);
    }, caller);
}

int fill(Address to, uint32_t value, uint32_t element_bytes, Rows rows, Stream* stream,
         const char* caller = __builtin_FUNCTION()) {
    return call(Needs::context, [&] {
        Stream& on = stream_of(stream);
        submit(on, std::make_shared<FillWork>(on.card, to, value, element_bytes, rows));
    }, caller);
}
// Fills device memory: the host need not wait.
int fill(Address to, uint32_t value, uint32_t element_bytes, size_t count, Stream* stream = nullptr,
         const char* caller = __builtin_FUNCTION()) {
    const size_t bytes = count * element_bytes;
    return fill(to, value, element_bytes, Rows{bytes, bytes, 1}, stream, caller);
}

struct Copy2D {  // CUDA_MEMCPY2D
    size_t from_x, from_y;
    int from_type;
    const void* from_host;
    Address from_device;
    void* from_array;
    size_t from_pitch;
    size_t to_x, to_y;
    int to_type;
    void* to_host;
    Address to_device;
    void* to_array;
    size_t to_pitch;
    size_t width, height;
};

CopyWork::Side side(int type, const void* host, Address device, size_t pitch, size_t x, size_t y) {
    enum { kHost = 1, kDevice = 2, kUnified = 4 };
    if (type != kHost && type != kDevice && type != kUnified)
        throw Fault(Result::not_supported, "copies of arrays");
    CopyWork::Side side = type == kHost     ? on_host(host)
                          : type == kDevice ? on_card(device)
                                            : anywhere(device);
    side.address += y * pitch + x;
    side.pitch = pitch;
    return side;
}

int copy_2d(const Copy2D* p, Stream* stream, bool now, const char* caller = __builtin_FUNCTION()) {
    return call(Needs::context, [&] {
        if (now) check_not_capturing("a synchronous copy");
        const Copy2D& c = out(p);
        Stream& on = stream_of(stream);
        const CopyWork::Side to = side(c.to_type, c.to_host, c.to_device,
                                       c.to_pitch ? c.to_pitch : c.width, c.to_x, c.to_y);
        const CopyWork::Side from = side(c.from_type, c.from_host, c.from_device,
                                         c.from_pitch ? c.from_pitch : c.width, c.from_x, c.from_y);
        if (to.pitch < c.width || from.pitch < c.width)
            throw Fault(Result::invalid_value, "a pitch is smaller than the copy's width");
        submit(on, std::make_shared<CopyWork>(on.card, to, from, c.width, c.height,
                                              !now && !on.capture));
        if (now) wait(on);
    }, caller);
}

}  // namespace

MEGJIT_CARD_API cuMemGetInfo_v2(size_t* free, size_t* total) {
    return call(Needs::context, [&] {
        const uint64_t used = current_card().memory.used_bytes();
        if (free) *free = DeviceMemory::kBytes - used;
        if (total) *total = DeviceMemory::kBytes;
    });
}
MEGJIT_CARD_API cuMemAlloc_v2(Address* address, size_t bytes) {
    return call(Needs::context, [&] {
        check_not_capturing("cuMemAlloc");
        out(address) = allocate(bytes, true);
    });
}
MEGJIT_CARD_API cuMemAllocPitch_v2(Address* address, size_t* pitch, size_t width, size_t height,
                                   unsigned) {
    return call(Needs::context, [&] {
        check_not_capturing("cuMemAllocPitch");
        out(pitch) = (width + DeviceMemory::kAlignment - 1) / DeviceMemory::kAlignment *
                     DeviceMemory::kAlignment;
        out(address) = allocate(*pitch * height, true);
    });
}
// Waits for the whole card, as the driver does.
MEGJIT_CARD_API cuMemFree_v2(Address address) {
    return call(Needs::context, [&] {
        if (!address) return;
        check_not_capturing("cuMemFree");
        Card& owner = owner_of(address);
        owner.wait_for_all();
        if (!owner.memory.free(address)) throw Fault(Result::invalid_value, "freed meanwhile");
    });
}
MEGJIT_CARD_API cuMemAllocAsync(Address* address, size_t bytes, Stream* stream) {
    return call(Needs::context, [&] {
        Stream& on = stream_of(stream);
        if (on.capture) throw Fault(Result::not_supported, "memory nodes in graphs");
        out(address) = allocate(bytes, false);
        submit(on, std::make_shared<LiveWork>(*address));
    });
}
MEGJIT_CARD_API cuMemFreeAsync(Address address, Stream* stream) {
    return call(Needs::context, [&] {
        Stream& on = stream_of(stream);
        if (on.capture) throw Fault(Result::not_supported, "memory nodes in graphs");
        owner_of(address);
        submit(on, std::make_shared<FreeWork>(address));
    });
}
MEGJIT_CARD_API cuMemGetAddressRange_v2(Address* base, size_t* bytes, Address address) {
    return call(Needs::context, [&] {
        Card* card = card_of(address);
        Address begin = 0;
        Allocation found;
        if (!card || !card->memory.allocation_at(address, begin, found))
            throw Fault(Result::not_found, "no allocation holds the address");
        if (base) *base = begin;
        if (bytes) *bytes = found.bytes;
    });
}

// ---- pinned memory of the host

static int allocate_host(void** address, size_t bytes, const char* caller = __builtin_FUNCTION()) {
    return call(Needs::context, [&] {
        check_not_capturing("cuMemHostAlloc");
        if (bytes == 0) throw Fault(Result::invalid_value, "an allocation of no bytes");
        void*& p = out(address);
        p = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
        if (!p) throw Fault(Result::out_of_memory);
        std::memset(p, 0xff, bytes);
        PinnedMemory::instance().add(p, bytes, true);
    }, caller);
}
MEGJIT_CARD_API cuMemHostAlloc(void** address, size_t bytes, unsigned) {
    return allocate_host(address, bytes);
}
MEGJIT_CARD_API cuMemAllocHost_v2(void** address, size_t bytes) {
    return allocate_host(address, bytes);
}
MEGJIT_CARD_API cuMemFreeHost(void* address) {
    return call(Needs::context, [&] {
        check_not_capturing("cuMemFreeHost");
        for (Card* card : cards()) card->wait_for_all();
        if (!PinnedMemory::instance().remove(address, true))
            throw Fault(Result::invalid_value, text("%p is not from cuMemHostAlloc", address));
        std::free(address);
    });
}
MEGJIT_CARD_API cuMemHostRegister_v2(void* address, size_t bytes, unsigned) {
    return call(Needs::context, [&] {
        check_not_capturing("cuMemHostRegister");
        if (!address || bytes == 0) throw Fault(Result::invalid_value, "nothing to register");
        if (!PinnedMemory::instance().add(address, bytes, false))
            throw Fault(Result::host_memory_already_registered);
    });
}
MEGJIT_CARD_API cuMemHostUnregister(void* address) {
    return call(Needs::context, [&] {
        check_not_capturing("cuMemHostUnregister");
        for (Card* card : cards()) card->wait_for_all();
        if (!PinnedMemory::instance().remove(address, false))
            throw Fault(Result::host_memory_not_registered);
    });
}
MEGJIT_CARD_API cuMemHostGetDevicePointer_v2(Address* device, void* host, unsigned) {
    return call(Needs::context, [&] {
        if (!PinnedMemory::instance().find(reinterpret_cast<Address>(host), 1).begin)
            throw Fault(Result::invalid_value, "that host memory is not pinned");
        out(device) = reinterpret_cast<Address>(host);
    });
}
MEGJIT_CARD_API cuMemHostGetFlags(unsigned* flags, void* host) {
    return call(Needs::context, [&] {
        if (!PinnedMemory::instance().find(reinterpret_cast<Address>(host), 1).begin)
            throw Fault(Result::invalid_value, "that host memory is not pinned");
        out(flags) = 0;
    });
}

// ---- what an address is

MEGJIT_CARD_API cuPointerGetAttribute(void* data, int attribute, Address address) {
    return call(Needs::init, [&] {
        enum {
            kContext = 1,
            kType = 2,
            kDevice = 3,
            kHost = 4,
            kManaged = 8,
            kOrdinal = 9,
            kStart = 11,
            kSize = 12,
            kMapped = 13
        };
        Card* card = card_of(address);
        Extent extent = card ? Extent{} : PinnedMemory::instance().find(address, 1);
        if (Allocation found; card && card->memory.allocation_at(address, extent.begin, found))
            extent.end = extent.begin + found.bytes;
        if (extent.begin == 0)
            throw Fault(Result::invalid_value, "no allocation holds the address");
        const auto put = [&](auto value) {
            std::memcpy(&out(static_cast<char*>(data)), &value, sizeof value);
        };
        switch (attribute) {
            case kContext: return put(primary_context(card ? *card : *cards()[0]));
            case kType: return put(card ? 2u : 1u);
            case kDevice: return put(address);
            case kHost:
                if (card)
                    throw Fault(Result::invalid_value, "memory of a card has no host address");
                return put(address);
            case kManaged: return put(char{0});
            case kOrdinal: return put(card ? card->ordinal() : 0);
            case kStart: return put(extent.begin);
            case kSize: return put(static_cast<size_t>(extent.end - extent.begin));
            case kMapped: return put(char{1});
            default: throw Fault(Result::not_supported, text("pointer attribute %d", attribute));
        }
    });
}
MEGJIT_CARD_API cuPointerGetAttributes(unsigned count, int* attributes, void** data,
                                       Address address) {
    for (unsigned i = 0; i < count; ++i)  // addresses of nothing give zeros
        if (const int result = cuPointerGetAttribute(data[i], attributes[i], address)) {
            if (result != static_cast<int>(Result::invalid_value)) return result;
            std::memset(data[i], 0, attributes[i] == 2 || attributes[i] == 9 ? 4 : 8);
        }
    return 0;
}

// ---- copies

MEGJIT_CARD_API cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, Stream* stream) {
    return copy(on_card(to), on_host(from), bytes, stream);
}
MEGJIT_CARD_API cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, Stream* stream) {
    return copy(on_host(to), on_card(from), bytes, stream);
}
MEGJIT_CARD_API cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Stream* stream) {
    return copy(on_card(to), on_card(from), bytes, stream);
}
MEGJIT_CARD_API cuMemcpyAsync(Address to, Address from, size_t bytes, Stream* stream) {
    return copy(anywhere(to), anywhere(from), bytes, stream);
}
MEGJIT_CARD_API cuMemcpyHtoD_v2(Address to, const void* from, size_t bytes) {
    return copy_now(on_card(to), on_host(from), bytes);
}
MEGJIT_CARD_API cuMemcpyDtoH_v2(void* to, Address from, size_t bytes) {
    return copy_now(on_host(to), on_card(from), bytes);
}
MEGJIT_CARD_API cuMemcpyDtoD_v2(Address to, Address from, size_t bytes) {
    return copy(on_card(to), on_card(from), bytes, nullptr);  // within the card: not waited for
}
MEGJIT_CARD_API cuMemcpy(Address to, Address from, size_t bytes) {
    return copy_now(anywhere(to), anywhere(from), bytes);
}
MEGJIT_CARD_API cuMemcpyPeerAsync(Address to, Context* to_context, Address from,
                                  Context* from_context, size_t bytes, Stream* stream) {
    return call(Needs::context, [&] {
        for (const auto& [address, context] :
             {std::pair(to, to_context), std::pair(from, from_context)})
            if (Card* card = card_of(address); card != checked(context)->card)
                throw Fault(Result::invalid_value, "an address is not of the context's card");
        if (const int result = copy(on_card(to), on_card(from), bytes, stream))
            throw Fault(static_cast<Result>(result));
    });
}
MEGJIT_CARD_API cuMemcpyPeer(Address to, Context* to_context, Address from, Context* from_context,
                             size_t bytes) {
    return cuMemcpyPeerAsync(to, to_context, from, from_context, bytes, nullptr);
}
MEGJIT_CARD_API cuMemcpy2DAsync_v2(const Copy2D* copy, Stream* stream) {
    return copy_2d(copy, stream, false);
}
MEGJIT_CARD_API cuMemcpy2D_v2(const Copy2D* copy) { return copy_2d(copy, nullptr, true); }
MEGJIT_CARD_API cuMemcpy2DUnaligned_v2(const Copy2D* copy) { return copy_2d(copy, nullptr, true); }

// ---- fills

MEGJIT_CARD_API cuMemsetD8_v2(Address to, unsigned char value, size_t count) {
    return fill(to, value, 1, count);
}
MEGJIT_CARD_API cuMemsetD16_v2(Address to, unsigned short value, size_t count) {
    return fill(to, value, 2, count);
}
MEGJIT_CARD_API cuMemsetD32_v2(Address to, unsigned value, size_t count) {
    return fill(to, value, 4, count);
}
MEGJIT_CARD_API cuMemsetD8Async(Address to, unsigned char value, size_t count, Stream* stream) {
    return fill(to, value, 1, count, stream);
}
MEGJIT_CARD_API cuMemsetD16Async(Address to, unsigned short value, size_t count, Stream* stream) {
    return fill(to, value, 2, count, stream);
}
MEGJIT_CARD_API cuMemsetD32Async(Address to, unsigned value, size_t count, Stream* stream) {
    return fill(to, value, 4, count, stream);
}
MEGJIT_CARD_API cuMemsetD2D8Async(Address to, size_t pitch, unsigned char value, size_t width,
                                  size_t height, Stream* stream) {
    return fill(to, value, 1, Rows{pitch, width, height}, stream);
}
MEGJIT_CARD_API cuMemsetD2D32Async(Address to, size_t pitch, unsigned value, size_t width,
                                   size_t height, Stream* stream) {
    return fill(to, value, 4, Rows{pitch, width * 4, height}, stream);
}
