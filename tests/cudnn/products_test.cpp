// What can be said of NVIDIA's libraries without a card. Tests that need one of them skip where it
// is not installed.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "backends/cuda/products/cudnn_plan.h"
#include "backends/cuda/products/cudnn_problems.h"
#include "backends/cuda/products/product.h"
#include "runtime/host/error.h"
#include "runtime/host/nvidia_libraries.h"
#include "tests/cudnn/networks.h"

namespace megjit::cuda { namespace {

namespace fs = std::filesystem;
using cudnn::Graph;
using cudnn::Place;
using runtime::Attrs;
using runtime::DType;
using runtime::NvidiaLibrary;
using runtime::Type;
using Extents = std::vector<int64_t>;

OpCase plain_conv(DType dtype = DType::f16) {
    runtime::register_all_ops();
    return {"test",
            "conv",
            {Extents{1}, Extents{1}, Extents{1}, int64_t{1}},
            {{dtype, {8, 64, 28, 28}, runtime::Layout::channels_last}, {dtype, {64, 64, 3, 3}}}};
}

OpCase matmul(Type a, Type b) {
    runtime::register_all_ops();
    return {"test", "matmul", {int64_t{0}, int64_t{0}}, {a, b}};
}

std::unique_ptr<Product> product_of(const OpCase& c, const ProductOptions& options,
                                    std::string* why_not) {
    const runtime::OpCall call = c.call();
    return make_product(call, runtime::infer(call), h100(), options, why_not);
}

int image(Graph& graph, Place place, int64_t channels = 64) {
    return graph.add({.dims = {8, channels, 28, 28},
                      .strides = {784 * channels, 1, 28 * channels, channels},
                      .place = place});
}

int channels(Graph& graph, Place place, int64_t count) {
    return graph.add(
        {.dims = {1, count, 1, 1}, .strides = {count, 1, 1, 1}, .place = place, .index = 1});
}

// --- finding libraries -------------------------------------------------------------------------

TEST(NvidiaLibraries, SaysWhereItLookedInVain) {
    const fs::path nowhere[] = {"/nowhere/libcudnn.so.9"};
    const auto found = runtime::open_library(NvidiaLibrary::cudnn, nowhere);
    EXPECT_FALSE(found);
    EXPECT_EQ(found.why_not, "no /nowhere/libcudnn.so.9 was found; pip install nvidia-cudnn-cu13");
}

TEST(NvidiaLibraries, SaysWhatIsWrongWithAFileThatIsNoLibrary) {
    const fs::path file[] = {fs::path(testing::TempDir()) / "libcudnn.so.9"};
    std::ofstream(file[0]) << "not a library";
    const auto found = runtime::open_library(NvidiaLibrary::cudnn, file);
    EXPECT_FALSE(found);
    EXPECT_NE(found.why_not.find("libcudnn.so.9: file too short"), std::string::npos)
        << found.why_not;
}

TEST(NvidiaLibraries, SaysWhatALibraryOfAnotherKindLacks) {
    const fs::path libc[] = {"libc.so.6"};
    const auto found = runtime::open_library(NvidiaLibrary::cublaslt, libc);
    EXPECT_FALSE(found);
    EXPECT_NE(found.why_not.find("libc.so.6: it lacks cublasLtGetVersion"), std::string::npos)
        << found.why_not;
}

TEST(NvidiaLibraries, TheLoadersPathGoesBeforeWheelsAndToolkits) {
    const auto paths = runtime::candidates_of(NvidiaLibrary::nccl);
    ASSERT_GE(paths.size(), 2u);
    EXPECT_EQ(paths[0], "libnccl.so.2");
    EXPECT_TRUE(paths[1].string().ends_with("nvidia/nccl/lib/libnccl.so.2")) << paths[1];
}

// --- cards -------------------------------------------------------------------------------------

TEST(Card, TextHasWhatCudnnReads) {
    const std::string json = to_json(h100());
    for (const char* part : {"\"deviceVer\": 900,", "\"multiProcessorCount\": 132,",
                             "\"maxGridSize\": [2147483647, 65535, 65535]", "\"isTccDriver\": 0}"})
        EXPECT_NE(json.find(part), std::string::npos) << part << " in " << json;
}

TEST(Card, ItsNameCannotBreakTheText) {
    CardDescription card = h100();
    card.name = "a \"card\" \\ \n";
    EXPECT_NE(to_json(card).find("\"a \\\"card\\\" \\\\ \""), std::string::npos) << to_json(card);
}

// --- our verifier ------------------------------------------------------------------------------

TEST(GraphFault, NoneInAChain) {
    Graph graph;
    const int x = image(graph, Place::input), y = image(graph, Place::output);
    const int between = graph.inside(cudnn::DataType::f32, x);
    graph.pointwise(cudnn::PointwiseMode::relu, {x}, between);
    graph.pointwise(cudnn::PointwiseMode::relu, {between}, y);
    EXPECT_EQ(fault_of(graph), "");
}

TEST(GraphFault, ATensorThatNobodyWrites) {
    Graph graph;
    const int y = image(graph, Place::output);
    graph.pointwise(cudnn::PointwiseMode::relu, {graph.inside(cudnn::DataType::f32, y)}, y);
    EXPECT_EQ(fault_of(graph), "G2: tensor 1 is read, and nobody has written it");
}

TEST(GraphFault, ATensorThatNobodyReads) {
    Graph graph;
    const int x = image(graph, Place::input);
    graph.pointwise(cudnn::PointwiseMode::relu, {x}, graph.inside(cudnn::DataType::f32, x));
    EXPECT_EQ(fault_of(graph), "G2: tensor 1 is read by nobody");
}

TEST(GraphFault, AnInputThatIsWritten) {
    Graph graph;
    const int x = image(graph, Place::input);
    graph.pointwise(cudnn::PointwiseMode::relu, {image(graph, Place::input)}, x);
    EXPECT_EQ(fault_of(graph), "G3: tensor 0 is an input, and is written");
}

TEST(GraphFault, WeightsOfANormThatDoNotFit) {
    Graph graph;
    Graph::Norm norm;
    norm.x = image(graph, Place::input);
    norm.y = image(graph, Place::output);
    norm.scale = channels(graph, Place::input, 32);
    norm.bias = channels(graph, Place::input, 64);
    norm.eps = graph.number(1e-5f, 4);
    norm.mean = channels(graph, Place::output, 64);
    norm.rstd = channels(graph, Place::output, 64);
    graph.norm(cudnn::NormMode::batch, norm);
    EXPECT_EQ(fault_of(graph),
              "G4: a norm of [8,64,28,28] has weights of [1,32,1,1] in place of [1,64,1,1]");
}

TEST(GraphFault, AnEmptyTensor) {
    Graph graph;
    image(graph, Place::input, 0);
    EXPECT_EQ(fault_of(graph).substr(0, 3), "G1:");
}

// --- ops as graphs -----------------------------------------------------------------------------

TEST(Problems, EveryGraphOfTheNetworksIsSound) {
    for (DType dtype : {DType::f32, DType::f16})
        for (runtime::Layout layout : {runtime::Layout::row_major, runtime::Layout::channels_last})
            for (const auto& cases : {network_cases, norm_and_pool_cases})
                for (const OpCase& c : cases(dtype, layout)) {
                    const runtime::OpCall call = c.call();
                    std::string why_not;
                    for (const cudnn::Problem& way :
                         cudnn::problems_of(call, runtime::infer(call), &why_not))
                        for (const Graph& graph : way.steps)
                            ASSERT_EQ(fault_of(graph), "") << c.text() << "\n" << text_of(graph);
                }
}

TEST(Problems, SaysWhyAnOpHasNone) {
    runtime::register_all_ops();
    const auto reason = [](const OpCase& c) {
        const runtime::OpCall call = c.call();
        std::string why_not;
        EXPECT_TRUE(cudnn::problems_of(call, runtime::infer(call), &why_not).empty());
        return why_not;
    };
    const Type x{DType::f16, {4, 8, 6, 6}};
    EXPECT_EQ(reason({"", "softmax", {int64_t{1}}, {x}}), "cuDNN has no softmax");
    EXPECT_EQ(
        reason(
            {"", "max_pool", {Extents{2}, Extents{2}, Extents{0}}, {{DType::f16, {0, 8, 6, 6}}}}),
        "nothing is computed of nothing");
    EXPECT_EQ(reason({"", "layer_norm", {int64_t{1}, 1e-5, int64_t{0}}, {x}}),
              "cuDNN's layer norm has weights; this one has none");
    EXPECT_EQ(reason({"", "batch_norm", {1e-5}, {x, {DType::f16, {8}}, {DType::f16, {8}}}}),
              "cuDNN takes the weights of a norm in float32, not f16[8]");
}

TEST(Problems, TextTellsGraphsApart) {
    const auto text = [](const OpCase& c) {
        const runtime::OpCall call = c.call();
        std::string why_not;
        return text_of(cudnn::problems_of(call, runtime::infer(call), &why_not).at(0).steps.at(0));
    };
    OpCase wider = plain_conv();
    wider.attrs[1] = Extents{2};
    EXPECT_EQ(text(plain_conv()), text(plain_conv()));
    EXPECT_NE(text(plain_conv()), text(wider));
    EXPECT_NE(text(plain_conv()), text(plain_conv(DType::bf16)));
}

// --- plans, by cuDNN itself --------------------------------------------------------------------

class CudnnPlan : public testing::Test {
protected:
    void SetUp() override {
        library_ = cudnn::Library::find(&why_not_);
        if (!library_) GTEST_SKIP() << why_not_;
        const runtime::OpCall call = conv_.call();
        graph_ = cudnn::problems_of(call, runtime::infer(call), &why_not_).at(0).steps.at(0);
    }
    cudnn::PlanRef plan(const CardDescription& card, cudnn::Limits limits = {}) {
        return cudnn::Planner(*library_, card, limits).plan(graph_, &why_not_);
    }
    const OpCase conv_ = plain_conv();
    const cudnn::Library* library_ = nullptr;
    std::string why_not_;
    Graph graph_;
    static constexpr cudnn::Limits kRoomy{.workspace_bytes = size_t{1} << 28};
};

TEST_F(CudnnPlan, IsMadeFromADescriptionAndComesBackFromItsText) {
    const cudnn::PlanRef made = plan(h100(), kRoomy);
    ASSERT_TRUE(made) << why_not_;
    EXPECT_EQ(made->text()[0], '{');
    const cudnn::PlanRef again = plan(h100(), kRoomy);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->engine(), made->engine());
    EXPECT_EQ(again->workspace_bytes(), made->workspace_bytes());
}

TEST_F(CudnnPlan, KeepsToTheLimitOfItsWorkspace) {
    const cudnn::PlanRef roomy = plan(h100(), kRoomy);
    ASSERT_TRUE(roomy) << why_not_;
    ASSERT_GT(roomy->workspace_bytes(), 0u);
    const cudnn::PlanRef tight = plan(h100(), {.workspace_bytes = roomy->workspace_bytes() - 1});
    EXPECT_TRUE(!tight || tight->workspace_bytes() < roomy->workspace_bytes());
}

TEST_F(CudnnPlan, OfABrokenGraphIsNotAskedFor) {
    graph_.tensors[0].dims[0] = 0;
    EXPECT_FALSE(plan(h100(), kRoomy));
    EXPECT_EQ(why_not_.substr(0, 3), "G1:");
}

// Its cache, where this process has one (tests/CMakeLists.txt gives it a folder of its own).
TEST_F(CudnnPlan, WhoseFileIsDamagedIsMadeAnew) {
    const char* folder = std::getenv("MEGJIT_CACHE_DIR");
    if (!folder || !*folder) GTEST_SKIP() << "MEGJIT_CACHE_DIR names no folder";
    ASSERT_TRUE(plan(a100(), kRoomy)) << why_not_;
    int damaged = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
        std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(-100, std::ios::end);
        file.put('\377');
        ++damaged;
    }
    EXPECT_GT(damaged, 0);
    EXPECT_TRUE(plan(a100(), kRoomy)) << why_not_;
}

TEST_F(CudnnPlan, IsChosenByTimeAndRemembered) {
    const char* folder = std::getenv("MEGJIT_CACHE_DIR");
    if (!folder || !*folder) GTEST_SKIP() << "MEGJIT_CACHE_DIR names no folder";
    int timed = 0;
    std::string slowest_first;
    const ProductOptions options{.milliseconds = [&](const Product& product) {
        slowest_first = product.describe();
        return 10.0 - timed++;
    }};
    const auto searched = product_of(conv_, options, &why_not_);
    ASSERT_TRUE(searched) << why_not_;
    ASSERT_GT(timed, 1);
    EXPECT_EQ(searched->describe(), slowest_first);  // the last one took the least
    timed = 0;
    EXPECT_EQ(product_of(conv_, {}, &why_not_)->describe(), slowest_first);
    EXPECT_EQ(product_of(conv_, options, &why_not_)->describe(), slowest_first);
    EXPECT_EQ(timed, 0);
}

TEST_F(CudnnPlan, CannotRunWithoutACard) {
    const auto product = product_of(conv_, {}, &why_not_);
    ASSERT_TRUE(product) << why_not_;
    LibraryStream stream(nullptr);
    const Address operands[2] = {};
    try {
        product->enqueue(stream, operands, std::span(operands).first(1), 0);
        GTEST_SKIP() << "there is a card";
    } catch (const runtime::DeviceError& error) {
        EXPECT_NE(std::string(error.what()).find("conv: cuDNN"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("cudnnCreate"), std::string::npos) << error.what();
    }
}

// --- matrix products ---------------------------------------------------------------------------

class Matmul : public testing::Test {
protected:
    void SetUp() override {
        if (const auto& found = runtime::find_library(NvidiaLibrary::cublaslt); !found)
            GTEST_SKIP() << found.why_not;
    }
    std::string why_not_;
};

TEST_F(Matmul, IsDescribedWithoutACard) {
    const auto product =
        product_of(matmul({DType::f32, {4, 1, 5, 7}}, {DType::f32, {1, 3, 7, 6}}), {}, &why_not_);
    ASSERT_TRUE(product) << why_not_;
    EXPECT_NE(product->describe().find(": 5x6x7;"), std::string::npos) << product->describe();
    EXPECT_LE(product->workspace_bytes(), size_t{32} << 20);
}

TEST_F(Matmul, OfIntegersIsRefused) {
    EXPECT_FALSE(product_of(matmul({DType::i32, {5, 7}}, {DType::i32, {7, 6}}), {}, &why_not_));
    EXPECT_EQ(why_not_, "cuBLASLt computes no i32[5, 6]");
}

TEST_F(Matmul, WithReluBeforeTheSumIsRefused) {
    OpCase c = matmul({DType::f32, {5, 7}}, {DType::f32, {7, 6}});
    c.op = "matmul_epilogue";
    c.attrs = {int64_t{0}, int64_t{0}, std::string("relu add")};
    c.inputs.push_back({DType::f32, {5, 6}});
    EXPECT_FALSE(product_of(c, {}, &why_not_));
    EXPECT_EQ(why_not_, "cuBLASLt does relu last");
}

}}  // namespace megjit::cuda
