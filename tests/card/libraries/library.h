// tests/card/libraries/ -- libraries with the ABI of cuBLASLt and cuDNN, for emulated cards. In:
// our calls of them. Out: the results, computed by kernels of the host between the work of the
// caller's stream; or an error that says what is wrong with a call, where the library's
// documentation forbids it: a real one may as well compute, crash or do nothing.
//
// What they insist on:
// - Handles, descriptors and algorithms are live ones of this library, handles are used with the
//   context that they were made with, on a stream of it.
// - Each operand lies in one allocation of the handle's card, from its first byte to its last, when
//   it is queued and when it runs, and is aligned as its description promises.
// - A workspace is as large as was asked for, and aligned to 256 bytes.
//
// tests/card/libraries/library.h -- what both share: errors, live objects, the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/host/error.h"

#define MEGJIT_LIBRARY_API extern "C" __attribute__((visibility("default")))

namespace megjit::card_libraries {

using runtime::cat;
inline std::string print(const void* pointer) {
    return "0x" + runtime::in_hex(reinterpret_cast<uint64_t>(pointer));
}

constexpr size_t kWorkspaceAlign = 256;

// A call that is wrong, by the library's own number.
struct Misuse : std::runtime_error {
    Misuse(int status, const std::string& text) : runtime_error(text), status(status) {}
    int status;
};

// What this thread's last call that failed was told.
std::string& last_error();

// The status of a call: what it throws is told by last_error().
template <class F>
int call(int internal_error, F&& body) noexcept {
    try {
        body();
        return 0;
    } catch (const Misuse& misuse) {
        last_error() = misuse.what();
        return misuse.status;
    } catch (const std::exception& error) {
        last_error() = error.what();
        return internal_error;
    }
}

// Objects that callers hold, by kind.
class Live {
public:
    explicit Live(int invalid) : invalid_(invalid) {}
    void add(const void* object, const char* kind);
    void remove(const void* object, const char* kind);  // Misuse where it is not there
    void expect(const void* object, const char* kind) const;

private:
    const int invalid_;
    mutable std::mutex mutex_;
    std::map<const void*, const char*> kinds_;
};

// A function of the driver, which is loaded already.
void* driver_function(const char* name);
template <class... Args>
int driver(const char* name, Args... args) {
    return reinterpret_cast<int (*)(Args...)>(driver_function(name))(args...);
}

// What a handle stands for: a context, its card, and memory that the library takes of it.
class Home {
public:
    explicit Home(int failed);  // the current context; Misuse `failed` where there is none
    ~Home();
    Home(const Home&) = delete;
    // Misuse `invalid` where another context is current, or the stream is of another one.
    void check_current(int invalid) const;
    void check_stream(int invalid, void* stream) const;
    int ordinal() const { return ordinal_; }
    int attribute(int number) const;  // of the card, by the driver's numbers

private:
    void* context_ = nullptr;
    int ordinal_ = 0;
    uint64_t memory_ = 0;
};

struct Operand {
    std::string name;
    const void* pointer = nullptr;
    size_t bytes = 0, alignment = 1;
    bool is_written = false;
    // In elements, where the memory has gaps that belong to others; else empty.
    std::vector<int64_t> dims = {}, strides = {};
    size_t element_bytes = 0;
};
// Misuse where an operand is not aligned, lies in no allocation of that card or beyond the end of
// its own, or is written and shares bytes with another one of another place.
void check_operands(int invalid, const std::vector<Operand>& operands, const Home& home);

// Queues a kernel: `compute` gets where the host finds the operands.
using Compute = std::function<void(const std::vector<std::byte*>& places)>;
void queue(int failed, void* stream, const std::string& name, const std::vector<Operand>& operands,
           double flops, Compute compute);

}  // namespace megjit::card_libraries
