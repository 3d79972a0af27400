// Order, waits, events, host functions; what a missing wait shows.
#include <unistd.h>

#include <sys/wait.h>

#include <atomic>
#include <thread>

#include "tests/card/driver.h"

namespace megjit::card_tests { namespace {

// Adds 1 to the word, so many times over that it takes a while.
const char* const kSlowAdd = R"(
    .reg .b64 %a; .reg .b32 %v, %n; .reg .pred %p;
    ld.param.u64 %a, [p]; mov.u32 %n, 200000;
LOOP:
    sub.u32 %n, %n, 1; setp.ne.u32 %p, %n, 0; @%p bra LOOP;
    ld.global.u32 %v, [%a]; add.u32 %v, %v, 1; st.global.u32 [%a], %v;
    ret;)";

class Streams : public CardTest {};

// A stream stands at it until it is opened.
struct Gate {
    std::atomic<bool> open = false, passed = false;
    static void wait(void* gate) {
        auto& self = *static_cast<Gate*>(gate);
        while (!self.open) std::this_thread::yield();
        self.passed = true;
    }
    void close(Handle stream) {
        CHECK_DRIVER("cuLaunchHostFunc", stream, &Gate::wait, static_cast<void*>(this));
    }
};

TEST_F(Streams, WorkHappensAfterTheCallReturns) {
    Gate gate;
    gate.close(stream_);
    EXPECT_DRIVER(kNotReady, "cuStreamQuery", stream_);
    EXPECT_FALSE(gate.passed);
    gate.open = true;
    CHECK_DRIVER("cuStreamSynchronize", stream_);
    EXPECT_TRUE(gate.passed);
    EXPECT_DRIVER(kSuccess, "cuStreamQuery", stream_);
}

TEST_F(Streams, AnotherStreamSeesOldValuesUnlessItWaits) {
    const Handle add = load(kernel(".param .u64 p", kSlowAdd), "k");
    const Handle other = new_stream();
    const Address word = upload(std::vector<uint32_t>{5});
    CHECK_DRIVER("cuStreamSynchronize", stream_);
    uint32_t early = 0, late = 0;
    Gate gate;
    gate.close(stream_);
    launch(add, {}, {}, word);
    CHECK_DRIVER("cuMemcpyDtoHAsync_v2", static_cast<void*>(&early), word, size_t{4}, other);
    CHECK_DRIVER("cuStreamSynchronize", other);
    gate.open = true;
    Handle event = nullptr;
    CHECK_DRIVER("cuEventCreate", &event, 2u);
    CHECK_DRIVER("cuEventRecord", event, stream_);
    CHECK_DRIVER("cuStreamWaitEvent", other, event, 0u);
    CHECK_DRIVER("cuMemcpyDtoHAsync_v2", static_cast<void*>(&late), word, size_t{4}, other);
    CHECK_DRIVER("cuStreamSynchronize", other);
    EXPECT_EQ(early, 5u);
    EXPECT_EQ(late, 6u);
    CHECK_DRIVER("cuEventDestroy_v2", event);
}

TEST_F(Streams, TheLegacyStreamWaitsForBlockingOnesAndTheyForIt) {
    const Handle add = load(kernel(".param .u64 p", kSlowAdd), "k");
    const Handle blocking = new_stream(0);
    const Address word = upload(std::vector<uint32_t>{1});
    CHECK_DRIVER("cuStreamSynchronize", stream_);
    void* arguments[] = {const_cast<Address*>(&word)};
    const auto add_on = [&](Handle stream) {
        EXPECT_DRIVER(0, "cuLaunchKernel", add, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream,
                      static_cast<void**>(arguments), static_cast<void**>(nullptr));
    };
    for (int i = 0; i < 4; ++i) add_on(i % 2 ? nullptr : blocking);
    uint32_t value = 0;
    CHECK_DRIVER("cuMemcpyDtoH_v2", static_cast<void*>(&value), word, size_t{4});
    EXPECT_EQ(value, 5u);
}

uint64_t pageable_copies() {
    const auto count =
        reinterpret_cast<uint64_t (*)(const char*)>(dlsym(library(), "megjit_card_calls"));
    return count("a pageable copy");
}

TEST_F(Streams, PageableCopiesWaitForTheStreamAndReadTheirSourceAtOnce) {
    const uint64_t before = pageable_copies();
    std::vector<uint32_t> source = {7};
    Gate gate;
    gate.close(stream_);
    std::thread opener([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        gate.open = true;
    });
    const Address word = upload(source);
    EXPECT_TRUE(gate.passed);
    source[0] = 8;
    opener.join();
    EXPECT_EQ(download<uint32_t>(word, 1)[0], 7u);
    EXPECT_EQ(pageable_copies(), before + 2);
}

// Then the source is read when the copy runs: soon, but for the stream's small delay.
TEST_F(Streams, WhereTheCardReadsPageableMemoryNothingIsStaged) {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the program races with the copy on purpose";
#endif
    setenv("MEGJIT_CARD_HMM", "1", 1);
    const Address word = allocate(4);
    bool is_late = false;
    for (int i = 0; i < 2000 && !is_late; ++i) {
        volatile uint32_t source = 7;
        EXPECT_DRIVER(0, "cuMemcpyHtoDAsync_v2", word,
                      const_cast<const void*>(static_cast<volatile void*>(&source)), size_t{4},
                      stream_);
        source = 8;
        is_late = download<uint32_t>(word, 1)[0] == 8;
    }
    unsetenv("MEGJIT_CARD_HMM");
    EXPECT_TRUE(is_late);
}

TEST_F(Streams, PinnedSourcesAreReadWhenTheStreamGetsThere) {
    void* source = nullptr;
    CHECK_DRIVER("cuMemHostAlloc", &source, size_t{4}, 0u);
    *static_cast<uint32_t*>(source) = 7;
    Gate gate;
    const Address word = allocate(4);
    gate.close(stream_);
    CHECK_DRIVER("cuMemcpyHtoDAsync_v2", word, static_cast<const void*>(source), size_t{4},
                 stream_);
    *static_cast<uint32_t*>(source) = 8;  // too early: the copy has not run
    gate.open = true;
    EXPECT_EQ(download<uint32_t>(word, 1)[0], 8u);
    CHECK_DRIVER("cuMemFreeHost", source);
}

TEST_F(Streams, EventsTellTheTimeOfTheCard) {
    Handle from = nullptr, to = nullptr;
    CHECK_DRIVER("cuEventCreate", &from, 0u);
    CHECK_DRIVER("cuEventCreate", &to, 0u);
    const size_t bytes = 64 << 20;
    const Address memory = allocate(bytes);
    float ms = 0;
    EXPECT_DRIVER(kInvalidHandle, "cuEventElapsedTime", &ms, from, to);
    CHECK_DRIVER("cuEventRecord", from, stream_);
    CHECK_DRIVER("cuMemsetD8Async", memory, static_cast<unsigned char>(0), bytes, stream_);
    CHECK_DRIVER("cuEventRecord", to, stream_);
    CHECK_DRIVER("cuEventSynchronize", to);
    CHECK_DRIVER("cuEventElapsedTime", &ms, from, to);
    // 64 MiB at the 3.35 TB/s of an H100, and 2 us until it starts.
    EXPECT_NEAR(ms, 0.022, 0.001);
    CHECK_DRIVER("cuEventDestroy_v2", from);
    CHECK_DRIVER("cuEventDestroy_v2", to);
    EXPECT_DRIVER(kInvalidHandle, "cuEventQuery", from);
}

// Found by eight threads that evicted values: what the driver promises for events of several
// threads was not so here. A data race wrote over freed memory once in a hundred runs.
TEST_F(Streams, AnEventIsRecordedAgainWhileOthersWaitForIt) {
    Handle event = nullptr;
    CHECK_DRIVER("cuEventCreate", &event, 2u);
    std::atomic<int> failures = 0;
    const auto use = [&] {
        CHECK_DRIVER("cuCtxSetCurrent", context_);
        for (int i = 0; i < 500; ++i) {
            failures += call("cuEventRecord", event, stream_) != kSuccess;
            failures += call("cuEventSynchronize", event) != kSuccess;
            const int reached = call("cuEventQuery", event);
            failures += reached != kSuccess && reached != kNotReady;
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(use);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failures, 0);
    CHECK_DRIVER("cuEventDestroy_v2", event);
}

TEST_F(Streams, CardsHaveMemoriesOfTheirOwn) {
    int can = 0;
    CHECK_DRIVER("cuDeviceCanAccessPeer", &can, 0, 1);
    EXPECT_EQ(can, 1);
    const Address here = upload(std::vector<uint32_t>{3});
    CHECK_DRIVER("cuStreamSynchronize", stream_);
    Handle other = nullptr, there_stream = nullptr;
    CHECK_DRIVER("cuDevicePrimaryCtxRetain", &other, 1);
    CHECK_DRIVER("cuCtxPushCurrent_v2", other);
    CHECK_DRIVER("cuStreamCreate", &there_stream, 1u);
    const Address there = allocate(4);
    CHECK_DRIVER("cuMemcpyPeerAsync", there, other, here, context_, size_t{4}, there_stream);
    CHECK_DRIVER("cuStreamSynchronize", there_stream);
    EXPECT_DRIVER(kInvalidHandle, "cuStreamSynchronize", stream_);  // of the other card
    CHECK_DRIVER("cuStreamDestroy_v2", there_stream);
    CHECK_DRIVER("cuCtxPopCurrent_v2", static_cast<Handle*>(nullptr));
    // A kernel of card 0 may read it once it was allowed to.
    const Handle add = load(kernel(".param .u64 p", kSlowAdd), "k");
    CHECK_DRIVER("cuCtxEnablePeerAccess", other, 0u);
    EXPECT_DRIVER(kPeerEnabled, "cuCtxEnablePeerAccess", other, 0u);
    EXPECT_EQ(result_of(add, {}, {}, there), 0);
    CHECK_DRIVER("cuCtxDisablePeerAccess", other);
    EXPECT_EQ(result_of(add, {}, {}, there), kIllegalAddress);
    EXPECT_NE(last_fault().find("no peer access"), std::string::npos) << last_fault();
    CHECK_DRIVER("cuDevicePrimaryCtxRelease_v2", 1);
}

TEST_F(Streams, AThreadHasAStackOfContexts) {
    std::thread([&] {
        int pushed = 0;
        while (call("cuCtxPushCurrent_v2", context_) == 0) ++pushed;
        EXPECT_EQ(pushed, 64);
        for (Handle popped = nullptr; pushed > 0; --pushed) {
            CHECK_DRIVER("cuCtxPopCurrent_v2", &popped);
            EXPECT_EQ(popped, context_);
        }
        EXPECT_DRIVER(kInvalidContext, "cuCtxPopCurrent_v2", static_cast<Handle*>(nullptr));
    }).join();
}

TEST_F(Streams, AChildOfForkIsToldSo) {
    const pid_t child = fork();
    if (child == 0) _exit(call("cuStreamSynchronize", stream_));
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), kNotInitialized);
}

TEST_F(Streams, ReleasedAndForeignHandlesAreRefused) {
    Handle stream = new_stream();
    streams_.pop_back();
    CHECK_DRIVER("cuStreamDestroy_v2", stream);
    EXPECT_DRIVER(kInvalidHandle, "cuStreamSynchronize", stream);
    EXPECT_DRIVER(kInvalidHandle, "cuStreamDestroy_v2", stream);
    EXPECT_DRIVER(kInvalidContext, "cuCtxSetCurrent", static_cast<Handle>(&stream));
}

}}  // namespace megjit::card_tests
