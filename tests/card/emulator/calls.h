// tests/card/emulator/calls.h -- what every function of the driver's ABI begins with.
#pragma once

#include <atomic>
#include <new>
#include <unordered_map>

#include "tests/card/emulator/module.h"
#include "tests/card/emulator/stream.h"

#define MEGJIT_CARD_API extern "C" __attribute__((visibility("default"))) int

namespace megjit::card {

struct Context {
    Card* card;
};

// ---- handles that callers hold: a caller that passes another one is told
enum class Kind : uint8_t {
    event,
    module,
    function,
    library,
    kernel,
    graph,
    node,
    graph_exec,
    stream
};
void remember(const void* handle, Kind kind);
void forget(const void* handle);
bool is_known(const void* handle, Kind kind);
// Throws invalid_handle.
void expect(const void* handle, Kind kind);

// ---- state of the calling thread
Context* current_context();
void set_current_context(Context* context);
void push_context(Context* context);
Context* pop_context();
Context* primary_context(Card& card);
Context* checked(Context* context);  // throws invalid_context

Card& current_card();  // throws invalid_context
// Null, 1 and 2 are the legacy stream. Throws for a stream of another card.
Stream& stream_of(Stream* handle);
Card& device(int ordinal);  // throws invalid_device

// cuInit was called, and no fork since. Throws.
void check_initialised();
void initialise();

// Throws while the calling thread must not call what may wait for, or change, other streams' work.
void check_not_capturing(const char* call);
// Queues work, or records it in the stream's capture.
void submit(Stream& stream, std::shared_ptr<Work> work);
inline std::atomic<uint64_t> launches = 0;  // of kernels and graphs, since they were asked for

enum class Needs : uint8_t { nothing, init, context };

// Counts a call of the function; throws where that one shall fail (megjit_card_fail).
void begin_call(const char* name);
inline constexpr const char* kPageableCopy = "a pageable copy";  // counted besides the call
uint64_t calls_of(const char* name);
void fail_calls(const char* name, uint64_t nth, uint64_t times, Result result);

template <class F>
int call(Needs needs, F&& body, const char* name = __builtin_FUNCTION()) noexcept {
    try {
        begin_call(name);
        if (needs != Needs::nothing) check_initialised();
        if (needs == Needs::context)
            if (Card& card = current_card(); card.failed()) return static_cast<int>(card.result());
        body();
        return 0;
    } catch (const Fault& fault) {
        if (!fault.text.empty()) set_last_fault(fault.text);
        return static_cast<int>(fault.result);
    } catch (const std::bad_alloc&) { return static_cast<int>(Result::out_of_memory); }
}

// Throws invalid_value when a pointer that is written through is null.
template <class T>
T& out(T* pointer) {
    if (!pointer) throw Fault(Result::invalid_value, "a pointer for a result is null");
    return *pointer;
}

}  // namespace megjit::card
