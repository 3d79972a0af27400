// Graphs: what a capture records, refuses and replays.
#include "tests/card/driver.h"

namespace megjit::card_tests { namespace {

struct KernelParams {
    Handle function;
    unsigned grid[3], block[3], shared_bytes;
    void **parameters, **extra;
    Handle kernel, context;
};
struct UpdateResult {
    int result;
    Handle bad, bad_from;
};

class Graphs : public CardTest {
protected:
    void SetUp() override {
        CardTest::SetUp();
        // word[index] = word[index] * 2 + n, by one thread.
        step_ = load(kernel(".param .u64 p, .param .u32 n", R"(
    .reg .b64 %a; .reg .b32 %v, %n; ld.param.u64 %a, [p]; ld.param.u32 %n, [n];
    ld.global.u32 %v, [%a]; mad.lo.u32 %v, %v, 2, %n; st.global.u32 [%a], %v; ret;)"),
                     "k");
        others_ = allocate(16);
        word_ = upload(std::vector<uint32_t>{1});
        CHECK_DRIVER("cuStreamSynchronize", stream_);
    }
    void step(Handle stream, unsigned n) {
        void* arguments[] = {&word_, &n};
        EXPECT_DRIVER(0, "cuLaunchKernel", step_, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream,
                      static_cast<void**>(arguments), static_cast<void**>(nullptr));
    }
    void begin(int mode = 0) { CHECK_DRIVER("cuStreamBeginCapture_v2", stream_, mode); }
    Handle end(int expected = 0) {
        Handle graph = nullptr;
        EXPECT_DRIVER(expected, "cuStreamEndCapture", stream_, &graph);
        return graph;
    }
    Handle instantiate(Handle graph) {
        Handle exec = nullptr;
        EXPECT_DRIVER(0, "cuGraphInstantiateWithFlags", &exec, graph, 0ull);
        return exec;
    }
    uint32_t word() { return download<uint32_t>(word_, 1)[0]; }
    Handle new_event() {
        Handle event = nullptr;
        EXPECT_DRIVER(0, "cuEventCreate", &event, 2u);
        return event;
    }
    static std::vector<Handle> nodes(Handle graph) {
        size_t count = 0;
        EXPECT_DRIVER(0, "cuGraphGetNodes", graph, static_cast<Handle*>(nullptr), &count);
        std::vector<Handle> all(count);
        EXPECT_DRIVER(0, "cuGraphGetNodes", graph, all.data(), &count);
        return all;
    }

    Handle step_ = nullptr;
    Address word_ = 0, others_ = 0;
};

TEST_F(Graphs, RecordedWorkRunsAtEachLaunchOnly) {
    begin();
    step(stream_, 3);
    step(stream_, 4);
    const Handle graph = end();
    EXPECT_EQ(word(), 1u);
    const Handle exec = instantiate(graph);
    CHECK_DRIVER("cuGraphDestroy", graph);
    CHECK_DRIVER("cuGraphLaunch", exec, stream_);
    EXPECT_EQ(word(), (1u * 2 + 3) * 2 + 4);
    CHECK_DRIVER("cuGraphLaunch", exec, stream_);
    EXPECT_EQ(word(), (14u * 2 + 3) * 2 + 4);
    CHECK_DRIVER("cuGraphExecDestroy", exec);
    EXPECT_DRIVER(kInvalidHandle, "cuGraphLaunch", exec, stream_);
}

TEST_F(Graphs, BranchesOfOtherStreamsJoin) {
    const Handle other = new_stream(), forked = new_event(), joined = new_event();
    begin();
    step(stream_, 3);
    CHECK_DRIVER("cuEventRecord", forked, stream_);
    CHECK_DRIVER("cuStreamWaitEvent", other, forked, 0u);
    CHECK_DRIVER("cuMemsetD32Async", others_, 9u, size_t{4}, other);
    CHECK_DRIVER("cuEventRecord", joined, other);
    CHECK_DRIVER("cuStreamWaitEvent", stream_, joined, 0u);
    step(stream_, 4);
    const Handle graph = end();
    ASSERT_EQ(nodes(graph).size(), 3u);
    size_t count = 0;
    CHECK_DRIVER("cuGraphNodeGetDependencies", nodes(graph)[2], static_cast<Handle*>(nullptr),
                 &count);
    EXPECT_EQ(count, 2u);
    int type = -1;
    CHECK_DRIVER("cuGraphNodeGetType", nodes(graph)[1], &type);
    EXPECT_EQ(type, 2);
    CHECK_DRIVER("cuGraphLaunch", instantiate(graph), stream_);
    EXPECT_EQ(word(), 14u);
    EXPECT_EQ(download<uint32_t>(others_, 4), std::vector<uint32_t>(4, 9));
}

TEST_F(Graphs, WorkThatNeverJoinsIsRefused) {
    const Handle other = new_stream(), forked = new_event();
    begin();
    CHECK_DRIVER("cuEventRecord", forked, stream_);
    CHECK_DRIVER("cuStreamWaitEvent", other, forked, 0u);
    step(other, 1);
    end(kCaptureUnjoined);
    int status = -1;
    CHECK_DRIVER("cuStreamIsCapturing", other, &status);
    EXPECT_EQ(status, 0);
}

TEST_F(Graphs, WaitsSpoilACapture) {
    begin();
    EXPECT_DRIVER(kCaptureUnsupported, "cuStreamSynchronize", stream_);
    int status = 0;
    CHECK_DRIVER("cuStreamIsCapturing", stream_, &status);
    EXPECT_EQ(status, 2);
    unsigned n = 1;
    void* arguments[] = {&word_, &n};
    EXPECT_DRIVER(kCaptureInvalidated, "cuLaunchKernel", step_, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream_,
                  static_cast<void**>(arguments), static_cast<void**>(nullptr));
    end(kCaptureInvalidated);
}

TEST_F(Graphs, CallsThatMayWaitAreRefusedByTheModeOfTheCapture) {
    Address p = 0;
    begin(0);
    EXPECT_DRIVER(kCaptureUnsupported, "cuMemAlloc_v2", &p, size_t{4});
    end(kCaptureInvalidated);
    begin(0);
    EXPECT_DRIVER(kCaptureUnsupported, "cuCtxSynchronize");
    end(kCaptureInvalidated);
    begin(2);  // relaxed
    EXPECT_DRIVER(kSuccess, "cuMemAlloc_v2", &p, size_t{4});
    end();
    begin(0);
    int mode = 2;
    CHECK_DRIVER("cuThreadExchangeStreamCaptureMode", &mode);
    EXPECT_DRIVER(kSuccess, "cuMemAlloc_v2", &p, size_t{4});
    CHECK_DRIVER("cuThreadExchangeStreamCaptureMode", &mode);
    end();
}

TEST_F(Graphs, TheLegacyStreamCannotBeCapturedNorUsedBesideBlockingStreams) {
    EXPECT_DRIVER(kCaptureUnsupported, "cuStreamBeginCapture_v2", Handle{}, 0);
    const Handle blocking = new_stream(0);
    CHECK_DRIVER("cuStreamBeginCapture_v2", blocking, 0);
    EXPECT_DRIVER(kCaptureImplicit, "cuMemsetD8_v2", word_, static_cast<unsigned char>(0),
                  size_t{4});
    Handle graph = nullptr;
    EXPECT_DRIVER(kCaptureInvalidated, "cuStreamEndCapture", blocking, &graph);
}

TEST_F(Graphs, EventsOfACaptureAreNoneToWaitFor) {
    const Handle event = new_event(), outside = new_event();
    CHECK_DRIVER("cuEventRecord", outside, stream_);
    begin();
    EXPECT_DRIVER(kCaptureIsolation, "cuStreamWaitEvent", stream_, outside, 0u);
    CHECK_DRIVER("cuEventRecord", event, stream_);
    EXPECT_DRIVER(kCapturedEvent, "cuEventSynchronize", event);
    end(kCaptureInvalidated);
    end(kIllegalState);
}

TEST_F(Graphs, ParametersOfAKernelAreReplaced) {
    begin();
    step(stream_, 3);
    const Handle graph = end(), exec = instantiate(graph), node = nodes(graph)[0];
    KernelParams params = {};
    CHECK_DRIVER("cuGraphKernelNodeGetParams_v2", node, &params);
    EXPECT_EQ(params.function, step_);
    EXPECT_EQ(*static_cast<uint32_t*>(params.parameters[1]), 3u);
    unsigned n = 50;
    void* arguments[] = {&word_, &n};
    params.parameters = arguments;
    CHECK_DRIVER("cuGraphExecKernelNodeSetParams_v2", exec, node,
                 static_cast<const KernelParams*>(&params));
    CHECK_DRIVER("cuGraphLaunch", exec, stream_);
    EXPECT_EQ(word(), 52u);
    params.block[0] = 2000;
    EXPECT_DRIVER(kInvalidValue, "cuGraphExecKernelNodeSetParams_v2", exec, node,
                  static_cast<const KernelParams*>(&params));
}

TEST_F(Graphs, AGraphOfTheSameFormUpdatesAnother) {
    begin();
    step(stream_, 3);
    const Handle exec = instantiate(end());
    begin();
    step(stream_, 7);
    const Handle alike = end();
    begin();
    step(stream_, 7);
    step(stream_, 8);
    const Handle longer = end();
    UpdateResult result = {-1, nullptr, nullptr};
    CHECK_DRIVER("cuGraphExecUpdate_v2", exec, alike, &result);
    EXPECT_EQ(result.result, 0);
    EXPECT_DRIVER(kUpdateFailure, "cuGraphExecUpdate_v2", exec, longer, &result);
    EXPECT_EQ(result.result, 2);
    CHECK_DRIVER("cuGraphLaunch", exec, stream_);
    EXPECT_EQ(word(), 9u);
}

TEST_F(Graphs, HostFunctionsMustNotCallTheDriver) {
    struct Seen {
        Handle stream, context;
        int result = 0;
    } seen{stream_, context_};
    void (*function)(void*) = [](void* data) {
        auto& s = *static_cast<Seen*>(data);
        call("cuCtxSetCurrent", s.context);
        s.result = call("cuStreamSynchronize", s.stream);
    };
    CHECK_DRIVER("cuLaunchHostFunc", stream_, function, static_cast<void*>(&seen));
    CHECK_DRIVER("cuStreamSynchronize", stream_);
    EXPECT_EQ(seen.result, kNotPermitted);
}

}}  // namespace megjit::card_tests
