// tests/card/driver.h -- the emulated card as its callers see it: a library that is opened, and
// PTX.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace megjit::card_tests {

using Address = uint64_t;
using Handle = void*;  // of anything the driver makes
enum Result : int {
    kSuccess = 0,
    kInvalidValue = 1,
    kOutOfMemory = 2,
    kNotInitialized = 3,
    kDeinitialized = 4,
    kInvalidImage = 200,
    kInvalidContext = 201,
    kNoBinary = 209,
    kInvalidPtx = 218,
    kUnsupportedPtx = 222,
    kInvalidHandle = 400,
    kIllegalState = 401,
    kNotFound = 500,
    kNotReady = 600,
    kIllegalAddress = 700,
    kTimeout = 702,
    kPeerEnabled = 704,
    kAssert = 710,
    kIllegalInstruction = 715,
    kMisaligned = 716,
    kNotPermitted = 800,
    kNotSupported = 801,
    kCaptureUnsupported = 900,
    kCaptureInvalidated = 901,
    kCaptureUnmatched = 903,
    kCaptureUnjoined = 904,
    kCaptureIsolation = 905,
    kCaptureImplicit = 906,
    kCapturedEvent = 907,
    kUpdateFailure = 910
};

void* library();
void* stand_in(
    const char* path);  // opened behind the driver; null, and a failure, where it does not open
// How many cards: MEGJIT_EMULATED_GPUS is set to it before the library starts.
constexpr int kCards = 2;

// A function of the driver, called with the arguments as they are: integers must have their types.
template <class... A>
int call(const char* name, A... arguments) {
    void* symbol = dlsym(library(), name);
    EXPECT_NE(symbol, nullptr) << name;
    return reinterpret_cast<int (*)(A...)>(symbol)(arguments...);
}
std::string last_fault();
#define EXPECT_DRIVER(result, ...) EXPECT_EQ(call(__VA_ARGS__), result) << last_fault()
#define CHECK_DRIVER(...) ASSERT_EQ(call(__VA_ARGS__), 0) << last_fault()

struct Grid {
    unsigned x = 1, y = 1, z = 1;
};

// A module with one kernel named k; parameters are those of its list.
std::string kernel(const std::string& parameters, const std::string& body);

// `op d, a, b...;` for each thread's elements: out[i] = op(in[0][i], in[1][i], ...). Types are PTX
// names; a register type is given for each.
std::string elementwise(const std::string& statement, const std::string& out_type,
                        const std::vector<std::string>& in_types);

// Each test begins with a fresh card 0, its context current, and one stream.
class CardTest : public testing::Test {
protected:
    void SetUp() override;
    void TearDown() override;

    Handle load(const std::string& ptx, const char* kernel);
    template <class T>
    Address upload(const std::vector<T>& values) {
        const Address address = allocate(values.size() * sizeof(T));
        EXPECT_DRIVER(0, "cuMemcpyHtoDAsync_v2", address, static_cast<const void*>(values.data()),
                      values.size() * sizeof(T), stream_);
        return address;
    }
    template <class T>
    std::vector<T> download(Address address, size_t count) {
        std::vector<T> values(count);
        EXPECT_DRIVER(0, "cuMemcpyDtoHAsync_v2", static_cast<void*>(values.data()), address,
                      count * sizeof(T), stream_);
        EXPECT_DRIVER(0, "cuStreamSynchronize", stream_);
        return values;
    }
    Address allocate(size_t bytes);
    template <class... A>
    int try_launch(Handle kernel, Grid grid, Grid block, unsigned shared_bytes, A... arguments) {
        void* pointers[] = {&arguments..., nullptr};
        return call("cuLaunchKernel", kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                    shared_bytes, stream_, static_cast<void**>(pointers),
                    static_cast<void**>(nullptr));
    }
    template <class... A>
    void launch(Handle kernel, Grid grid, Grid block, A... arguments) {
        EXPECT_EQ(try_launch(kernel, grid, block, 0, arguments...), 0) << last_fault();
    }
    // Launches, waits, and gives the fault's result.
    template <class... A>
    int result_of(Handle kernel, Grid grid, Grid block, A... arguments) {
        launch(kernel, grid, block, arguments...);
        return call("cuStreamSynchronize", stream_);
    }
    // The statement of elementwise() for all elements of the inputs.
    template <class D, class... S>
    std::vector<D> apply(const std::string& statement, const std::string& out,
                         const std::vector<std::string>& in, const std::vector<S>&... inputs) {
        const Handle k = load(elementwise(statement, out, in), "k");
        const size_t n = std::min({inputs.size()...});
        const Address to = allocate(n * sizeof(D));
        launch(k, {static_cast<unsigned>((n + 127) / 128)}, {128}, uint64_t{n}, to,
               upload(inputs)...);
        return download<D>(to, n);
    }
    Handle new_stream(unsigned flags = 1);

    Handle stream_ = nullptr, context_ = nullptr;
    std::vector<Handle> streams_;
};

// A compiler of CUDA C++; tests that ask for it are skipped where there is no NVRTC.
bool has_nvrtc();
std::string compile(const std::string& source, const std::vector<std::string>& options = {});

}  // namespace megjit::card_tests
