#include "backends/card/calls.h"

#include <pthread.h>

#include <atomic>

namespace megjit::card {
namespace {

std::atomic<bool> initialised = false, forked = false;

struct Handles {
    std::mutex mutex;
    std::unordered_map<const void*, Kind> kinds;
};
Handles& handles() {
    static auto& all = *new Handles;
    return all;
}

// Never destroyed: programs call the driver while a thread, or the process, takes itself down.
std::vector<Context*>& stack_of_thread() {
    thread_local auto* const stack = new std::vector<Context*>;
    return *stack;
}

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
                    text("%p is no live %s", handle, kNames[static_cast<int>(kind)]));
}

void initialise() {
    if (forked) throw Fault(Result::not_initialized, "the driver was initialised before a fork");
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    if (initialised) return;
    make_cards();
    pthread_atfork(nullptr, nullptr, [] { forked = true; });
    initialised = true;
}

void check_initialised() {
    if (forked)
        throw Fault(Result::not_initialized,
                    "the driver was initialised before a fork; the child cannot use it");
    if (!initialised) throw Fault(Result::not_initialized, "cuInit was not called");
}

Context* current_context() {
    const std::vector<Context*>& stack = stack_of_thread();
    return stack.empty() ? nullptr : stack.back();
}
void set_current_context(Context* context) {
    std::vector<Context*>& stack = stack_of_thread();
    if (!stack.empty()) stack.pop_back();
    if (context) stack.push_back(context);
}
bool push_context(Context* context) {
    stack_of_thread().push_back(context);
    return true;
}
Context* pop_context() {
    std::vector<Context*>& stack = stack_of_thread();
    if (stack.empty()) throw Fault(Result::invalid_context, "no context is current");
    Context* top = stack.back();
    stack.pop_back();
    return top;
}

Context* primary_context(Card& card) {
    static auto& contexts = *new std::array<Context, 16>;
    contexts[static_cast<size_t>(card.ordinal())].card = &card;
    return &contexts[static_cast<size_t>(card.ordinal())];
}

Context* checked(Context* context) {
    for (Card* card : cards())
        if (context == primary_context(*card) && card->context_uses > 0) return context;
    throw Fault(Result::invalid_context, "that is no context that was retained");
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
