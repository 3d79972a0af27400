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
std::shared_ptr<File> product(int64_t rows = 1) {
    auto model = std::make_shared<jit::Model>();
    const Type type{.shape = {rows, kSize}};
    const ValueId x = model->graph.add_input(type, 0);
    const ValueId w = model->graph.add_constant(filled({kSize, kSize}, 1));
    model->graph.outputs = model->graph.add(
        {.op = &runtime::find_op("matmul"), .attrs = {int64_t{0}, int64_t{0}}, .inputs = {x, w}},
        {&type, 1});
    model->inputs = {"x"};
    model->outputs = {"y"};
    model->node_names.resize(model->graph.nodes().size());
    model->value_names.resize(model->graph.value_count());
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

TEST_F(ApiModel, PackedWeightsOfAFileAreReadFromIt) {
    constexpr int64_t kRows = 64;
    const ModelOptions options{.opt_level = 3};
    const auto file = product(kRows);
    file->add_weights(*std::make_shared<Model>(file, options));
    const std::string path = testing::TempDir() + "packed.dump";
    for (const bool is_damaged : {false, true}) {
        SCOPED_TRACE(is_damaged);
        if (is_damaged) {  // of a weight that is not as large as it must be
            jit::ModelFile other = jit::from_bytes(file->to_bytes(), "packed.dump");
            ASSERT_EQ(other.weights.size(), 1u);
            other.weights[0].bytes = runtime::empty_tensor(
                runtime::host_device(), {.dtype = runtime::DType::u8, .shape = {4}});
            File(std::move(other)).save(path);
        } else {
            file->save(path);
        }
        const size_t before = memory_in_use();
        const auto again = std::make_shared<Model>(read_model(path), options);
        const size_t packed = kSize * kSize * sizeof(float), grown = memory_in_use() - before;
        if (is_damaged) EXPECT_GE(grown, packed);
        else EXPECT_LT(grown, packed / 2);
        const auto y = Context(again).run({filled({kRows, kSize}, 2)});
        EXPECT_EQ(runtime::HostView(y[0]).as<float>()[kSize * kRows - 1], 2 * kSize);
    }
    std::filesystem::remove(path);
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

// total = total + x and a key that is drawn, of states
std::shared_ptr<File> counter() {
    auto model = std::make_shared<jit::Model>();
    const Type type{.shape = {kSize}}, key{.dtype = runtime::DType::i32, .shape = {4}};
    const ValueId x = model->graph.add_input(type, 0), total = model->graph.add_input(type, 1),
                  drawn = model->graph.add_input(key, 2);
    const ValueId product =
        model->graph.add({.op = &runtime::find_op("mul"), .inputs = {total, x}}, {&type, 1})[0];
    const ValueId sum = model->graph.add(
        {.op = &runtime::find_op("add"), .inputs = {total, product}}, {&type, 1})[0];
    model->graph.outputs = {product, drawn, sum};
    model->inputs = {"x"};
    model->outputs = {"product", "key"};
    model->states = {{.state = 0, .is_replaced = true}, {.state = 1}};
    const uint64_t words[] = {7, 0};
    return std::make_shared<File>(
        jit::ModelFile{{model},
                       {{.name = "total", .value = filled({kSize}, 3)},
                        {.name = "random",
                         .is_generator = true,
                         .value = runtime::tensor_from_host(runtime::host_device(), key, words)}},
                       {}});
}

float number_of(File& file, const char* state) {
    const runtime::HostView view(file.value(file.state(state)));
    return state == std::string_view("total") ? view.as<float>()[kSize - 1]
                                              : static_cast<float>(view.as<int32_t>()[2]);
}

TEST_F(ApiModel, ARunReplacesAStateInItsPlace) {
    const auto file = counter();
    Context context(std::make_shared<Model>(file, ModelOptions{}));
    const auto x = filled({kSize}, 1);
    context.run({x});
    const void* place = file->value(0)->data();
    const size_t before = memory_in_use();
    context.run({x});
    EXPECT_EQ(file->value(0)->data(), place);
    EXPECT_EQ(memory_in_use(), before);
    EXPECT_EQ(number_of(*file, "total"), 12);
    const TensorRef held = file->value(0);  // who still reads the old value has it
    context.run({x});
    EXPECT_EQ(runtime::HostView(held).as<float>()[0], 12);
    EXPECT_EQ(number_of(*file, "total"), 24);
}

TEST_F(ApiModel, AFailingAllocationLeavesTheState) {
    runtime::Allocator& allocator = runtime::host_device().allocator();
    const auto file = counter();
    const auto x = filled({kSize}, 1);
    uint64_t failed = 0;
    for (bool has_run = false; !has_run;) {
        Context context(std::make_shared<Model>(file, ModelOptions{}));
        const TensorRef held = file->value(0);  // so that the run needs memory for the new one
        allocator.fail_after(failed);
        try {
            context.run({x});
            has_run = true;
        } catch (const runtime::OutOfMemory&) { ++failed; }
        allocator.fail_after(runtime::Allocator::kNever);
        EXPECT_EQ(number_of(*file, "total"), has_run ? 6 : 3);
        EXPECT_EQ(number_of(*file, "random"), has_run ? 1 : 0);
        ASSERT_LT(failed, 100u);
    }
    EXPECT_GE(failed, 2u);
}

}}  // namespace megjit::api
