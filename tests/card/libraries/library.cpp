#include "tests/card/libraries/library.h"

#include <algorithm>

#include <dlfcn.h>

#include "tests/card/emulator/card.h"

namespace megjit::card_libraries {
namespace {

constexpr int kOrdinalOfPointer = 9;
constexpr size_t kHandleBytes = 4096;

void check_place(int invalid, const Operand& operand, const Home& home) {
    const auto at = reinterpret_cast<uint64_t>(operand.pointer);
    const auto wrong = [&](const std::string& what) {
        throw Misuse(invalid, cat(operand.name, " at ", print(operand.pointer), " ", what));
    };
    if (at % operand.alignment != 0) wrong(cat("is no multiple of ", operand.alignment, " bytes"));
    uint64_t begin = 0;
    size_t bytes = 0;
    int ordinal = -1;
    if (driver("cuMemGetAddressRange_v2", &begin, &bytes, at) != 0)
        wrong("lies in no live allocation of a card");
    if (operand.bytes > bytes - (at - begin))
        wrong(cat("has ", operand.bytes, " bytes, of which ", bytes - (at - begin),
                  " are within its allocation"));
    driver("cuPointerGetAttribute", static_cast<void*>(&ordinal), kOrdinalOfPointer, at);
    if (ordinal != home.ordinal())
        wrong(cat("lies on card ", ordinal, ", the handle is of card ", home.ordinal()));
}

}  // namespace

std::string& last_error() {
    thread_local std::string text;
    return text;
}

void Live::add(const void* object, const char* kind) {
    const std::lock_guard lock(mutex_);
    kinds_[object] = kind;
}
void Live::remove(const void* object, const char* kind) {
    expect(object, kind);
    const std::lock_guard lock(mutex_);
    kinds_.erase(object);
}
void Live::expect(const void* object, const char* kind) const {
    const std::lock_guard lock(mutex_);
    const auto found = kinds_.find(object);
    if (found == kinds_.end() || std::string_view(found->second) != kind)
        throw Misuse(invalid_, cat(print(object), " is no live ", kind));
}

void* driver_function(const char* name) {
    static void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    void* found = library ? dlsym(library, name) : nullptr;
    if (!found) throw std::runtime_error(cat("the driver that is loaded lacks ", name));
    return found;
}

Home::Home(int failed) {
    if (driver("cuCtxGetCurrent", &context_) != 0 || !context_)
        throw Misuse(failed, "a handle is made while no context is current");
    driver("cuCtxGetDevice", &ordinal_);
    if (driver("cuMemAlloc_v2", &memory_, kHandleBytes) != 0)
        throw Misuse(failed, "a handle takes memory of the card, which gives none");
}

Home::~Home() { driver("cuMemFree_v2", memory_); }

void Home::check_current(int invalid) const {
    void* current = nullptr;
    driver("cuCtxGetCurrent", &current);
    if (current != context_)
        throw Misuse(invalid, cat("the handle was made with context ", print(context_), ", and ",
                                  print(current), " is current"));
}

void Home::check_stream(int invalid, void* stream) const {
    void* context = nullptr;
    if (driver("cuStreamGetCtx", stream, &context) != 0 || context != context_)
        throw Misuse(invalid, cat("stream ", print(stream), " is none of the handle's context"));
}

int Home::attribute(int number) const {
    int value = 0;
    driver("cuDeviceGetAttribute", &value, number, ordinal_);
    return value;
}

namespace {

// visit(first byte) for each run of bytes that the operand has.
template <class Visit>
void each_run(const Operand& o, uint64_t at, size_t axis, const Visit& visit) {
    if (axis == o.dims.size()) return visit(at, o.dims.empty() ? o.bytes : o.element_bytes);
    for (int64_t i = 0; i < o.dims[axis]; ++i)
        each_run(o, at + static_cast<uint64_t>(i * o.strides[axis]) * o.element_bytes, axis + 1,
                 visit);
}

// Of operands whose first and last bytes interleave.
bool share_an_element(const Operand& a, const Operand& b) {
    const auto first = reinterpret_cast<uint64_t>(a.pointer);
    std::vector<bool> taken(a.bytes);
    each_run(a, first, 0, [&](uint64_t at, size_t bytes) {
        std::fill_n(taken.begin() + static_cast<ptrdiff_t>(at - first), bytes, true);
    });
    bool shares = false;
    each_run(b, reinterpret_cast<uint64_t>(b.pointer), 0, [&](uint64_t at, size_t bytes) {
        for (uint64_t byte = at; byte < at + bytes; ++byte)
            shares |= byte >= first && byte < first + a.bytes && taken[byte - first];
    });
    return shares;
}

}  // namespace

void check_operands(int invalid, const std::vector<Operand>& operands, const Home& home) {
    for (const Operand& operand : operands)
        if (operand.bytes > 0) check_place(invalid, operand, home);
    const auto begin = [](const Operand& o) { return reinterpret_cast<uint64_t>(o.pointer); };
    for (const Operand& a : operands)
        for (const Operand& b : operands)
            if (a.is_written && begin(a) != begin(b) && begin(a) < begin(b) + b.bytes &&
                begin(b) < begin(a) + a.bytes && share_an_element(a, b))
                throw Misuse(invalid, cat(a.name, " is written, and shares bytes with ", b.name));
}

void queue(int failed, void* stream, const std::string& name, const std::vector<Operand>& operands,
           double flops, Compute compute) {
    struct Task {
        Compute compute;
        size_t count;
        std::string error = {};
    };
    std::vector<megjit_card_operand> places;
    for (const Operand& operand : operands)
        places.push_back({reinterpret_cast<uint64_t>(operand.pointer), operand.bytes});
    const auto run = [](void* data, void* const* at) -> const char* {
        auto& task = *static_cast<Task*>(data);
        try {
            const auto* first = reinterpret_cast<std::byte* const*>(at);
            task.compute({first, first + task.count});
            return nullptr;
        } catch (const std::exception& error) { task.error = error.what(); }
        return task.error.c_str();
    };
    const auto drop = [](void* data) { delete static_cast<Task*>(data); };
    const int result = driver("megjit_card_library_work", stream, name.c_str(),
                              static_cast<const megjit_card_operand*>(places.data()), places.size(),
                              flops, static_cast<const char* (*)(void*, void* const*)>(run),
                              static_cast<void (*)(void*)>(drop),
                              static_cast<void*>(new Task{std::move(compute), operands.size()}));
    if (result != 0) throw Misuse(failed, cat(name, ": the driver takes no work: ", result));
}

}  // namespace megjit::card_libraries
