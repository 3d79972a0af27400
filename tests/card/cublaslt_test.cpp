// The stand-in for cuBLASLt: what it computes, and what it refuses.
#include <functional>

#include "backends/cuda/products/cublaslt_api.h"
#include "tests/card/driver.h"

namespace megjit::cuda::cublaslt { namespace {
struct Functions {
#define MEGJIT_X(symbol, name, result, parameters) result(*name) parameters = nullptr;
    MEGJIT_CUBLASLT_FUNCTIONS(MEGJIT_X)
#undef MEGJIT_X
};
}}  // namespace megjit::cuda::cublaslt

namespace megjit::card_tests { namespace {

using namespace cuda::cublaslt;

const Functions& lt() {
    static const Functions functions = [] {
        Functions made;
        void* opened = stand_in(MEGJIT_CARD_CUBLASLT);
        if (!opened) return made;
#define MEGJIT_X(symbol, name, result, parameters) \
    made.name = reinterpret_cast<decltype(made.name)>(dlsym(opened, #symbol));
        MEGJIT_CUBLASLT_FUNCTIONS(MEGJIT_X)
#undef MEGJIT_X
        return made;
    }();
    return functions;
}

constexpr int64_t kM = 4, kN = 8, kK = 16;

// D = A B + beta C of float32, columns first; each test spoils some of it.
class CublasLtTest : public CardTest {
protected:
    void SetUp() override {
        CardTest::SetUp();
        ASSERT_EQ(lt().create(&handle_), 0);
        ASSERT_EQ(lt().create_matmul(&product_, Compute::f32, DataType::f32), 0);
        la_ = layout(kM, kK), lb_ = layout(kK, kN), lc_ = layout(kM, kN), ld_ = layout(kM, kN);
        ASSERT_EQ(lt().create_preference(&preference_), 0);
        EXPECT_EQ(prefer(kMaxWorkspace, uint64_t{4096}), 0);
        for (int name : {kAlignmentA, kAlignmentB, kAlignmentC, kAlignmentD})
            EXPECT_EQ(prefer(name, uint32_t{16}), 0);
        std::vector<float> a(kM * kK), b(kK * kN), c(kM * kN, 100);
        for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(i % 7);
        for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(i % 5) - 2;
        a_ = upload(a), b_ = upload(b), c_ = upload(c), d_ = allocate(kM * kN * 4);
        workspace_ = allocate(workspace_bytes_);
        for (int64_t n = 0; n < kN; ++n)
            for (int64_t m = 0; m < kM; ++m) {
                float sum = 0;
                for (int64_t k = 0; k < kK; ++k)
                    sum += a[static_cast<size_t>(k * kM + m)] * b[static_cast<size_t>(n * kK + k)];
                right_.push_back(sum);
            }
    }
    // Every descriptor is the library's until it is destroyed.
    void TearDown() override {
        call("cuCtxSetCurrent", context_);
        call("cuCtxSynchronize");
        for (LayoutDescriptor made : layouts_) lt().destroy_layout(made);
        EXPECT_EQ(lt().destroy_preference(preference_), 0);
        EXPECT_EQ(lt().destroy_matmul(product_), 0);
        if (handle_) { EXPECT_EQ(lt().destroy(handle_), 0); }
        CardTest::TearDown();
    }

    LayoutDescriptor layout(int64_t rows, int64_t columns) {
        LayoutDescriptor made = nullptr;
        EXPECT_EQ(lt().create_layout(&made, DataType::f32, static_cast<uint64_t>(rows),
                                     static_cast<uint64_t>(columns), rows),
                  0);
        layouts_.push_back(made);
        return made;
    }
    template <class T>
    int prefer(int name, const T& value) {
        return lt().set_preference(preference_, name, &value, sizeof value);
    }
    template <class T>
    int set(int name, const T& value) {
        return lt().set_matmul(product_, name, &value, sizeof value);
    }
    int propose() {
        int count = 0;
        Proposal proposal;
        const int status =
            lt().propose(handle_, product_, la_, lb_, lc_, ld_, preference_, 1, &proposal, &count);
        if (status == 0) algorithm_ = proposal.algorithm;
        return status;
    }
    int multiply() {
        const auto at = [](Address address) { return reinterpret_cast<void*>(address); };
        return lt().matmul(handle_, product_, alpha_, at(a_), la_, at(b_), lb_, &beta_, at(c_), lc_,
                           at(d_), ld_, &algorithm_, at(workspace_), workspace_bytes_, stream_);
    }
    // What the library says of a wrong call.
    void expect_refused(int status, const std::string& words) {
        ASSERT_NE(status, 0) << words;
        const std::string said = lt().error_text(status);
        EXPECT_NE(said.find(words), std::string::npos) << said;
    }

    cuda::cublaslt::Handle handle_ = nullptr;
    MatmulDescriptor product_ = nullptr;
    PreferenceDescriptor preference_ = nullptr;
    std::vector<LayoutDescriptor> layouts_;
    LayoutDescriptor la_ = nullptr, lb_ = nullptr, lc_ = nullptr, ld_ = nullptr;
    Algorithm algorithm_;
    Address a_ = 0, b_ = 0, c_ = 0, d_ = 0, workspace_ = 0;
    size_t workspace_bytes_ = 2048;
    float one_ = 1, beta_ = 0;
    const void* alpha_ = &one_;
    std::vector<float> right_;
};

TEST_F(CublasLtTest, Multiplies) {
    ASSERT_EQ(propose(), 0);
    ASSERT_EQ(multiply(), 0) << lt().error_text(7);
    EXPECT_EQ(download<float>(d_, kM * kN), right_);
}

TEST_F(CublasLtTest, AddsAndCutsOff) {
    const std::vector<float> bias = {1, -1000, 0, 2};
    const Address at = upload(bias);
    EXPECT_EQ(set(kEpilogue, Epilogue::relu_bias), 0);
    EXPECT_EQ(set(kBiasPointer, reinterpret_cast<void*>(at)), 0);
    beta_ = 0.5f;
    ASSERT_EQ(propose(), 0);
    ASSERT_EQ(multiply(), 0) << lt().error_text(7);
    for (size_t i = 0; i < right_.size(); ++i)
        right_[i] = std::max(0.0f, right_[i] + 50 + bias[i % kM]);
    EXPECT_EQ(download<float>(d_, kM * kN), right_);
}

TEST_F(CublasLtTest, AddsUpTheFactors) {
    const std::vector<float> a = download<float>(a_, kM * kK), b = download<float>(b_, kK * kN);
    std::vector<float> of_a(kM), of_b(kN);
    for (size_t i = 0; i < a.size(); ++i) of_a[i % kM] += a[i];
    for (size_t i = 0; i < b.size(); ++i) of_b[i / kK] += b[i];
    for (const Epilogue which : {Epilogue::sums_a, Epilogue::sums_b}) {
        const std::vector<float>& right = which == Epilogue::sums_a ? of_a : of_b;
        const Address sums = allocate(right.size() * 4);
        EXPECT_EQ(set(kEpilogue, which), 0);
        EXPECT_EQ(set(kBiasPointer, reinterpret_cast<void*>(sums)), 0);
        ASSERT_EQ(propose(), 0);
        ASSERT_EQ(multiply(), 0) << lt().error_text(7);
        EXPECT_EQ(download<float>(sums, right.size()), right);
        EXPECT_EQ(download<float>(d_, kM * kN), right_);
    }
}

TEST_F(CublasLtTest, IsCapturedAndReplayed) {
    ASSERT_EQ(propose(), 0);
    Handle graph = nullptr, exec = nullptr;
    CHECK_DRIVER("cuStreamBeginCapture_v2", stream_, 0);
    ASSERT_EQ(multiply(), 0) << lt().error_text(7);
    CHECK_DRIVER("cuStreamEndCapture", stream_, &graph);
    CHECK_DRIVER("cuGraphInstantiateWithFlags", &exec, graph, 0ull);
    CHECK_DRIVER("cuGraphDestroy", graph);  // what it queued lives on in the executable
    for (int run = 0; run < 2; ++run) {
        CHECK_DRIVER("cuMemsetD8Async", d_, static_cast<unsigned char>(0), size_t{kM * kN * 4},
                     stream_);
        CHECK_DRIVER("cuGraphLaunch", exec, stream_);
        EXPECT_EQ(download<float>(d_, kM * kN), right_);
    }
    CHECK_DRIVER("cuMemFree_v2", b_);
    CHECK_DRIVER("cuGraphLaunch", exec, stream_);
    EXPECT_DRIVER(kIllegalAddress, "cuStreamSynchronize", stream_);
    EXPECT_NE(last_fault().find("cuBLASLt's kernel 0: 512 bytes"), std::string::npos)
        << last_fault();
    CHECK_DRIVER("cuGraphExecDestroy", exec);
    handle_ = nullptr;  // which the card takes with it
}

// What is wrong with a call that would otherwise be right.
#define REFUSES(name, words, ...) \
    TEST_F(CublasLtTest, name) { \
        ASSERT_EQ(propose(), 0); \
        const auto spoil = [&] __VA_ARGS__; \
        spoil(); \
        expect_refused(multiply(), words); \
    }
REFUSES(RefusesMisalignedOperands, "A at ", { a_ += 4; })
REFUSES(SaysTheAlignment, "is no multiple of 16 bytes", { d_ += 4; })
REFUSES(RefusesMisalignedWorkspaces, "is no multiple of 256 bytes", { workspace_ += 64; })
REFUSES(RefusesFreedMemory, "D at ", { call("cuMemFree_v2", d_); })
REFUSES(SaysThatNothingLives, "lies in no live allocation", { call("cuMemFree_v2", d_); })
REFUSES(RefusesWhatEndsEarly, "has 512 bytes, of which 496 are within its allocation",
        { b_ += 16; })
REFUSES(RefusesSmallWorkspaces, "takes 2048 bytes of workspace, given are 1024",
        { workspace_bytes_ = 1024; })
REFUSES(RefusesAlgorithmsOfOthers, "was not proposed for this product",
        { set(kEpilogue, Epilogue::relu); })
REFUSES(RefusesMadeUpAlgorithms, "was not proposed for this product", { algorithm_ = {}; })
REFUSES(RefusesNullFactors, "no null pointers", { alpha_ = nullptr; })
REFUSES(RefusesResultsOverOperands, "D is written, and shares bytes with A", { d_ = a_ + 16; })
REFUSES(RefusesDeadLayouts, "is no live layout", { la_ = reinterpret_cast<LayoutDescriptor>(8); })
REFUSES(RefusesStreamsOfOthers, "is none of the handle's context", {
    Handle other = nullptr;
    call("cuDevicePrimaryCtxRetain", &other, 1);
    call("cuCtxSetCurrent", other);
    stream_ = new_stream();
    call("cuCtxSetCurrent", context_);
})
REFUSES(RefusesOtherContexts, "is current", {
    Handle other = nullptr;
    call("cuDevicePrimaryCtxRetain", &other, 1);
    call("cuCtxSetCurrent", other);
})
REFUSES(RefusesMemoryOfOthers, "lies on card 1, the handle is of card 0", {
    Handle other = nullptr;
    call("cuDevicePrimaryCtxRetain", &other, 1);
    call("cuCtxSetCurrent", other);
    b_ = allocate(kK * kN * 4);
    call("cuCtxSetCurrent", context_);
})
REFUSES(RefusesDeadHandles, "is no live handle", {
    lt().destroy(handle_);
    handle_ = nullptr;
})

TEST_F(CublasLtTest, RefusesEpiloguesWithoutBias) {
    EXPECT_EQ(set(kEpilogue, Epilogue::bias), 0);
    ASSERT_EQ(propose(), 0);
    expect_refused(multiply(), "the epilogue adds a bias, and there is none");
    EXPECT_EQ(set(kEpilogue, Epilogue::sums_b), 0);
    ASSERT_EQ(propose(), 0);
    expect_refused(multiply(), "the epilogue writes sums, and there is no place for them");
}

TEST_F(CublasLtTest, RefusesDescriptionsThatDoNotGoTogether) {
    EXPECT_EQ(set(kTransposeA, Transpose::yes), 0);
    expect_refused(propose(), "a product of 16 x 4 and 16 x 8 gives no 4 x 8");
    EXPECT_EQ(set(kTransposeA, Transpose::no), 0);
    const int32_t two = 2;
    EXPECT_EQ(lt().set_layout(la_, kBatchCount, &two, sizeof two), 0);
    expect_refused(propose(), "the matrices differ in their types or numbers");
    for (LayoutDescriptor each : {lb_, lc_, ld_}) lt().set_layout(each, kBatchCount, &two, 4);
    expect_refused(propose(), "the matrices of D overlap");
    const int64_t step = kM * kN;
    EXPECT_EQ(lt().set_layout(ld_, kBatchStride, &step, sizeof step), 0);
    expect_refused(propose(), "C lies otherwise than D");
}

TEST_F(CublasLtTest, RefusesWrongAttributes) {
    expect_refused(lt().set_matmul(product_, kEpilogue, &beta_, 1),
                   "attribute 7 has 4 bytes, not 1");
    expect_refused(set(99, 0), "a product has no attribute 99");
    expect_refused(lt().set_layout(la_, 99, &beta_, 4), "a layout has no attribute 99");
    expect_refused(prefer(99, 0), "a preference has no attribute 99");
    LayoutDescriptor made = nullptr;
    expect_refused(lt().create_layout(&made, DataType::f32, 4, 4, 3), "columns 3 apart");
    expect_refused(lt().create_layout(&made, static_cast<DataType>(1), 4, 4, 4), "type 1");
    MatmulDescriptor other = nullptr;
    expect_refused(lt().create_matmul(&other, static_cast<Compute>(64), DataType::f32),
                   "products are computed in float32 or TF32");
    int count = 0;
    Proposal proposal;
    expect_refused(
        lt().propose(handle_, product_, la_, lb_, lc_, ld_, preference_, 0, &proposal, &count),
        "no proposal is asked for");
}

// A handle takes memory, which a capture that others must not disturb forbids; and a capture that
// was spoilt takes no work.
TEST_F(CublasLtTest, KeepsToTheRulesOfCaptures) {
    ASSERT_EQ(propose(), 0);
    CHECK_DRIVER("cuStreamBeginCapture_v2", stream_, 0);
    cuda::cublaslt::Handle made = nullptr;
    expect_refused(lt().create(&made), "takes memory of the card, which gives none");
    EXPECT_DRIVER(kCaptureUnsupported, "cuStreamSynchronize", stream_);
    expect_refused(multiply(), "the driver takes no work: 901");
    Handle graph = nullptr;
    EXPECT_DRIVER(kCaptureInvalidated, "cuStreamEndCapture", stream_, &graph);
}

TEST_F(CublasLtTest, NeedsAContext) {
    call("cuCtxSetCurrent", static_cast<Handle>(nullptr));
    cuda::cublaslt::Handle made = nullptr;
    expect_refused(lt().create(&made), "no context is current");
}

}}  // namespace megjit::card_tests
