#include "tests/card/emulator/calls.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <string>

namespace megjit::card {
namespace {

std::atomic<bool> initialised = false, forked = false, has_ended = false;

struct Handles {
    std::mutex mutex;
    std::unordered_map<const void*, Kind> kinds;
};
Handles& handles() {
    static auto& all = *new Handles;
    return all;
}

// By function of the ABI.
struct Calls {
    std::mutex mutex;
    std::unordered_map<std::string, uint64_t> counts;
    std::string failing;
    uint64_t next = 0, first = 0, end = 0;  // those from the first on fail, counted anew
    Result failure = Result::success;
};
Calls& calls() {
    static auto& all = *new Calls;
    return all;
}

// Without a destructor: programs call the driver while a thread, or the process, takes itself down.
struct ContextStack {
    std::array<Context*, 64> contexts;
    size_t size;
};
constinit thread_local ContextStack stack_of_thread{};

}  // namespace

void remember(const void* handle, Kind kind) {
    const std::lock_guard lock(handles().mutex);
    handles().kinds[handle] = kind;
}
void forget(const void* handle) {
    const std::lock_guard lock(handles().mutex);
    handles().kinds.erase(handle);
}
bool is_known(const void* handle, Kind kind) {
    const std::lock_guard lock(handles().mutex);
    const auto it = handles().kinds.find(handle);
    return it != handles().kinds.end() && it->second == kind;
}
void expect(const void* handle, Kind kind) {
    constexpr const char* kNames[] = {"event", "module", "function",         "library", "kernel",
                                      "graph", "node",   "executable graph", "stream"};
    if (!is_known(handle, kind))
        throw Fault(Result::invalid_handle,
                    text("%p is not a live %s", handle, kNames[static_cast<int>(kind)]));
}

void begin_call(const char* name) {
    if (forked) return;  // another thread may have held the lock
    Calls& all = calls();
    const std::lock_guard lock(all.mutex);
    ++all.counts[name];
    if (all.failing != name) return;
    const uint64_t number = ++all.next;
    if (number >= all.first && number < all.end)
        throw Fault(all.failure, text("%s was told to fail", name));
}

uint64_t calls_of(const char* name) {
    const std::lock_guard lock(calls().mutex);
    if (*name) return calls().counts[name];
    uint64_t all = 0;
    for (const auto& [function, count] : calls().counts) all += count;
    return all;
}

void fail_calls(const char* name, uint64_t nth, uint64_t times, Result result) {
    Calls& all = calls();
    const std::lock_guard lock(all.mutex);
    all.failing = name;
    all.next = 0;
    all.first = nth;
    all.end = nth + times;
    all.failure = result;
}

void initialise() {
    if (forked) throw Fault(Result::not_initialized, "the driver was initialised before a fork");
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (initialised) return;
    if (const char* given = std::getenv("MEGJIT_CARD_FAIL"); given && *given) {
        const std::string text(given);
        const size_t colon = text.find(':');
        const uint64_t nth =
            colon == std::string::npos ? 0 : std::strtoull(&text[colon + 1], nullptr, 10);
        if (nth == 0)
            throw Fault(Result::invalid_value, "MEGJIT_CARD_FAIL is \"" + text +
                                                   "\"; give a function and which of its "
                                                   "calls fails, such as cuMemAlloc_v2:3");
        fail_calls(text.substr(0, colon).c_str(), nth, 1, Result::out_of_memory);
    }
    make_cards();
    std::atexit([] { has_ended = true; });  // runs before what was to happen at exit before cuInit
    pthread_atfork(nullptr, nullptr, [] { forked = true; });
    initialised = true;
}

void check_initialised() {
    if (forked)
        throw Fault(Result::not_initialized,
                    "the driver was initialised before a fork; the child cannot use it");
    if (has_ended) throw Fault(Result::deinitialized, "the process ends, and with it the driver");
    if (!initialised) throw Fault(Result::not_initialized, "cuInit was not called");
}

Context* current_context() {
    const ContextStack& stack = stack_of_thread;
    return stack.size == 0 ? nullptr : stack.contexts[stack.size - 1];
}
void set_current_context(Context* context) {
    if (stack_of_thread.size > 0) --stack_of_thread.size;
    if (context) push_context(context);
}
void push_context(Context* context) {
    ContextStack& stack = stack_of_thread;
    if (stack.size == stack.contexts.size())
        throw Fault(Result::out_of_memory, "64 contexts lie on the thread's stack already");
    stack.contexts[stack.size++] = context;
}
Context* pop_context() {
    ContextStack& stack = stack_of_thread;
    if (stack.size == 0) throw Fault(Result::invalid_context, "no context is current");
    return stack.contexts[--stack.size];
}

Context* primary_context(Card& card) {
    static auto& contexts = []() -> std::array<Context, 16>& {
        auto& all = *new std::array<Context, 16>;
        for (Card* each : cards()) all[static_cast<size_t>(each->ordinal())].card = each;
        return all;
    }();
    return &contexts[static_cast<size_t>(card.ordinal())];
}

Context* checked(Context* context) {
    for (Card* card : cards())
        if (context == primary_context(*card) && card->context_uses > 0) return context;
    throw Fault(Result::invalid_context, "that is not a context that was retained");
}

Card& current_card() {
    Context* context = current_context();
    if (!context) throw Fault(Result::invalid_context, "no context is current in this thread");
    if (context->card->context_uses <= 0)
        throw Fault(Result::invalid_context, "the current context was released");
    return *context->card;
}

Stream& stream_of(Stream* handle) {
    Card& card = current_card();
    if (reinterpret_cast<uintptr_t>(handle) <= 2) return card.legacy();
    expect(handle, Kind::stream);
    if (&handle->card != &card)
        throw Fault(Result::invalid_handle,
                    text("a stream of card %d is used while card %d's context is current",
                         handle->card.ordinal(), card.ordinal()));
    return *handle;
}

Card& device(int ordinal) {
    if (ordinal < 0 || static_cast<size_t>(ordinal) >= cards().size())
        throw Fault(Result::invalid_device,
                    text("device %d; there are %zu", ordinal, cards().size()));
    return *cards()[static_cast<size_t>(ordinal)];
}

}  // namespace megjit::card
