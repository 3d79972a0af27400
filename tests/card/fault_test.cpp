// What is wrong in a launch or in a kernel, and how it is told.
#include "tests/card/driver.h"

namespace megjit::card_tests { namespace {

class Faults : public CardTest {
protected:
    // Reads 4 bytes at p + offset in every thread: offset 0 in all but thread 37.
    Handle reader() {
        return load(kernel(".param .u64 p, .param .u64 offset", R"(
    .reg .b64 %a, %o; .reg .b32 %v, %t; .reg .pred %p;
    ld.param.u64 %a, [p]; ld.param.u64 %o, [offset]; mov.u32 %t, %tid.x;
    setp.ne.u32 %p, %t, 37; @%p bra OTHERS;
    add.u64 %a, %a, %o;
OTHERS:
    ld.global.u32 %v, [%a];
    ret;)"),
                    "k");
    }
    void expect_fault(std::initializer_list<const char*> texts) {
        for (const char* text : texts)
            EXPECT_NE(last_fault().find(text), std::string::npos) << text << " in:\n"
                                                                  << last_fault();
    }
};

TEST_F(Faults, AnAccessPastTheEndNamesInstructionThreadAndAllocation) {
    const Address p = allocate(100);
    EXPECT_EQ(result_of(reader(), {2}, {64}, p, uint64_t{96}), 0);
    EXPECT_EQ(result_of(reader(), {1}, {64}, p, uint64_t{100}), kIllegalAddress);
    expect_fault({"kernel k, ptx line 12: ld.global.u32 %v, [%a];",
                  "thread (37, 0, 0) of block (0, 0, 0)", "0 bytes past the end of allocation",
                  "of 100 bytes"});
    // Sticky, until the context is reset.
    EXPECT_DRIVER(kIllegalAddress, "cuStreamSynchronize", stream_);
    Address address = 0;
    EXPECT_DRIVER(kIllegalAddress, "cuMemAlloc_v2", &address, size_t{4});
    CHECK_DRIVER("cuDevicePrimaryCtxReset_v2", 0);
    CHECK_DRIVER("cuMemAlloc_v2", &address, size_t{4});
}

TEST_F(Faults, AnAccessAcrossTheEndIsNoticed) {
    EXPECT_EQ(result_of(reader(), {1}, {64}, allocate(98), uint64_t{96}), kIllegalAddress);
}
TEST_F(Faults, AnAccessAfterTheFreeIsNoticed) {
    const Address p = allocate(100), q = allocate(100);
    CHECK_DRIVER("cuMemFree_v2", p);
    EXPECT_EQ(result_of(reader(), {1}, {64}, q, p - q + 8), kIllegalAddress);
    expect_fault({"within the freed allocation", "of 100 bytes"});
}
TEST_F(Faults, MemoryOfAStreamIsThereWhenTheStreamGetsThere) {
    Address p = 0;
    CHECK_DRIVER("cuMemAllocAsync", &p, size_t{256}, stream_);
    EXPECT_EQ(result_of(reader(), {1}, {64}, p, uint64_t{0}), 0);
    CHECK_DRIVER("cuMemFreeAsync", p, stream_);
    EXPECT_EQ(result_of(reader(), {1}, {64}, p, uint64_t{0}), kIllegalAddress);
}
TEST_F(Faults, NullIsNoAddress) {
    const Address p = allocate(64);
    EXPECT_EQ(result_of(reader(), {1}, {64}, p, -p), kIllegalAddress);
    expect_fault({"0x0: null"});
}
TEST_F(Faults, MemoryOfTheHostIsReachedOnlyWhenPinned) {
    uint32_t word = 1;
    const auto address = reinterpret_cast<Address>(&word);
    EXPECT_EQ(result_of(reader(), {1}, {64}, address, uint64_t{0}), kIllegalAddress);
    expect_fault({"no address of a card"});
    CHECK_DRIVER("cuDevicePrimaryCtxReset_v2", 0);
    CHECK_DRIVER("cuMemHostRegister_v2", static_cast<void*>(&word), size_t{4}, 0u);
    EXPECT_EQ(result_of(reader(), {1}, {64}, address, uint64_t{0}), 0);
    CHECK_DRIVER("cuMemHostUnregister", static_cast<void*>(&word));
}
TEST_F(Faults, AMisalignedAddressIsNoticed) {
    EXPECT_EQ(result_of(reader(), {1}, {64}, allocate(64), uint64_t{2}), kMisaligned);
    expect_fault({"is not a multiple of 4", "thread (37, 0, 0)"});
}
TEST_F(Faults, TheHostCannotTouchDeviceMemory) {
    const Address p = allocate(64);
    EXPECT_DEATH(*reinterpret_cast<volatile int*>(p) = 1, "");
}
TEST_F(Faults, FreshMemoryIsNaN) {
    const Address p = allocate(1 << 20);
    EXPECT_EQ(download<uint32_t>(p, 1)[0], 0xffffffffu);
    EXPECT_EQ(download<uint32_t>(p + (1 << 20) - 4, 1)[0], 0xffffffffu);
    CHECK_DRIVER("cuMemsetD8_v2", p, static_cast<unsigned char>(0), size_t{1 << 20});
    CHECK_DRIVER("cuMemFree_v2", p);
    const Address q = allocate(1 << 20);
    EXPECT_EQ(download<uint32_t>(q, 1)[0], 0xffffffffu);
}
TEST_F(Faults, SharedMemoryHasAnEnd) {
    const Handle k = load(kernel(".param .u32 at", R"(
    .reg .b32 %a, %v; .shared .align 4 .b8 s[64];
    ld.param.u32 %a, [at]; mov.u32 %v, s; add.u32 %a, %a, %v; st.shared.u32 [%a], %v; ret;)"),
                          "k");
    EXPECT_EQ(result_of(k, {1}, {1}, 60u), 0);
    EXPECT_EQ(result_of(k, {1}, {1}, 64u), kIllegalAddress);
    expect_fault({"the block has 64 bytes of shared memory"});
}
TEST_F(Faults, ATrapIsAnIllegalInstruction) {
    EXPECT_EQ(result_of(load(kernel("", "trap; ret;"), "k"), {1}, {1}), kIllegalInstruction);
    expect_fault({"trap"});
}
TEST_F(Faults, ABarrierThatSomeNeverReachTimesOut) {
    const Handle k = load(kernel("", R"(
    .reg .b32 %t; .reg .pred %p; mov.u32 %t, %tid.x; setp.lt.u32 %p, %t, 32;
    @%p bra LOW; bar.sync 0; bar.sync 1; ret;
LOW: bar.sync 1; bar.sync 0; ret;)"),
                          "k");
    EXPECT_EQ(result_of(k, {1}, {64}), kTimeout);
    expect_fault({"wait at barrier"});
}
TEST_F(Faults, LanesThatNeverComeTimeOut) {
    const Handle k = load(kernel("", R"(
    .reg .b32 %t; .reg .pred %p, %q; mov.u32 %t, %tid.x; setp.lt.u32 %p, %t, 16;
    @%p bra LOW; shfl.sync.idx.b32 %t, %t, 0, 31, -1; bar.sync 0; ret;
LOW: bar.sync 0; shfl.sync.idx.b32 %t, %t, 0, 31, -1; ret;)"),
                          "k");
    EXPECT_EQ(result_of(k, {1}, {32}), kTimeout);
}
TEST_F(Faults, UnknownInstructionsAreLoadErrorsWithALog) {
    const std::string ptx = kernel("", "\n.reg .f32 %f;\nfrobnicate.f32 %f, %f;\nret;");
    char log[512] = "";
    int options[] = {5, 6};
    void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
    Handle module = nullptr;
    EXPECT_DRIVER(kInvalidPtx, "cuModuleLoadDataEx", &module, static_cast<const void*>(ptx.c_str()),
                  2u, static_cast<int*>(options), static_cast<void**>(values));
    EXPECT_STREQ(log, "ptx line 8: an unknown instruction\n  frobnicate.f32 %f, %f;");
}

// Generated kernels promise the host's bits.
TEST_F(Faults, RoundingThatIsLeftToTheCardIsALoadErrorOfAGeneratedKernel) {
    const auto result = [](const std::string& body, const char* name) {
        std::string ptx = kernel("", "\n.reg .f32 %f<4>;\n" + body + "\nret;");
        ptx.replace(ptx.find(" k"), 2, std::string(" ") + name);
        Handle module = nullptr;
        return call("cuModuleLoadData", &module, static_cast<const void*>(ptx.c_str()));
    };
    const std::pair<const char*, int> bodies[] = {
        {"mul.rn.f32 %f1, %f2, %f3; add.rn.f32 %f1, %f1, %f2;", 0},
        {"mul.rn.f32 %f1, %f2, %f3; add.f32 %f1, %f1, %f2;", 0},
        {"mul.f32 %f1, %f2, %f3; mov.f32 %f1, %f2; add.f32 %f1, %f1, %f2;", 0},
        {"fma.rn.f32 %f1, %f2, %f3, %f0; div.rn.f32 %f1, %f1, %f2;", 0},
        {"mul.f32 %f1, %f2, %f3; add.f32 %f1, %f2, %f1;", kInvalidPtx},
        {"mul.f32 %f1, %f2, %f3; sub.f32 %f0, %f1, %f2;", kInvalidPtx},
        {"rcp.approx.ftz.f32 %f1, %f2; fma.rn.f32 %f3, %f1, %f2, %f0;", 0},
        {"rcp.approx.ftz.f32 %f1, %f2; mul.rn.f32 %f3, %f1, %f2;", kInvalidPtx},
        {"div.approx.f32 %f1, %f1, %f2;", kInvalidPtx},
        {"ex2.approx.ftz.f32 %f1, %f1;", kInvalidPtx}};
    for (const auto& [body, wanted] : bodies) {
        EXPECT_EQ(result(body, "megjit_kernel"), wanted) << body;
        EXPECT_EQ(result(body, "by_hand"), 0) << body;
    }
}

// ---- launches

class Launches : public Faults {};

TEST_F(Launches, ArgumentsMustFitTheParameters) {
    const Handle k = load(kernel(".param .u64 a, .param .u32 b", "ret;"), "k");
    uint64_t a = 0;
    char buffer[16] = {};
    size_t bytes = 16;
    void* extra[] = {reinterpret_cast<void*>(1), buffer, reinterpret_cast<void*>(2), &bytes,
                     nullptr};
    const auto launch_with = [&](void** parameters, void** more) {
        return call("cuLaunchKernel", k, 1u, 1u, 1u, 1u, 1u, 1u, 0u, stream_, parameters, more);
    };
    EXPECT_EQ(launch_with(nullptr, extra), kInvalidValue);
    expect_fault({"k has 16 bytes of arguments, its .param list has 12"});
    bytes = 12;
    EXPECT_EQ(launch_with(nullptr, extra), 0);
    void* missing[] = {&a, nullptr};
    EXPECT_EQ(launch_with(missing, nullptr), kInvalidValue);
    EXPECT_EQ(launch_with(nullptr, nullptr), kInvalidValue);
}
TEST_F(Launches, ShapesHaveLimits) {
    const Handle k = load(kernel("", "ret;"), "k");
    EXPECT_EQ(try_launch(k, {0}, {1}, 0), kInvalidValue);
    EXPECT_EQ(try_launch(k, {1, 65536}, {1}, 0), kInvalidValue);
    EXPECT_EQ(try_launch(k, {1}, {1025}, 0), kInvalidValue);
    EXPECT_EQ(try_launch(k, {1}, {32, 33}, 0), kInvalidValue);
    EXPECT_EQ(try_launch(k, {1}, {1, 1, 65}, 0), kInvalidValue);
    EXPECT_EQ(try_launch(k, {1}, {1024}, 48 << 10), 0);
    EXPECT_EQ(try_launch(k, {1}, {1}, 60000), kInvalidValue);
    CHECK_DRIVER("cuFuncSetAttribute", k, 8, 60000);
    EXPECT_EQ(try_launch(k, {1}, {1}, 60000), 0);
    EXPECT_DRIVER(kInvalidValue, "cuFuncSetAttribute", k, 8, 300000);
}
TEST_F(Launches, ContextsMustAgree) {
    const Handle k = load(kernel("", "ret;"), "k");
    Handle other = nullptr;
    CHECK_DRIVER("cuDevicePrimaryCtxRetain", &other, 1);
    CHECK_DRIVER("cuCtxSetCurrent", other);
    EXPECT_DRIVER(kInvalidContext, "cuLaunchKernel", k, 1u, 1u, 1u, 1u, 1u, 1u, 0u, Handle{},
                  static_cast<void**>(nullptr), static_cast<void**>(nullptr));
    CHECK_DRIVER("cuCtxSetCurrent", Handle{});
    EXPECT_DRIVER(kInvalidContext, "cuCtxSynchronize");
    CHECK_DRIVER("cuCtxSetCurrent", context_);
    CHECK_DRIVER("cuDevicePrimaryCtxRelease_v2", 1);
}
TEST_F(Launches, CopiesAndFillsStayWithinAllocations) {
    const Address p = allocate(100);
    char host[200] = {};
    EXPECT_DRIVER(kInvalidValue, "cuMemcpyHtoDAsync_v2", p, static_cast<const void*>(host),
                  size_t{101}, stream_);
    EXPECT_DRIVER(kInvalidValue, "cuMemcpyHtoDAsync_v2", p + 50, static_cast<const void*>(host),
                  size_t{51}, stream_);
    EXPECT_DRIVER(kInvalidValue, "cuMemsetD32Async", p, 0u, size_t{26}, stream_);
    EXPECT_DRIVER(kInvalidValue, "cuMemsetD32Async", p + 2, 0u, size_t{1}, stream_);
    EXPECT_DRIVER(kInvalidValue, "cuMemFree_v2", p + 4);
    EXPECT_DRIVER(kSuccess, "cuMemsetD16Async", p, static_cast<unsigned short>(0x1234), size_t{50},
                  stream_);
    EXPECT_EQ(download<uint16_t>(p, 50), std::vector<uint16_t>(50, 0x1234));
}
TEST_F(Launches, LeaksAreCounted) {
    const auto live = [] {
        size_t bytes = 0;
        const auto count = reinterpret_cast<size_t (*)(size_t*)>(
            dlsym(library(), "megjit_card_live_allocations"))(&bytes);
        return std::pair(count, bytes);
    };
    EXPECT_EQ(live(), std::pair(size_t{0}, size_t{0}));
    const Address p = allocate(100);
    EXPECT_EQ(live(), std::pair(size_t{1}, size_t{100}));
    CHECK_DRIVER("cuMemFree_v2", p);
    EXPECT_EQ(live(), std::pair(size_t{0}, size_t{0}));
}
TEST_F(Launches, MemoryRunsOut) {
    Address p = 0;
    EXPECT_DRIVER(kOutOfMemory, "cuMemAlloc_v2", &p, size_t{9} << 30);
    size_t free = 0, total = 0;
    CHECK_DRIVER("cuMemGetInfo_v2", &free, &total);
    EXPECT_EQ(total, size_t{8} << 30);
    CHECK_DRIVER("cuMemAlloc_v2", &p, size_t{6} << 30);
    EXPECT_DRIVER(kOutOfMemory, "cuMemAlloc_v2", &p, size_t{3} << 30);
}
TEST_F(Launches, FunctionsThatNobodyNeedsAreRefusedByName) {
    EXPECT_DRIVER(kNotSupported, "cuArrayCreate_v2");
    void* function = nullptr;
    int status = -1;
    EXPECT_DRIVER(kSuccess, "cuGetProcAddress_v2", "cuMemAlloc", &function, 13000, uint64_t{0},
                  &status);
    EXPECT_EQ(function, dlsym(library(), "cuMemAlloc_v2"));
    EXPECT_DRIVER(kNotFound, "cuGetProcAddress_v2", "cuNoSuchThing", &function, 13000, uint64_t{0},
                  &status);
    const char* name = nullptr;
    CHECK_DRIVER("cuGetErrorName", 716, &name);
    EXPECT_STREQ(name, "CUDA_ERROR_MISALIGNED_ADDRESS");
}

}}  // namespace megjit::card_tests
