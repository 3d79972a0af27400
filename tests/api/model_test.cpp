// jit::api::Model from within: what its contexts have in common.
#include "jit/api/model.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "jit/api/backends.h"
#include "jit/plan/plan_ladder.h"
#include "runtime/core/host_view.h"
#include "runtime/host/checksum.h"

namespace megjit::api { namespace {

using jit::ValueId;

constexpr int64_t kSize = 512;  // the weights are 1 MiB
constexpr size_t kHeaderBytes = 32;  // of a file; its checksum stands last

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
    model->input_names = {"x"};
    model->output_names = {"y"};
    model->node_names.resize(model->graph.nodes().size());
    model->value_names.resize(model->graph.value_count());
    return std::make_shared<File>(jit::ModelFile{{model}});
}

// The CPU, or what the environment names: MEGJIT_TEST_DEVICE=gpu0.
runtime::Device& device() {
    const char* name = std::getenv("MEGJIT_TEST_DEVICE");
    return name ? runtime::find_device(name) : runtime::host_device();
}

size_t memory_in_use() { return runtime::host_device().allocator().stats().in_use; }

class ApiModel : public testing::Test {
protected:
    static void SetUpTestSuite() {
        static const bool has_started = (start({}), true);
        (void)has_started;
    }
};
class ApiModelOnDevice : public ApiModel {};

// Some CPUs' library takes the weights of a product as they lie.
bool packs_products() {
    const auto file = product(64);
    file->add_package_of(*std::make_shared<Model>(file, ModelOptions{.opt_level = 3}));
    return !jit::from_bytes(file->to_bytes(), "packed.dump").weights.empty();
}

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
    if (!packs_products()) GTEST_SKIP() << "nothing is packed here";
    constexpr int64_t kRows = 64;
    const ModelOptions options{.opt_level = 3};
    const auto file = product(kRows);
    file->add_package_of(*std::make_shared<Model>(file, options));
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

// Both the weights and what they are packed as count; where they do not fit, nothing is packed.
TEST_F(ApiModel, WeightsArePackedWhereALimitHasRoomForIt) {
    if (!packs_products()) GTEST_SKIP() << "nothing is packed here";
    constexpr int64_t kRows = 64;
    constexpr size_t kWeights = kSize * kSize * sizeof(float),
                     kValues = 2 * kRows * kSize * sizeof(float);  // x and y
    for (const size_t limit : {2 * kWeights + kValues + 4096, 2 * kWeights + kValues - 4096}) {
        const auto file = product(kRows);
        file->set_options(3, limit);
        const auto model = std::make_shared<Model>(file, ModelOptions{});
        file->add_package_of(*model);
        EXPECT_EQ(jit::from_bytes(file->to_bytes(), "packed.dump").weights.size(),
                  limit > 2 * kWeights + kValues);
        const auto y = Context(model).run({filled({kRows, kSize}, 2)});
        EXPECT_EQ(runtime::HostView(y[0]).as<float>()[kSize * kRows - 1], 2 * kSize);
    }
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
    model->input_names = {"x"};
    model->output_names = {"product", "key"};
    model->node_names.resize(model->graph.nodes().size());
    model->value_names.resize(model->graph.value_count());
    model->inputs = {
        {}, {.kind = jit::Input::Kind::state}, {.kind = jit::Input::Kind::key, .state = 1}};
    model->outputs = {{}, {}, {.kind = jit::Output::Kind::state}};
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

// exp(x) times the sum of something large that is made of its own sum: exp(x) is kept meanwhile, or
// computed twice.
std::shared_ptr<File> exp_that_waits() {
    auto model = std::make_shared<jit::Model>();
    model->graph = jit::parse_graph(
        "%0: f32[65536] = input 0\n%1: f32[65536] = exp %0\n"
        "%2: f32[] = reduce_sum %1 {axes=[0], keepdims=0}\n"
        "%3: f32[262144] = concat %0 %0 %0 %0 {axis=0}\n%4: f32[262144] = mul %3 %2\n"
        "%5: f32[] = reduce_sum %4 {axes=[0], keepdims=0}\n%6: f32[65536] = mul %1 %5\n"
        "%7: f32[] = reduce_sum %6 {axes=[0], keepdims=0}\nreturn %7\n");
    model->input_names = {"x"};
    model->output_names = {"y"};
    model->node_names.resize(model->graph.nodes().size());
    model->value_names.resize(model->graph.value_count());
    model->inputs = {{}};
    model->outputs = {{}};
    return std::make_shared<File>(jit::ModelFile{{model}, {}, {}});
}

size_t least_limit(const std::shared_ptr<File>& file) {
    try {
        Model(file, {.memory_limit = 100});
    } catch (const jit::OverLimit& error) { return error.figures.needed; }
    return 0;
}

// The order of steps that was found for a limit; what is none is not followed.
TEST_F(ApiModel, APlanIsKeptInTheFile) {
    const auto file = exp_that_waits();
    const size_t limit = least_limit(file);
    file->set_options(-1, limit);
    file->add_package_of(*std::make_shared<Model>(file, ModelOptions{}));
    const jit::ModelFile read = jit::from_bytes(file->to_bytes(), "packed.dump");
    const std::vector<uint32_t> order = read.functions[0]->order;
    EXPECT_EQ(read.functions[0]->memory_limit, limit);
    ASSERT_GE(order.size(), 2u);
    const TensorRef x = filled({65536}, 1);
    const auto run = [&](const std::shared_ptr<File>& of) {
        const auto y = Context(std::make_shared<Model>(of, ModelOptions{})).run({x});
        return runtime::HostView(y[0]).as<float>()[0];
    };
    const float wanted = run(exp_that_waits());
    const std::vector<uint32_t> orders[] = {
        order, {}, {99}, {order.rbegin(), order.rend()}, {order[0]}};
    for (const std::vector<uint32_t>& each : orders) {
        SCOPED_TRACE(each.size());
        jit::ModelFile changed = jit::from_bytes(file->to_bytes(), "packed.dump");
        auto function = std::make_shared<jit::Model>(*changed.functions[0]);
        function->order = each;
        changed.functions[0] = function;
        EXPECT_EQ(run(std::make_shared<File>(std::move(changed))), wanted);
    }
    EXPECT_THROW(Model(file, {.memory_limit = 100}), jit::OverLimit);
    file->set_options(-1, 100);
    EXPECT_THROW(Model(file, {}), jit::OverLimit);
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

// total = total + x, which it gives, too: into memory of the caller's, who writes to it afterwards.
TEST_F(ApiModel, AStateDoesNotStayInAnOutput) {
    auto function = std::make_shared<jit::Model>(*counter()->function(""));
    const ValueId sum = function->graph.outputs[2];
    function->graph.outputs = {sum, sum};
    function->output_names = {"sum"};
    function->outputs = {{}, {.kind = jit::Output::Kind::state}};
    const auto file = std::make_shared<File>(jit::ModelFile{
        {function},
        {{.name = "total", .value = filled({kSize}, 3)},
         {.name = "random",
          .is_generator = true,
          .value = runtime::tensor_from_host(runtime::host_device(),
                                             {.dtype = runtime::DType::i32, .shape = {4}},
                                             std::array<uint64_t, 2>{7, 0}.data())}}});
    Context context(std::make_shared<Model>(file, ModelOptions{}));
    for (const float wanted : {6.0f, 12.0f}) {
        std::vector<TensorRef> inputs = {filled({kSize}, 1)}, outputs = {filled({kSize}, 0)};
        const TensorRef place = outputs[0],
                        held = file->value(0);  // so that the run needs memory for the new one
        context.run(inputs, outputs);
        EXPECT_EQ(runtime::HostView(outputs[0]).as<float>()[kSize - 1], wanted);
        std::fill_n(place->as<float>(), kSize, -1.0f);
        EXPECT_EQ(number_of(*file, "total"), wanted);
    }
}

TEST_F(ApiModelOnDevice, AFailingAllocationLeavesTheState) {
    runtime::Allocator& allocator = device().allocator();
    const auto file = counter();
    const auto x = filled({kSize}, 1);
    uint64_t failed = 0;
    for (bool has_run = false; !has_run;) {
        Context context(std::make_shared<Model>(file, ModelOptions{.device = &device()}));
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

// Loading, packing and the first run, with the device's memory refused at each point.
TEST_F(ApiModelOnDevice, AFailingAllocationIsAnErrorAndNoLeak) {
    runtime::Allocator& allocator = device().allocator();
    const auto file = product(64);
    const auto x = filled({64, kSize}, 1);
    const auto use = [&] {
        Context context(
            std::make_shared<Model>(file, ModelOptions{.device = &device(), .opt_level = 3}));
        EXPECT_EQ(runtime::HostView(context.run({x})[0]).as<float>()[0], kSize);
    };
    use();  // what the device keeps is there
    const size_t before = allocator.stats().in_use;
    uint64_t failed = 0;
    for (bool has_run = false; !has_run;) {
        allocator.fail_after(failed);
        try {
            use();
            has_run = true;
        } catch (const runtime::OutOfMemory&) { ++failed; }
        allocator.fail_after(runtime::Allocator::kNever);
        device().stream().synchronize();
        EXPECT_EQ(allocator.stats().in_use, before) << failed;
        ASSERT_LT(failed, 100u);
    }
    EXPECT_GE(failed, packs_products() ? 2u : 1u);
}

// Whatever a file with a right checksum says, it is refused, or loaded and run.
TEST_F(ApiModel, ChangedBytesAreRefusedOrRun) {
    const std::string bytes = counter()->to_bytes();
    size_t run = 0, refused = 0;
    for (size_t at = kHeaderBytes; at < bytes.size(); ++at)
        for (const char value : {'\0', '1', '\xff'}) {
            std::string changed = bytes;
            changed[at] = value;
            const uint64_t sum = runtime::checksum(std::string_view(changed).substr(kHeaderBytes));
            std::memcpy(changed.data() + kHeaderBytes - sizeof sum, &sum, sizeof sum);
            try {
                const auto model = std::make_shared<Model>(
                    std::make_shared<File>(jit::from_bytes(changed, "changed.dump")),
                    ModelOptions{});
                std::vector<TensorRef> inputs;
                for (const Port& port : model->inputs())
                    inputs.push_back(runtime::empty_tensor(runtime::host_device(), port.type));
                Context(model).run(inputs);
                ++run;
            } catch (const runtime::UserError&) { ++refused; }
        }
    EXPECT_GT(run, 100u);
    EXPECT_GT(refused, 100u);
}

}}  // namespace megjit::api
