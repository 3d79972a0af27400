// jit::api::Model from within: what its contexts have in common.
#include "jit/api/model.h"

#include <gtest/gtest.h>

#include <numeric>

#include "jit/api/backends.h"
#include "runtime/core/host_view.h"

namespace megjit::api { namespace {

using jit::ValueId;

constexpr int64_t kSize = 512;  // the weights are 1 MiB

runtime::TensorRef filled(const runtime::Shape& shape, float value) {
    runtime::TensorRef tensor = runtime::empty_tensor(runtime::host_device(), {.shape = shape});
    std::fill_n(tensor->as<float>(), shape.numel(), value);
    return tensor;
}

// y = x @ w with w of ones
std::shared_ptr<File> product() {
    auto model = std::make_shared<jit::Model>();
    const Type type{.shape = {1, kSize}};
    const ValueId x = model->graph.add_input(type, 0);
    const ValueId w = model->graph.add_constant(filled({kSize, kSize}, 1));
    model->graph.outputs = model->graph.add(
        {.op = &runtime::find_op("matmul"), .attrs = {int64_t{0}, int64_t{0}}, .inputs = {x, w}},
        {&type, 1});
    model->inputs = {"x"};
    model->outputs = {"y"};
    return std::make_shared<File>(jit::ModelFile{{model}});
}

size_t memory_in_use() { return runtime::host_device().allocator().stats().in_use; }

class ApiModel : public testing::Test {
protected:
    static void SetUpTestSuite() { start({}); }
};

TEST_F(ApiModel, ContextsShareTheWeights) {
    const size_t before = memory_in_use();
    const auto model = std::make_shared<Model>(product(), ModelOptions{});
    const size_t weights = memory_in_use() - before;
    EXPECT_GE(weights, kSize * kSize * sizeof(float));
    std::vector<std::unique_ptr<Context>> contexts;
    for (int i = 0; i < 4; ++i) {
        contexts.push_back(std::make_unique<Context>(model));
        const auto y = contexts.back()->run({filled({1, kSize}, 2)});
        EXPECT_EQ(runtime::HostView(y[0]).as<float>()[kSize - 1], 2 * kSize);
    }
    EXPECT_LT(memory_in_use() - before, weights + weights / 2);
}

TEST_F(ApiModel, AContextGivesItsProgramBack) {
    const auto model = std::make_shared<Model>(product(), ModelOptions{.profile = true});
    for (int i = 0; i < 3; ++i) Context(model).run({filled({1, kSize}, 2)});
    EXPECT_EQ(model->json("profile").find("[{\"runs\": 3, "), 0u) << model->json("profile");
}

TEST_F(ApiModel, OutputsThatNobodyWantsAreLeftOut) {
    const Model model(product(), {.outputs = std::vector<size_t>{}});
    EXPECT_TRUE(model.outputs().empty());
    EXPECT_NE(model.json("plan").find("\"steps\": []"), std::string::npos) << model.json("plan");
}

}}  // namespace megjit::api
