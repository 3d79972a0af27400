// The stand-in for cuDNN: plans and runs of a pointwise graph and of a convolution, and what it
// refuses. What its operations compute is compared with the CPU's kernels by `pytest -m gpu`.
#include "backends/cuda/products/cudnn_api.h"
#include "tests/card/driver.h"

namespace megjit::cuda::cudnn { namespace {
struct Functions {
#define MEGJIT_X(symbol, name, result, parameters) result(*name) parameters = nullptr;
    MEGJIT_CUDNN_FUNCTIONS(MEGJIT_X)
#undef MEGJIT_X
};
}}  // namespace megjit::cuda::cudnn

namespace megjit::card_tests { namespace {

using namespace cuda::cudnn;
using Raw = RawDescriptor;
using Ints = std::vector<int64_t>;

const Functions& dnn() {
    static const Functions functions = [] {
        Functions made;
        void* opened = stand_in(MEGJIT_CARD_CUDNN);
        if (!opened) return made;
#define MEGJIT_X(symbol, name, result, parameters) \
    made.name = reinterpret_cast<decltype(made.name)>(dlsym(opened, #symbol));
        MEGJIT_CUDNN_FUNCTIONS(MEGJIT_X)
#undef MEGJIT_X
        return made;
    }();
    return functions;
}

const std::string kCard =
    R"({"deviceName": "x", "deviceVer": 900, "multiProcessorCount": 132, "warpSize": 32})";

class CudnnTest : public CardTest {
protected:
    void SetUp() override {
        CardTest::SetUp();
        ASSERT_EQ(dnn().create(&handle_), 0) << said();
        ASSERT_EQ(dnn().set_stream(handle_, stream_), 0) << said();
    }
    void TearDown() override {
        call("cuCtxSetCurrent", context_);
        call("cuCtxSynchronize");
        for (Raw made : made_) dnn().destroy_descriptor(made);
        if (handle_) { EXPECT_EQ(dnn().destroy(handle_), 0) << said(); }
        CardTest::TearDown();
    }

    static std::string said() {
        char text[1024] = "";
        dnn().last_error(text, sizeof text);
        return text;
    }
    static void expect_refused(int status, const std::string& words) {
        ASSERT_NE(status, 0) << words;
        EXPECT_NE(said().find(words), std::string::npos) << said();
    }
    Raw make(Kind kind) {
        Raw raw = nullptr;
        EXPECT_EQ(dnn().create_descriptor(kind, &raw), 0) << said();
        made_.push_back(raw);
        return raw;
    }
    template <class T>
    static int set_as(Raw d, int name, Tag tag, const std::vector<T>& values) {
        return dnn().set(d, name, tag, static_cast<int64_t>(values.size()), values.data());
    }
    static int set(Raw d, int name, const Ints& values) {
        return set_as(d, name, Tag::int64, values);
    }
    static int set(Raw d, int name, Raw child) {
        return set_as<Raw>(d, name, Tag::descriptor, {child});
    }
    static int set(Raw d, int name, Tag tag, int value) {
        return set_as<int>(d, name, tag, {value});
    }
    Raw finalized(Raw d) {
        EXPECT_EQ(dnn().finalize(d), 0) << said();
        return d;
    }

    Raw unfinished_tensor(int64_t id, const Ints& dims, const Ints& strides,
                          DataType type = DataType::f32) {
        Raw d = make(Kind::tensor);
        set(d, kTensorType, Tag::data_type, static_cast<int>(type));
        set(d, kTensorDims, dims), set(d, kTensorStrides, strides), set(d, kTensorId, {id});
        set(d, kTensorAlignment, {16});
        return d;
    }
    Raw tensor(int64_t id, const Ints& dims) {
        return finalized(unfinished_tensor(id, dims, row_major(dims)));
    }
    Raw flagged(int64_t id, const Ints& dims, int flag) {
        Raw d = unfinished_tensor(id, dims, row_major(dims));
        const bool yes = true;
        EXPECT_EQ(dnn().set(d, flag, Tag::boolean, 1, &yes), 0) << said();
        return finalized(d);
    }
    static Ints row_major(const Ints& dims) {
        Ints strides(dims.size(), 1);
        for (size_t axis = dims.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * dims[axis];
        return strides;
    }
    Raw pointwise(PointwiseMode mode, Raw x, Raw b, Raw y) {
        Raw what = make(Kind::pointwise), d = make(Kind::pointwise_op);
        set(what, kPointwiseMode, Tag::pointwise_mode, static_cast<int>(mode));
        set(what, kPointwiseMath, Tag::data_type, 0);
        set(d, kPointwiseDescription, finalized(what));
        set(d, kPointwiseX, x), set(d, kPointwiseB, b), set(d, kPointwiseY, y);
        return finalized(d);
    }
    Raw graph(const std::vector<Raw>& operations) {
        Raw d = make(Kind::graph);
        EXPECT_EQ(set_as(d, kGraphOperations, Tag::descriptor, operations), 0) << said();
        return d;
    }
    Raw device(const std::string& text = kCard) {
        Raw d = make(Kind::device);
        set_as(d, kDeviceText, Tag::text, std::vector<char>(text.begin(), text.end()));
        return finalized(d);
    }
    // The plan of the library's proposal number `which`, not finalized.
    Raw unfinished_plan(Raw of, int64_t which = 0) {
        Raw heuristic = make(Kind::heuristic);
        set(heuristic, kHeuristicGraph, of), set(heuristic, kHeuristicDevice, device());
        set(heuristic, kHeuristicMode, Tag::heuristic_mode, static_cast<int>(HeuristicMode::a));
        finalized(heuristic);
        std::vector<Raw> configs;
        for (int64_t i = 0; i <= which; ++i) configs.push_back(make(Kind::engine_config));
        int64_t count = 0;
        EXPECT_EQ(dnn().get(heuristic, kHeuristicResults, Tag::descriptor, which + 1, &count,
                            configs.data()),
                  0)
            << said();
        EXPECT_EQ(count, which + 1);
        Raw plan = make(Kind::plan);
        EXPECT_EQ(set(plan, kPlanConfig, configs.back()), 0) << said();
        return plan;
    }
    std::string text_of(Raw plan) {
        int64_t bytes = 0;
        EXPECT_EQ(dnn().get(plan, kPlanText, Tag::text, 0, &bytes, nullptr), 0) << said();
        std::string text(static_cast<size_t>(bytes), '\0');
        EXPECT_EQ(dnn().get(plan, kPlanText, Tag::text, bytes, &bytes, text.data()), 0) << said();
        return text;
    }
    // As it is run: the plan that the library reads from the text of a finalized one.
    Raw from_text(const std::string& text) {
        Raw plan = make(Kind::plan);
        set(plan, kPlanDevice, device());
        set_as(plan, kPlanText, Tag::text, std::vector<char>(text.begin(), text.end()));
        return finalized(plan);
    }
    int64_t workspace_of(Raw plan) {
        int64_t bytes = 0, count = 0;
        EXPECT_EQ(dnn().get(plan, kPlanWorkspace, Tag::int64, 1, &count, &bytes), 0) << said();
        return bytes;
    }
    Raw unfinished_pack(const Ints& ids, const std::vector<void*>& pointers, void* workspace) {
        Raw pack = make(Kind::variant_pack);
        set(pack, kPackIds, ids), set_as(pack, kPackPointers, Tag::pointer, pointers);
        set_as<void*>(pack, kPackWorkspace, Tag::pointer, {workspace});
        return pack;
    }
    static void* at(Address address) { return reinterpret_cast<void*>(address); }

    cuda::cudnn::Handle handle_ = nullptr;
    std::vector<Raw> made_;
};

// y = x * number + b, where the product lies nowhere.
class CudnnRunTest : public CudnnTest {
protected:
    void SetUp() override {
        CudnnTest::SetUp();
        x_ = upload(std::vector<float>(8, 3)), b_ = upload(std::vector<float>{1, 2, 3, 4});
        y_ = allocate(32);
        const Ints dims = {1, 2, 1, 4};
        first_ = pointwise(PointwiseMode::mul, tensor(1, dims),
                           flagged(2, {1, 1, 1, 1}, kTensorIsByValue),
                           flagged(3, dims, kTensorIsVirtual));
        graph_ = finalized(
            graph({first_, pointwise(PointwiseMode::add, flagged(3, dims, kTensorIsVirtual),
                                     tensor(4, {1, 1, 1, 4}), tensor(5, dims))}));
        plan_ = from_text(text_of(finalized(unfinished_plan(graph_))));
        pointers_ = {at(x_), &number_, at(b_), at(y_)};
    }
    int run() {
        return dnn().execute(handle_, plan_, finalized(unfinished_pack(ids_, pointers_, nullptr)));
    }
    Address x_ = 0, b_ = 0, y_ = 0;
    float number_ = 2;
    Raw first_ = nullptr, graph_ = nullptr, plan_ = nullptr;
    Ints ids_ = {1, 2, 4, 5};
    std::vector<void*> pointers_;
    const std::vector<float> right_ = {7, 8, 9, 10, 7, 8, 9, 10};
};

TEST_F(CudnnRunTest, NeedsTheGraphOfAPlan) {
    const Raw plan = unfinished_plan(graph_);
    EXPECT_EQ(dnn().destroy_descriptor(graph_), 0);
    expect_refused(dnn().finalize(plan), "is no live descriptor");
}

TEST_F(CudnnRunTest, RefusesAPlanThatWasMadeWithoutAHandle) {
    plan_ = finalized(unfinished_plan(graph_));
    expect_refused(run(), "is run from its text");
}

TEST_F(CudnnRunTest, Computes) {
    ASSERT_EQ(run(), 0) << said();
    number_ = 5;  // it was read when the run was queued
    EXPECT_EQ(download<float>(y_, 8), right_);
}

TEST_F(CudnnRunTest, RunsAPlanOfItsText) {
    const std::string text = text_of(plan_);
    const auto plan_of = [&](const std::string& from, Raw card) {
        Raw plan = make(Kind::plan);
        set(plan, kPlanDevice, card);
        set_as(plan, kPlanText, Tag::text, std::vector<char>(from.begin(), from.end()));
        return plan;
    };
    plan_ = finalized(plan_of(text, device()));
    ASSERT_EQ(run(), 0) << said();
    EXPECT_EQ(download<float>(y_, 8), right_);
    expect_refused(dnn().finalize(plan_of("x" + text, device())), "the text of a plan is damaged");
    const auto on_ampere = [](std::string where) {
        return where.replace(where.find("900"), 3, "800");
    };
    expect_refused(dnn().finalize(plan_of(text, device(on_ampere(kCard)))),
                   "the plan was made for sm 900 x 132");
    plan_ = finalized(plan_of(on_ampere(text), device(on_ampere(kCard))));
    expect_refused(run(), "the plan was made for sm 800 x 132, not sm 900 x 132");
}

TEST_F(CudnnRunTest, IsCapturedAndReplayed) {
    card_tests::Handle graph = nullptr, exec = nullptr;
    CHECK_DRIVER("cuStreamBeginCapture_v2", stream_, 0);
    ASSERT_EQ(run(), 0) << said();
    CHECK_DRIVER("cuStreamEndCapture", stream_, &graph);
    CHECK_DRIVER("cuGraphInstantiateWithFlags", &exec, graph, 0ull);
    for (int times = 0; times < 2; ++times) {
        CHECK_DRIVER("cuMemsetD8Async", y_, static_cast<unsigned char>(0), size_t{32}, stream_);
        CHECK_DRIVER("cuGraphLaunch", exec, stream_);
        EXPECT_EQ(download<float>(y_, 8), right_);
    }
    CHECK_DRIVER("cuGraphExecDestroy", exec);
    CHECK_DRIVER("cuGraphDestroy", graph);
}

#define REFUSES(name, words, ...) \
    TEST_F(CudnnRunTest, name) { \
        const auto spoil = [&] __VA_ARGS__; \
        spoil(); \
        expect_refused(run(), words); \
    }
REFUSES(RefusesMisalignedOperands, "is no multiple of 16 bytes", { pointers_[0] = at(x_ + 4); })
REFUSES(RefusesFreedMemory, "lies in no live allocation", { call("cuMemFree_v2", y_); })
REFUSES(RefusesWhatEndsEarly, "tensor 1 at ", { pointers_[0] = at(x_ + 16); })
REFUSES(RefusesResultsOverOperands, "tensor 5 is written, and shares bytes with tensor 1", {
    const Address both = allocate(64);
    pointers_[0] = at(both), pointers_[3] = at(both + 16);
})
REFUSES(RefusesNumbersOnTheCard, "number 2 lies in memory of a card", { pointers_[1] = at(x_); })
REFUSES(RefusesMissingTensors, "tensor 5 is not given", { ids_.pop_back(), pointers_.pop_back(); })
REFUSES(RefusesVirtualTensors, "tensor 3 is none that is given", { ids_[2] = 3; })
REFUSES(RefusesUnknownTensors, "tensor 9 is none that is given", { ids_[2] = 9; })
REFUSES(RefusesUnfinishedPlans, "a finalized plan is run", { plan_ = unfinished_plan(graph_); })
REFUSES(RefusesOtherDescriptors, "a finalized plan is run", { plan_ = graph_; })
REFUSES(RefusesOtherContexts, "is current", {
    card_tests::Handle other = nullptr;
    call("cuDevicePrimaryCtxRetain", &other, 1);
    call("cuCtxSetCurrent", other);
})
REFUSES(RefusesDeadStreams, "is none of the handle's context", {
    call("cuStreamSynchronize", stream_);
    call("cuStreamDestroy_v2", stream_);
    streams_.clear();
})
REFUSES(RefusesDeadHandles, "is no live handle", {
    dnn().destroy(handle_);
    handle_ = nullptr;
})

TEST_F(CudnnRunTest, NeedsStreamsOfItsContext) {
    card_tests::Handle other = nullptr;
    call("cuDevicePrimaryCtxRetain", &other, 1);
    call("cuCtxSetCurrent", other);
    const auto stream = new_stream();
    cuda::cudnn::Handle made = nullptr;
    call("cuCtxSetCurrent", context_);
    expect_refused(dnn().set_stream(handle_, stream), "is none of the handle's context");
    call("cuCtxSetCurrent", static_cast<card_tests::Handle>(nullptr));
    expect_refused(dnn().create(&made), "no context is current");
}

// ---- descriptors

TEST_F(CudnnTest, AttributesHaveNamesTypesAndNumbers) {
    Raw d = make(Kind::tensor);
    expect_refused(set(d, 99, {1}), "it has no attribute 99");
    expect_refused(set(d, kTensorType, Ints{0}), "attribute 901 has type 1, not 3");
    expect_refused(set(d, kTensorId, {1, 2}), "attribute 906 has up to 1 values, not 2");
    expect_refused(dnn().finalize(d), "attribute 901 is missing");
    expect_refused(dnn().finalize(unfinished_tensor(1, {2, 3}, {1})), "an extent and a stride");
    expect_refused(dnn().finalize(unfinished_tensor(1, {0}, {1})), "an extent is below 1");
    d = unfinished_tensor(1, {1}, {1});
    set(d, kTensorAlignment, {24});
    expect_refused(dnn().finalize(d), "an alignment is a power of two");
    d = tensor(1, {1});
    expect_refused(set(d, kTensorId, {2}), "it is finalized, and changed no more");
    expect_refused(dnn().finalize(d), "it is finalized twice");
    Raw other = make(Kind::pointwise_op);
    expect_refused(set(other, kPointwiseX, make(Kind::tensor)), "attribute 751 is not finalized");
    expect_refused(set(other, kPointwiseX, reinterpret_cast<Raw>(8)), "is no live descriptor");
    int64_t number = 0, count = 0;
    expect_refused(dnn().get(other, kPlanWorkspace, Tag::int64, 1, &count, &number),
                   "what is not finalized tells nothing");
    expect_refused(dnn().get(d, kTensorId, Tag::int64, 1, &count, &number),
                   "attribute 906 is none that is asked for");
    expect_refused(dnn().create_descriptor(static_cast<Kind>(99), &d), "nobody asks for kind 99");
    expect_refused(dnn().finalize(unfinished_pack({1, 2}, {nullptr}, nullptr)),
                   "each id has a pointer");
    expect_refused(dnn().finalize(make(Kind::plan)), "a plan is of a configuration or a text");
}

TEST_F(CudnnTest, KnowsTypesAndCards) {
    const Raw odd = finalized(unfinished_tensor(1, {4}, {1}, static_cast<DataType>(77)));
    expect_refused(dnn().finalize(graph({pointwise(PointwiseMode::add, odd, odd, odd)})),
                   "type 77");
    const Raw x = tensor(1, {4}), heuristic = make(Kind::heuristic);
    set(heuristic, kHeuristicGraph,
        finalized(graph({pointwise(PointwiseMode::add, x, x, tensor(2, {4}))})));
    set(heuristic, kHeuristicDevice, device("{\"deviceName\": \"x\"}"));
    set(heuristic, kHeuristicMode, Tag::heuristic_mode, 3);
    int64_t count = 0;
    expect_refused(
        dnn().get(finalized(heuristic), kHeuristicResults, Tag::descriptor, 0, &count, nullptr),
        "the card has no ");
}

TEST_F(CudnnTest, TensorsInsideAreWrittenOnceAndFirst) {
    const Ints dims = {1, 4};
    const auto inside = [&] { return flagged(2, dims, kTensorIsVirtual); };
    const Raw x = tensor(1, dims), y = tensor(3, dims);
    const Raw reads = pointwise(PointwiseMode::add, inside(), x, y);
    expect_refused(dnn().finalize(graph({reads})), "tensor 2 is virtual, and read before");
    const Raw writes = pointwise(PointwiseMode::add, x, x, inside());
    expect_refused(dnn().finalize(graph({writes, writes})), "tensor 2 is written twice");
}

TEST_F(CudnnTest, OperandsGoTogether) {
    const auto add = [&](const Ints& x, const Ints& y) {
        return dnn().finalize(
            graph({pointwise(PointwiseMode::add, tensor(1, x), tensor(1, x), tensor(2, y))}));
    };
    expect_refused(add({1, 3}, {1, 4}), "neither 1 nor those of the result");
    const auto binary = [&](Kind kind, int description, Raw what, std::vector<int> names,
                            const std::vector<Ints>& dims) {
        Raw d = make(kind);
        if (what) set(d, description, finalized(what));
        for (size_t i = 0; i < names.size(); ++i)
            set(d, names[i], tensor(static_cast<int64_t>(i) + 1, dims[i]));
        return dnn().finalize(graph({finalized(d)}));
    };
    const auto matmul = [&](const Ints& a, const Ints& b, const Ints& c) {
        Raw what = make(Kind::matmul);
        set(what, kMatmulMath, Tag::data_type, 0);
        return binary(Kind::matmul_op, kMatmulDescription, what, {kMatmulA, kMatmulB, kMatmulC},
                      {a, b, c});
    };
    expect_refused(matmul({1, 2, 3}, {1, 4, 5}, {1, 2, 5}), "the matrices do not go together");
    expect_refused(matmul({2, 2, 3}, {1, 3, 5}, {2, 2, 5}), "the batches differ");
    expect_refused(matmul({2, 3}, {1, 3, 5}, {1, 2, 5}), "the ranks differ");
    Raw window = make(Kind::resample);
    set(window, kResampleMode, Tag::resample_mode, static_cast<int>(ResampleMode::max));
    set(window, kResampleMath, Tag::data_type, 0), set(window, kResampleDims, {2});
    set(window, kResampleNan, Tag::nan_propagation, 1);
    set(window, kResamplePadding, Tag::padding_mode, 1);
    for (int name : {kResampleStrides, kResampleWindow}) set(window, name, {2, 2});
    for (int name : {kResamplePaddingBefore, kResamplePaddingAfter}) set(window, name, {0, 0});
    expect_refused(binary(Kind::resample_forward, kResampleForwardDescription, window,
                          {kResampleForwardX, kResampleForwardY}, {{1, 2, 4, 4}, {1, 3, 2, 2}}),
                   "the channels or batches do not go together");
    expect_refused(binary(Kind::reshape_op, 0, nullptr, {kReshapeX, kReshapeY}, {{2, 3}, {5}}),
                   "the numbers of elements differ");
}

// A convolution of 3x3 over 5x5 images, by the engine for float32.
class CudnnConvTest : public CudnnTest {
protected:
    Raw conv(const Ints& y, Ints padding = {0, 0}, float alpha = 1, Ints channels = {2, 2}) {
        Raw what = make(Kind::convolution), d = make(Kind::conv_forward);
        set(what, kConvolutionMath, Tag::data_type, 0), set(what, kConvolutionDims, {2});
        set(what, kConvolutionMode, Tag::convolution_mode, 1);
        set(what, kConvolutionPaddingBefore, padding), set(what, kConvolutionPaddingAfter, padding);
        set(what, kConvolutionStrides, {1, 1}), set(what, kConvolutionDilations, {1, 1});
        set_as<float>(d, kConvForward, Tag::real32, {alpha});
        set_as<float>(d, kConvForward + 1, Tag::real32, {0});
        set(d, kConvForward + 2, finalized(what));
        set(d, kConvForward + 3, tensor(2, {3, channels[1], 3, 3}));
        set(d, kConvForward + 4, tensor(1, {1, channels[0], 5, 5}));
        set(d, kConvForward + 5, tensor(3, y));
        return graph({finalized(d)});
    }
};

TEST_F(CudnnConvTest, ComputesWithAWorkspace) {
    const Raw plan =
        from_text(text_of(finalized(unfinished_plan(finalized(conv({1, 3, 3, 3})), 1))));
    const Address x = upload(std::vector<float>(50, 1)), w = upload(std::vector<float>(54, 2)),
                  y = allocate(27 * 4);
    EXPECT_EQ(workspace_of(plan), 1000);
    const Address workspace = allocate(1000 + 64), small = allocate(900);
    const auto run = [&](Address with) {
        return dnn().execute(
            handle_, plan, finalized(unfinished_pack({1, 2, 3}, {at(x), at(w), at(y)}, at(with))));
    };
    ASSERT_EQ(run(workspace), 0) << said();
    EXPECT_EQ(download<float>(y, 27), std::vector<float>(27, 36));
    expect_refused(run(workspace + 64), "the workspace at ");
    expect_refused(run(workspace + 64), "is no multiple of 256 bytes");
    expect_refused(run(small), "has 1000 bytes, of which 900 are within its allocation");
}

TEST_F(CudnnConvTest, OperandsGoTogether) {
    expect_refused(dnn().finalize(conv({1, 3, 4, 3})), "axis 2 has 4 places, not 3");
    expect_refused(dnn().finalize(conv({1, 4, 3, 3})),
                   "the channels or batches do not go together");
    expect_refused(dnn().finalize(conv({1, 3, 3, 3, 1})), "tensors of one rank, 4 or 5");
    expect_refused(dnn().finalize(conv({1, 3, 3, 3}, {0, 0}, 2)), "alpha is 1 and beta 0");
    Raw what = make(Kind::convolution);
    set(what, kConvolutionMath, Tag::data_type, 0), set(what, kConvolutionDims, {2});
    set(what, kConvolutionMode, Tag::convolution_mode, 1);
    for (int name : {kConvolutionPaddingBefore, kConvolutionPaddingAfter, kConvolutionStrides})
        set(what, name, {1, 1});
    set(what, kConvolutionDilations, {1});
    expect_refused(dnn().finalize(what), "attribute 102 has not a number for each axis");
}

TEST_F(CudnnConvTest, EnginesTellWhatTheyDo) {
    Raw heuristic = make(Kind::heuristic);
    set(heuristic, kHeuristicGraph, finalized(conv({1, 3, 3, 3})));
    set(heuristic, kHeuristicDevice, device());
    set(heuristic, kHeuristicMode, Tag::heuristic_mode, 3);
    finalized(heuristic);
    Raw config = make(Kind::engine_config), engine = make(Kind::engine);
    int64_t count = 0;
    ASSERT_EQ(dnn().get(heuristic, kHeuristicResults, Tag::descriptor, 1, &count, &config), 0);
    expect_refused(dnn().get(heuristic, kHeuristicResults, Tag::descriptor, 1, &count, &config),
                   "a heuristic fills fresh configurations");
    ASSERT_EQ(dnn().get(config, kConfigEngine, Tag::descriptor, 1, &count, &engine), 0);
    NumericalNote notes[10];
    ASSERT_EQ(dnn().get(engine, kEngineNotes, Tag::numerical_note, 10, &count, notes), 0);
    ASSERT_EQ(count, 2);
    EXPECT_EQ(notes[0], NumericalNote::tensor_core);
    EXPECT_EQ(notes[1], NumericalNote::down_converts_inputs);
    Raw own = make(Kind::engine_config), plan = make(Kind::plan);
    set(own, kConfigEngine, engine);
    set(plan, kPlanConfig, finalized(own));
    expect_refused(dnn().finalize(plan), "the configuration is none of a heuristic's");
}

}}  // namespace megjit::card_tests
