// The driver's ABI: start, results, devices, contexts.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/card/emulator/calls.h"
#include "tests/card/emulator/card.h"
#include "tests/card/emulator/ptx/program.h"
#include "tests/card/emulator/works.h"

using namespace megjit::card;

int megjit_card_version() { return 1; }

const char* megjit_card_last_fault() {
    thread_local std::string text;
    text = last_fault();
    return text.c_str();
}

int megjit_card_library_work(void* stream, const char* name, const megjit_card_operand* operands,
                             size_t count, double flops,
                             const char* (*run)(void* data, void* const* places),
                             void (*drop)(void* data), void* data) {
    std::vector<LibraryWork::Operand> all;
    for (size_t i = 0; i < count; ++i) all.push_back({operands[i].address, operands[i].bytes});
    const auto work = std::make_shared<LibraryWork>(name, std::move(all), flops, run, drop, data);
    return call(Needs::context, [&] {
        ++launches;
        submit(stream_of(static_cast<Stream*>(stream)), work);
    });
}

size_t megjit_card_live_allocations(size_t* bytes) {
    size_t count = 0;
    uint64_t sum = 0;
    for (Card* card : cards()) count += card->memory.live_allocations(sum);
    if (bytes) *bytes = sum;
    return count;
}

uint64_t megjit_card_calls(const char* function) { return calls_of(function); }

void megjit_card_fail(const char* function, uint64_t nth, uint64_t times, int result) {
    fail_calls(function, nth, times, static_cast<Result>(result));
}

uint64_t megjit_card_launches() { return launches.exchange(0); }

uint64_t megjit_card_thread_instructions() { return ptx::take_thread_instructions(); }

namespace {

struct ResultText {
    int number;
    const char *name, *text;
};
constexpr ResultText kResults[] = {{0, "CUDA_SUCCESS", "no error"},
#define MEGJIT_X(ours, number, name, text) {number, "CUDA_ERROR_" name, text},
                                   MEGJIT_CARD_RESULTS(MEGJIT_X)
#undef MEGJIT_X
};

int result_text(int number, const char** text, const char* ResultText::* field) {
    if (!text) return static_cast<int>(Result::invalid_value);
    *text = nullptr;
    for (const ResultText& row : kResults)
        if (row.number == number) *text = row.*field;
    return *text ? 0 : static_cast<int>(Result::invalid_value);
}

}  // namespace

MEGJIT_CARD_API cuGetErrorName(int number, const char** name) {
    return result_text(number, name, &ResultText::name);
}
MEGJIT_CARD_API cuGetErrorString(int number, const char** text) {
    return result_text(number, text, &ResultText::text);
}

MEGJIT_CARD_API cuInit(unsigned flags) {
    return call(Needs::nothing, [&] {
        if (flags) throw Fault(Result::invalid_value, "cuInit takes no flags");
        initialise();
    });
}
MEGJIT_CARD_API cuDriverGetVersion(int* version) {
    return call(Needs::nothing, [&] { out(version) = driver_version(); });
}

// ---- devices

MEGJIT_CARD_API cuDeviceGetCount(int* count) {
    return call(Needs::init, [&] { out(count) = static_cast<int>(cards().size()); });
}
MEGJIT_CARD_API cuDeviceGet(int* id, int ordinal) {
    return call(Needs::init, [&] { out(id) = device(ordinal).ordinal(); });
}
MEGJIT_CARD_API cuDeviceGetName(char* name, int bytes, int id) {
    return call(Needs::init, [&] {
        snprintf(&out(name), static_cast<size_t>(std::max(bytes, 0)), "%s",
                 device(id).description().name);
    });
}
MEGJIT_CARD_API cuDeviceGetAttribute(int* value, int attribute, int id) {
    return call(Needs::init, [&] { out(value) = device(id).attribute(attribute); });
}
MEGJIT_CARD_API cuDeviceTotalMem_v2(size_t* bytes, int id) {
    return call(Needs::init, [&] {
        device(id);
        out(bytes) = DeviceMemory::kBytes;
    });
}
MEGJIT_CARD_API cuDeviceComputeCapability(int* major, int* minor, int id) {
    return call(Needs::init, [&] {
        out(major) = device(id).description().arch / 10;
        out(minor) = device(id).description().arch % 10;
    });
}
static int uuid(char* bytes, int id, const char* caller = __builtin_FUNCTION()) {
    return call(Needs::init, [&] {
        device(id);
        std::memcpy(&out(bytes), "megjit emulated", 15);
        bytes[15] = static_cast<char>('0' + id);
    }, caller);
}
MEGJIT_CARD_API cuDeviceGetUuid(char* bytes, int id) { return uuid(bytes, id); }
MEGJIT_CARD_API cuDeviceGetUuid_v2(char* bytes, int id) { return uuid(bytes, id); }
MEGJIT_CARD_API cuDeviceGetPCIBusId(char* bus, int bytes, int id) {
    return call(Needs::init, [&] {
        snprintf(&out(bus), static_cast<size_t>(std::max(bytes, 0)), "0000:%02x:00.0",
                 device(id).ordinal() + 1);
    });
}
MEGJIT_CARD_API cuDeviceCanAccessPeer(int* can, int from, int to) {
    return call(Needs::init, [&] { out(can) = &device(from) != &device(to); });
}

// ---- contexts: the primary one of each card

MEGJIT_CARD_API cuDevicePrimaryCtxRetain(Context** context, int id) {
    return call(Needs::init, [&] {
        Card& card = device(id);
        ++card.context_uses;
        out(context) = primary_context(card);
    });
}
static int release(int id, const char* caller = __builtin_FUNCTION()) {
    return call(Needs::init, [&] {
        Card& card = device(id);
        if (card.context_uses == 0)
            throw Fault(Result::invalid_context, "the primary context was not retained");
        --card.context_uses;
    }, caller);
}
MEGJIT_CARD_API cuDevicePrimaryCtxRelease(int id) { return release(id); }
MEGJIT_CARD_API cuDevicePrimaryCtxRelease_v2(int id) { return release(id); }
static int reset(int id, const char* caller = __builtin_FUNCTION()) {
    return call(Needs::init, [&] { device(id).reset(); }, caller);
}
MEGJIT_CARD_API cuDevicePrimaryCtxReset(int id) { return reset(id); }
MEGJIT_CARD_API cuDevicePrimaryCtxReset_v2(int id) { return reset(id); }
MEGJIT_CARD_API cuDevicePrimaryCtxGetState(int id, unsigned* flags, int* active) {
    return call(Needs::init, [&] {
        out(active) = device(id).context_uses > 0;
        out(flags) = 0;
    });
}
MEGJIT_CARD_API cuDevicePrimaryCtxSetFlags_v2(int id, unsigned) {
    return call(Needs::init, [&] { device(id); });
}

MEGJIT_CARD_API cuCtxGetCurrent(Context** context) {
    return call(Needs::init, [&] { out(context) = current_context(); });
}
MEGJIT_CARD_API cuCtxSetCurrent(Context* context) {
    return call(Needs::init, [&] { set_current_context(context ? checked(context) : nullptr); });
}
MEGJIT_CARD_API cuCtxPushCurrent_v2(Context* context) {
    return call(Needs::init, [&] { push_context(checked(context)); });
}
MEGJIT_CARD_API cuCtxPopCurrent_v2(Context** context) {
    return call(Needs::init, [&] {
        Context* top = pop_context();
        if (context) *context = top;
    });
}
MEGJIT_CARD_API cuCtxGetDevice(int* id) {
    return call(Needs::init, [&] { out(id) = current_card().ordinal(); });
}
MEGJIT_CARD_API cuCtxGetApiVersion(Context* context, unsigned* version) {
    return call(Needs::init, [&] {
        if (context) checked(context);
        out(version) = driver_version();
    });
}
MEGJIT_CARD_API cuCtxGetId(Context* context, unsigned long long* id) {
    return call(Needs::init, [&] {
        Card& card = context ? *checked(context)->card : current_card();
        out(id) = static_cast<unsigned long long>(card.ordinal()) + 1;
    });
}
MEGJIT_CARD_API cuCtxGetFlags(unsigned* flags) {
    return call(Needs::context, [&] { out(flags) = 0; });
}
MEGJIT_CARD_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    return call(Needs::context, [&] {
        if (least) *least = 0;
        if (greatest) *greatest = -5;
    });
}
MEGJIT_CARD_API cuCtxGetLimit(size_t* value, int limit) {
    return call(Needs::context, [&] {
        switch (limit) {
            case 0: out(value) = 1024; return;  // stack of a thread
            case 1: out(value) = 1 << 20; return;  // buffer of printf
            case 2: out(value) = 8 << 20; return;  // heap of malloc
            default: out(value) = 0; return;
        }
    });
}
MEGJIT_CARD_API cuCtxSetLimit(int, size_t) {
    return call(Needs::context, [] {});
}
MEGJIT_CARD_API cuCtxSynchronize() {
    return call(Needs::context, [&] {
        check_not_capturing("cuCtxSynchronize");
        Card& card = current_card();
        card.wait_for_all();
        if (card.failed()) throw Fault(card.result());
    });
}
MEGJIT_CARD_API cuCtxEnablePeerAccess(Context* peer, unsigned flags) {
    return call(Needs::context, [&] {
        Card &card = current_card(), &other = *checked(peer)->card;
        if (flags) throw Fault(Result::invalid_value, "cuCtxEnablePeerAccess takes no flags");
        if (&card == &other) throw Fault(Result::invalid_device, "a card is not a peer of itself");
        if (card.reaches(other)) throw Fault(Result::peer_access_already_enabled);
        card.peers_ |= 1u << other.ordinal();
    });
}
MEGJIT_CARD_API cuCtxDisablePeerAccess(Context* peer) {
    return call(Needs::context, [&] {
        Card &card = current_card(), &other = *checked(peer)->card;
        if (!card.reaches(other)) throw Fault(Result::peer_access_not_enabled);
        card.peers_ &= ~(1u << other.ordinal());
    });
}
MEGJIT_CARD_API cuDeviceGetP2PAttribute(int* value, int attribute, int from, int to) {
    return call(Needs::init, [&] {
        // 1 performance rank, 2 access, 3 atomics, 4 arrays
        out(value) = &device(from) != &device(to) && attribute != 1;
    });
}
