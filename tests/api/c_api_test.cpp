// libmegjit through megjit.h and megjit.hpp alone, as another program sees it. The models:
// models.cpp.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>

#include "megjit/megjit.hpp"

namespace {

using Floats = std::vector<float>;

std::string path_of(const std::string& name) { return MEGJIT_MODELS "/" + name + ".dump"; }

std::string bytes_of(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

// On the CPU, or the device that the environment names: MEGJIT_TEST_DEVICE=gpu0.
megjit::Model load(const std::string& name,
                   megjit_model_options options = MEGJIT_MODEL_OPTIONS_DEFAULT) {
    if (!options.device) options.device = std::getenv("MEGJIT_TEST_DEVICE");
    return megjit::Model(path_of(name), options);
}

std::span<const std::byte> as_bytes(const std::string& text) {
    return std::as_bytes(std::span(text));
}

constexpr std::array<int64_t, 2> kInput = {2, 3}, kScores = {2, 4};
const Floats kNumbers = {1, 2, 3, 4, 5, 6};
// numbers @ {{0, 1, 2, 3}, {4, ...}} is {{32, 38, 44, 50}, {68, 83, 98, 113}}; then -43, -42, ...
// is added.
const Floats kScore = {-11, -4, 3, 10, 25, 41, 57, 73};
const Floats kPositive = {0, 0, 3, 10, 25, 41, 57, 73};

megjit::Tensor input_of(const Floats& numbers) {
    megjit::Tensor tensor(MEGJIT_FLOAT32, kInput);
    std::copy(numbers.begin(), numbers.end(), tensor.as<float>().begin());
    return tensor;
}

std::vector<megjit::Tensor> one(megjit::Tensor tensor) {
    std::vector<megjit::Tensor> list;
    list.push_back(std::move(tensor));
    return list;
}

template <class T>
std::vector<T> values_of(const megjit::Tensor& tensor) {
    const std::span<T> all = tensor.as<T>();
    return {all.begin(), all.end()};
}

// Status and text of what fails.
void expect_error(megjit_status status, std::string_view part, const std::function<void()>& call) {
    try {
        call();
        ADD_FAILURE() << "nothing was refused; expected: " << part;
    } catch (const megjit::Error& error) {
        EXPECT_EQ(error.status(), status) << error.what();
        EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos)
            << error.what();
        EXPECT_NE(std::string_view(error.what()).find("\n  fix: "), std::string_view::npos)
            << error.what();
    }
}

TEST(Api, TheLibraryIsOfTheHeadersVersion) { EXPECT_EQ(megjit_api_version(), MEGJIT_API_VERSION); }

TEST(Api, AModelTellsItsInputsOutputsAndParameters) {
    const megjit::Model model = load("classify");
    const auto inputs = model.inputs(), outputs = model.outputs(), parameters = model.parameters();
    ASSERT_EQ(inputs.size(), 1u);
    EXPECT_EQ(inputs[0].name, "x");
    EXPECT_EQ(inputs[0].dtype, MEGJIT_FLOAT32);
    EXPECT_EQ(inputs[0].shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ(inputs[0].bytes, 24u);
    ASSERT_EQ(outputs.size(), 4u);
    EXPECT_EQ(outputs[1].name, "positive");
    EXPECT_EQ(outputs[1].shape, (std::vector<int64_t>{2, 4}));
    ASSERT_EQ(parameters.size(), 2u);
    EXPECT_EQ(parameters[0].name, "w");
    EXPECT_EQ(parameters[1].shape, (std::vector<int64_t>{4}));
}

TEST(Api, AParameterIsCopied) {
    const megjit::Model model = load("classify");
    megjit_tensor* handle = nullptr;
    megjit::check(megjit_model_parameter_value(model.handle(), 1, &handle));
    const megjit::Tensor bias(handle);
    EXPECT_EQ(values_of<float>(bias), (Floats{-43, -42, -41, -40}));
    bias.as<float>()[0] = 1000;
    EXPECT_EQ(values_of<float>(megjit::Context(model).run(one(input_of(kNumbers)))[0]), kScore);
}

TEST(Api, ARunGivesAllOutputs) {
    megjit::Context context{load("classify")};
    const auto outputs = context.run(one(input_of(kNumbers)));
    EXPECT_EQ(values_of<float>(outputs[0]), kScore);
    EXPECT_EQ(values_of<float>(outputs[1]), kPositive);
    EXPECT_EQ(values_of<float>(outputs[2]), kNumbers);
}

TEST(Api, AModelRunsOtherBatches) {
    for (const int64_t batch : {1, 2, 5}) {
        megjit_model_options options = MEGJIT_MODEL_OPTIONS_DEFAULT;
        options.batch = batch;
        const megjit::Model model = load("classify", options);
        EXPECT_EQ(model.inputs()[0].shape, (std::vector<int64_t>{batch, 3}));
        EXPECT_EQ(model.outputs()[0].shape, (std::vector<int64_t>{batch, 4}));
        megjit::Context context(model);
        megjit::Tensor input(MEGJIT_FLOAT32, std::array<int64_t, 2>{batch, 3});
        for (size_t i = 0; i < input.as<float>().size(); ++i)
            input.as<float>()[i] = kNumbers[i % kNumbers.size()];
        const auto outputs = context.run(one(std::move(input)));
        const Floats scores = values_of<float>(outputs[0]);
        ASSERT_EQ(scores.size(), static_cast<size_t>(4 * batch));
        for (size_t i = 0; i < scores.size(); ++i) EXPECT_EQ(scores[i], kScore[i % kScore.size()]);
    }
}

// ---- state: count.dump has total' = total + x, which gives the key that it drew, and total *
// scale

constexpr std::array<int64_t, 1> kThree = {3};

std::vector<megjit::Tensor> three(Floats numbers) {
    megjit::Tensor tensor(MEGJIT_FLOAT32, kThree);
    std::copy(numbers.begin(), numbers.end(), tensor.as<float>().begin());
    return one(std::move(tensor));
}

Floats total_of(const megjit::Model& model) { return values_of<float>(model.state("total")); }

TEST(Api, ARunReplacesTheState) {
    const megjit::Model model = load("count");
    megjit::Context context(model);
    using Words = std::vector<int32_t>;
    EXPECT_EQ(values_of<int32_t>(context.run(three({1, 1, 1}))[0]), (Words{7, 0, 0, 0}));
    EXPECT_EQ(total_of(model), (Floats{2, 3, 4}));
    EXPECT_EQ(values_of<int32_t>(context.run(three({0, 0, 5}))[0]), (Words{7, 0, 1, 0}));
    EXPECT_EQ(total_of(model), (Floats{2, 3, 9}));
    EXPECT_EQ(values_of<int32_t>(model.state("random")), (Words{7, 0, 2, 0}));
}

TEST(Api, AModelTellsItsFunctionsAndStates) {
    const megjit::Model model = load("count");
    EXPECT_EQ(model.functions(), (std::vector<std::string>{"count", "scaled"}));
    EXPECT_EQ(load("chain").functions(), (std::vector<std::string>{""}));
    const auto states = model.states();
    ASSERT_EQ(states.size(), 3u);
    EXPECT_EQ(states[0].name, "total");
    EXPECT_EQ(states[1].dtype, MEGJIT_INT32);
    EXPECT_EQ(states[2].bytes, 4u);
    EXPECT_EQ(model.inputs().size(), 1u);
    EXPECT_EQ(model.json("metadata"), "null");
    EXPECT_EQ(model.function("scaled").json("metadata"), "{\"user_info\": 7}");
}

TEST(Api, FunctionsSeeTheSameState) {
    const megjit::Model count = load("count");
    const megjit::Model scaled = count.function("scaled");
    megjit::Context run_count(count), run_scaled(scaled);
    run_count.run(three({1, 2, 3}));
    EXPECT_EQ(values_of<float>(run_scaled.run({})[0]), (Floats{4, 8, 12}));
    scaled.set_state("total", three({5, 0, 1})[0]);
    EXPECT_EQ(values_of<float>(run_scaled.run({})[0]), (Floats{10, 0, 2}));
    run_count.run(three({1, 1, 1}));
    EXPECT_EQ(total_of(scaled), (Floats{6, 1, 2}));
    megjit_model_options options = MEGJIT_MODEL_OPTIONS_DEFAULT;
    options.function = "scaled";
    EXPECT_EQ(values_of<float>(megjit::Context(load("count", options)).run({})[0]),
              (Floats{2, 4, 6}));
}

TEST(Api, AModelIsSavedWithItsState) {
    const std::string path = testing::TempDir() + "saved.dump";
    {
        const megjit::Model model = load("count");
        megjit::Context(model).run(three({1, 2, 3}));
        model.save(path);
    }
    const megjit::Model again(path);
    EXPECT_EQ(total_of(again), (Floats{2, 4, 6}));
    EXPECT_EQ(values_of<float>(megjit::Context(again.function("scaled")).run({})[0]),
              (Floats{4, 8, 12}));
    EXPECT_EQ(values_of<int32_t>(megjit::Context(again).run(three({0, 0, 0}))[0])[2], 1);
    std::remove(path.c_str());
}

TEST(Api, AWrongStateIsRefused) {
    const megjit::Model model = load("count");
    expect_error(MEGJIT_INVALID_ARGUMENT, "no state totals", [&] { model.state("totals"); });
    expect_error(MEGJIT_INVALID_ARGUMENT, "why: it has total, random, scale",
                 [&] { model.set_state("", three({1, 2, 3})[0]); });
    expect_error(MEGJIT_INVALID_ARGUMENT, "a f32[3] was given for the state random",
                 [&] { model.set_state("random", three({1, 2, 3})[0]); });
    expect_error(MEGJIT_INVALID_ARGUMENT, "no function train", [&] { model.function("train"); });
    expect_error(MEGJIT_BAD_FILE, "cannot write the model",
                 [&] { model.save("/no/such/folder/file"); });
    EXPECT_EQ(total_of(model), (Floats{1, 2, 3}));
}

TEST(Api, ThreadsThatChangeOneStateLoseNothing) {
    const megjit::Model model = load("count");
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
        threads.emplace_back([&] {
            megjit::Context context(model);
            for (int k = 0; k < 50; ++k) context.run(three({1, 0, 2}));
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(total_of(model), (Floats{401, 2, 803}));
}

TEST(Api, AStateIsNeverTheCallersMemory) {
    const megjit::Model model = load("count");
    const auto given = three({7, 8, 9});
    model.set_state("total", given[0]);
    given[0].as<float>()[0] = 0;
    EXPECT_EQ(total_of(model), (Floats{7, 8, 9}));
}

TEST(Api, AModelIsLoadedFromMemoryThatNobodyNeedsAfterwards) {
    std::string bytes = bytes_of(path_of("classify"));
    const megjit::Model model(as_bytes(bytes));
    bytes.assign(bytes.size(), '\xff');
    EXPECT_EQ(values_of<float>(megjit::Context(model).run(one(input_of(kNumbers)))[0]), kScore);
}

TEST(Api, WhoWritesToResultsChangesNeitherModelNorInput) {
    megjit::Context context{load("classify")};
    const auto inputs = one(input_of(kNumbers));
    for (const megjit::Tensor& output : context.run(inputs))
        for (float& number : output.as<float>()) number = 1000;
    EXPECT_EQ(values_of<float>(inputs[0]), kNumbers);
    EXPECT_EQ(values_of<float>(context.run(inputs)[0]), kScore);
}

TEST(Api, BorrowedMemoryIsReadAndWritten) {
    megjit::Context context{load("classify")};
    Floats x = kNumbers, score(8), positive(8), same(6), weights(12);
    std::vector<megjit::Tensor> outputs;
    outputs.push_back(megjit::Tensor::borrow(score.data(), kScores));
    outputs.push_back(megjit::Tensor::borrow(positive.data(), kScores));
    outputs.push_back(megjit::Tensor::borrow(same.data(), kInput));
    outputs.push_back(megjit::Tensor::borrow(weights.data(), std::array<int64_t, 2>{3, 4}));
    context.run(one(megjit::Tensor::borrow(x.data(), kInput)), outputs);
    EXPECT_EQ(score, kScore);
    EXPECT_EQ(positive, kPositive);
    EXPECT_EQ(weights[11], 11);
}

// Computed where the caller wants it: at any address, and where it may not be, copied there.
TEST(Api, ResultsComeIntoTheCallersMemory) {
    megjit::Context context{load("chain")};
    constexpr std::array<int64_t, 1> shape = {1024};
    Floats numbers(1024, 1), result(1025);
    std::vector<megjit::Tensor> inputs, outputs;
    inputs.push_back(megjit::Tensor::borrow(numbers.data(), shape));
    outputs.push_back(megjit::Tensor::borrow(result.data() + 1, shape));
    for (int i = 0; i < 2; ++i) {
        std::fill(numbers.begin(), numbers.end(), static_cast<float>(i));
        std::fill(result.begin(), result.end(), 7.0f);
        context.run(inputs, outputs);
        EXPECT_EQ(result.front(), 7);
        EXPECT_NEAR(result[1], std::exp(-i), 1e-6);
        EXPECT_EQ(std::count(result.begin() + 1, result.end(), result[1]), 1024);
    }
    context.run(inputs, inputs);  // not promised, but then it is the input that is lost, alone
    EXPECT_EQ(std::count(numbers.begin(), numbers.end(), result[1]), 1024);
}

TEST(Api, InputsMayHaveStrides) {
    megjit::Context context{load("classify")};
    Floats by_columns = {1, 4, 2, 5, 3, 6}, backwards = {6, 5, 4, 3, 2, 1};
    const std::array<int64_t, 2> columns = {1, 2}, reversed = {-3, -1};
    EXPECT_EQ(values_of<float>(
                  context.run(one(megjit::Tensor::borrow(by_columns.data(), kInput, columns)))[0]),
              kScore);
    EXPECT_EQ(values_of<float>(
                  context.run(one(megjit::Tensor::borrow(&backwards[5], kInput, reversed)))[0]),
              kScore);
}

TEST(Api, OutputsMayHaveStridesAndAreNamed) {
    const megjit::Model model = load("classify");
    const megjit::Tensor x = input_of(kNumbers);
    Floats score(16, 7);
    const megjit::Tensor y =
        megjit::Tensor::borrow(score.data(), kScores, std::array<int64_t, 2>{8, 2});
    megjit_context* context = nullptr;
    megjit::check(megjit_context_create(model.handle(), &context));
    const megjit_named_tensor in{"x", x.handle()};
    megjit_named_tensor out[] = {{"positive", nullptr}, {"score", y.handle()}};
    megjit::check(megjit_run_named(context, &in, 1, out, 2));
    megjit_context_free(context);
    EXPECT_EQ(score, (Floats{-11, 7, -4, 7, 3, 7, 10, 7, 25, 7, 41, 7, 57, 7, 73, 7}));
    EXPECT_EQ(values_of<float>(megjit::Tensor(out[0].tensor)), kPositive);
}

// Makes inputs for the model whose first number says how many rows of `kept` count.
std::vector<megjit::Tensor> rows_input(float rows) {
    std::vector<megjit::Tensor> inputs;
    inputs.emplace_back(MEGJIT_FLOAT32, std::array<int64_t, 2>{3, 2});
    std::ranges::copy(Floats{rows, -2, 3, 4, 5, 6}, inputs[0].as<float>().begin());
    return inputs;
}

TEST(Api, AnOutputTellsHowManyRowsItHas) {
    const megjit::Model model = load("rows");
    EXPECT_TRUE(model.is_bounded(0));
    EXPECT_FALSE(model.is_bounded(1));
    EXPECT_EQ(model.outputs()[0].shape, (std::vector<int64_t>{3, 2}));  // the most
    megjit::Context context(model);
    std::vector<megjit::Tensor> made = context.run(rows_input(1));
    EXPECT_EQ(made[0].info().shape, (std::vector<int64_t>{1, 2}));
    EXPECT_EQ(values_of<float>(made[0]), (Floats{1, 0}));
    EXPECT_EQ(values_of<float>(made[1]), (Floats{2, 0, 6, 8, 10, 12}));
    for (const int rows : {3, 0, 2}) {  // tensors of an earlier run have room for any
        context.run(rows_input(static_cast<float>(rows)), made);
        EXPECT_EQ(made[0].info().shape, (std::vector<int64_t>{rows, 2}));
        EXPECT_EQ(made[0].info().bytes, static_cast<size_t>(rows) * 8);
    }
    EXPECT_EQ(values_of<float>(made[0]), (Floats{2, 0, 3, 4}));
    std::vector<megjit::Tensor> again = rows_input(2);
    again[0] = std::move(made[0]);  // as an input it is what it shows
    expect_error(MEGJIT_INVALID_ARGUMENT, "input x is f32[2, 2]", [&] { context.run(again); });
}

TEST(Api, MemoryForRowsHoldsAllThatTheyCanBe) {
    const megjit::Model model = load("rows");
    megjit::Context context(model);
    Floats kept(12, 7), whole(6);
    std::vector<megjit::Tensor> outputs;
    outputs.push_back(megjit::Tensor::borrow(kept.data(), std::array<int64_t, 2>{3, 2},
                                             std::array<int64_t, 2>{4, 1}));
    outputs.push_back(megjit::Tensor::borrow(whole.data(), std::array<int64_t, 2>{3, 2}));
    context.run(rows_input(2), outputs);
    EXPECT_EQ(kept, (Floats{2, 0, 7, 7, 3, 4, 7, 7, 7, 7, 7, 7}));
    EXPECT_EQ(outputs[0].info().shape, (std::vector<int64_t>{2, 2}));
    outputs[0] = megjit::Tensor::borrow(kept.data(), std::array<int64_t, 2>{2, 2});
    expect_error(MEGJIT_INVALID_ARGUMENT, "the model gives at most f32[3, 2]",
                 [&] { context.run(rows_input(2), outputs); });
}

TEST(ApiErrors, AFileThatCountsMoreRowsThanThereAre) {
    megjit::Context context{load("rows")};
    for (const float rows : {-1.0f, 4.0f})
        expect_error(MEGJIT_INVALID_ARGUMENT, "output kept has ",
                     [&] { context.run(rows_input(rows)); });
}

TEST(Api, InputsAreGivenByNameInAnyOrder) {
    megjit::Context context{load("difference")};
    std::vector<int32_t> a = {10, 20, 30, 40, 50, 60}, b = {1, 2, 3, 4, 5, 6};
    const auto of_a = megjit::Tensor::borrow(a.data(), kInput),
               of_b = megjit::Tensor::borrow(b.data(), kInput);
    const std::vector<std::pair<std::string, const megjit::Tensor*>> inputs = {{"b", &of_b},
                                                                               {"a", &of_a}};
    const std::vector<std::string> outputs = {"difference"};
    EXPECT_EQ(values_of<int32_t>(context.run(inputs, outputs)[0]),
              (std::vector<int32_t>{9, 18, 27, 36, 45, 54}));
}

}  // namespace

// As dlpack.h has it.
struct DLManagedTensor {
    struct {
        void* data;
        struct {
            int32_t type, id;
        } device;
        int32_t ndim;
        struct {
            uint8_t code, bits;
            uint16_t lanes;
        } dtype;
        int64_t* shape;
        int64_t* strides;
        uint64_t byte_offset;
    } tensor;
    void* manager_ctx;
    void (*deleter)(DLManagedTensor*);
};

namespace {

TEST(Api, TensorsComeAndGoByDlpack) {
    megjit::Context context{load("classify")};
    Floats x = {0, 1, 2, 3, 4, 5, 6};
    std::array<int64_t, 2> shape = kInput;
    bool is_deleted = false;
    DLManagedTensor managed{
        {x.data(), {1, 0}, 2, {2, 32, 1}, shape.data(), nullptr, 4},
        &is_deleted,
        [](DLManagedTensor* whole) { *static_cast<bool*>(whole->manager_ctx) = true; }};
    megjit_tensor* handle = nullptr;
    managed.tensor.device.type = 2;
    expect_error(MEGJIT_INVALID_ARGUMENT, "on a device of DLPack's kind 2",
                 [&] { megjit::check(megjit_tensor_from_dlpack(&managed, &handle)); });
    managed.tensor.device.type = 1;
    managed.tensor.dtype.bits = 128;
    expect_error(MEGJIT_INVALID_ARGUMENT, "code 2 with 128 bits",
                 [&] { megjit::check(megjit_tensor_from_dlpack(&managed, &handle)); });
    managed.tensor.dtype.bits = 32;
    EXPECT_FALSE(is_deleted);
    megjit::check(megjit_tensor_from_dlpack(&managed, &handle));
    auto score = std::move(context.run(one(megjit::Tensor(handle)))[0]);
    EXPECT_TRUE(is_deleted);

    DLManagedTensor* given = nullptr;
    megjit::check(megjit_tensor_to_dlpack(score.handle(), &given));
    score = input_of(kNumbers);  // the other one is freed; its memory stays
    EXPECT_EQ(given->tensor.ndim, 2);
    EXPECT_EQ(given->tensor.shape[1], 4);
    EXPECT_EQ(given->tensor.strides[0], 4);
    EXPECT_EQ(given->tensor.dtype.bits, 32);
    EXPECT_EQ(Floats(static_cast<float*>(given->tensor.data),
                     static_cast<float*>(given->tensor.data) + 8),
              kScore);
    given->deleter(given);
}

TEST(Api, AContextKeepsItsModel) {
    megjit_model* model = nullptr;
    megjit_context* context = nullptr;
    megjit::check(megjit_model_load(path_of("classify").c_str(), nullptr, &model));
    megjit::check(megjit_context_create(model, &context));
    megjit_model_free(model);
    const megjit::Tensor x = input_of(kNumbers);
    const megjit_tensor* const in = x.handle();
    megjit_tensor* out[4] = {};
    megjit::check(megjit_run(context, &in, 1, out, 4));
    megjit_context_free(context);
    EXPECT_EQ(values_of<float>(megjit::Tensor(out[0])), kScore);
    for (int i = 1; i < 4; ++i) megjit_tensor_free(out[i]);
}

TEST(Api, EightThreadsRunOneModel) {
    const megjit::Model model = load("classify");
    std::array<int, 8> wrong{};
    std::vector<std::thread> threads;
    for (size_t t = 0; t < wrong.size(); ++t)
        threads.emplace_back([&, t] {
            megjit::Context context(model);
            const auto scale = static_cast<float>(t + 1);
            Floats x = kNumbers, weighted(8);
            for (float& number : x) number *= scale;
            for (size_t i = 0; i < 8; ++i) {
                const auto bias = static_cast<float>(i % 4) - 43;
                weighted[i] = (kScore[i] - bias) * scale + bias;
            }
            for (int run = 0; run < 100; ++run)
                wrong[t] += values_of<float>(context.run(one(input_of(x)))[0]) != weighted;
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, (std::array<int, 8>{}));
}

TEST(Api, EightThreadsTakeTurnsOnOneContext) {
    megjit::Context context{load("classify")};
    std::array<int, 8> wrong{};
    std::vector<std::thread> threads;
    for (int& mine : wrong)
        threads.emplace_back([&] {
            for (int run = 0; run < 50; ++run)
                mine += values_of<float>(context.run(one(input_of(kNumbers)))[0]) != kScore;
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, (std::array<int, 8>{}));
}

TEST(Api, EveryLevelAndExactNumericsGiveTheSameBits) {
    Floats x(1024), first;
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i) / 100;
    for (const int level : {0, 1, 2, 3})
        for (const char* numerics : {"fast", "exact"}) {
            megjit_model_options options = MEGJIT_MODEL_OPTIONS_DEFAULT;
            options.opt_level = level;
            options.numerics = numerics;
            megjit::Context context{load("chain", options)};
            const std::array<int64_t, 1> shape = {1024};
            const Floats y =
                values_of<float>(context.run(one(megjit::Tensor::borrow(x.data(), shape)))[0]);
            if (first.empty()) first = y;
            EXPECT_EQ(y, first) << level << " " << numerics;
        }
    EXPECT_EQ(first[0], 1);
}

TEST(Api, ReportsAreJson) {
    megjit_model_options options = MEGJIT_MODEL_OPTIONS_DEFAULT;
    options.opt_level = 3;
    options.profile = 1;
    const megjit::Model model = load("chain", options);
    megjit::Context context(model);
    megjit::Tensor x(MEGJIT_FLOAT32, std::array<int64_t, 1>{1024});
    for (float& number : x.as<float>()) number = 0;
    context.run(one(std::move(x)));
    EXPECT_NE(model.json("plan").find("\"planned_bytes\": 8192"), std::string::npos)
        << model.json("plan");
    EXPECT_EQ(model.json("profile").find("[{\"runs\": 1, "), 0u) << model.json("profile");
    const bool compiles = MEGJIT_HAS_COMPILER || std::getenv("MEGJIT_TEST_DEVICE");  // by NVRTC
    EXPECT_EQ(model.json("kernels").find("\"ir\": ") != std::string::npos, compiles)
        << model.json("kernels");
    expect_error(MEGJIT_INVALID_ARGUMENT, "there is no report pain", [&] { model.json("pain"); });
}

TEST(Api, AReportThatDoesNotFitIsCut) {
    const megjit::Model model = load("chain");
    char text[9] = "xxxxxxxx";
    size_t needed = 0;
    megjit::check(megjit_model_json(model.handle(), "plan", text, 4, &needed));
    EXPECT_STREQ(text, "{\"u");
    EXPECT_EQ(text[4], 'x');
    EXPECT_EQ(needed, model.json("plan").size() + 1);
}

// ---- what is refused

TEST(ApiErrors, AFileThatIsMissingTruncatedOrDamaged) {
    expect_error(MEGJIT_BAD_FILE, "nowhere.dump", [] { megjit::Model("/nowhere.dump"); });
    std::string bytes = bytes_of(path_of("classify"));
    for (const size_t size : {size_t{0}, size_t{1}, size_t{31}, bytes.size() / 2, bytes.size() - 1})
        expect_error(MEGJIT_BAD_FILE, "cannot read the model",
                     [&] { megjit::Model(as_bytes(bytes).first(size)); });
    bytes[bytes.size() - 1] = static_cast<char>(bytes.back() ^ 1);
    expect_error(MEGJIT_BAD_FILE, "cannot read the model", [&] { megjit::Model(as_bytes(bytes)); });
}

TEST(ApiErrors, AWrongNumberOfTensors) {
    megjit::Context context{load("classify")};
    expect_error(MEGJIT_INVALID_ARGUMENT, "0 inputs were given",
                 [&] { context.run(std::vector<megjit::Tensor>{}); });
}

TEST(ApiErrors, AWrongName) {
    megjit::Context context{load("difference")};
    const megjit::Tensor a(MEGJIT_INT32, kInput);
    using Named = std::vector<std::pair<std::string, const megjit::Tensor*>>;
    const std::vector<std::string> all = {"difference"}, wrong = {"sum"}, none;
    expect_error(MEGJIT_INVALID_ARGUMENT, "no input c\n  why: it has a, b",
                 [&] { context.run(Named{{"a", &a}, {"c", &a}}, all); });
    expect_error(MEGJIT_INVALID_ARGUMENT, "input b is missing",
                 [&] { context.run(Named{{"a", &a}}, all); });
    expect_error(MEGJIT_INVALID_ARGUMENT, "input a is given twice",
                 [&] { context.run(Named{{"a", &a}, {"a", &a}}, none); });
    expect_error(MEGJIT_INVALID_ARGUMENT, "no output sum",
                 [&] { context.run(Named{{"a", &a}, {"b", &a}}, wrong); });
}

TEST(ApiErrors, AWrongDtypeOrShape) {
    megjit::Context context{load("classify")};
    expect_error(MEGJIT_INVALID_ARGUMENT, "input x is i32[2, 3]\n  why: the model has f32[2, 3]",
                 [&] { context.run(one(megjit::Tensor(MEGJIT_INT32, kInput))); });
    expect_error(MEGJIT_INVALID_ARGUMENT, "input x is f32[2, 4]",
                 [&] { context.run(one(megjit::Tensor(MEGJIT_FLOAT32, kScores))); });
    std::vector<megjit::Tensor> outputs;
    for (int i = 0; i < 4; ++i) outputs.push_back(input_of(kNumbers));
    expect_error(MEGJIT_INVALID_ARGUMENT, "the tensor for output score is f32[2, 3]",
                 [&] { context.run(one(input_of(kNumbers)), outputs); });
}

TEST(ApiErrors, AWrongTensor) {
    const auto create = [](int dtype, std::vector<int64_t> shape, void* data,
                           const int64_t* strides) {
        megjit_tensor* tensor = nullptr;
        megjit::check(megjit_tensor_borrow(static_cast<megjit_dtype>(dtype),
                                           static_cast<int32_t>(shape.size()), shape.data(),
                                           strides, data, &tensor));
        megjit_tensor_free(tensor);
    };
    alignas(8) std::byte memory[64];
    expect_error(MEGJIT_INVALID_ARGUMENT, "there is no dtype 13",
                 [&] { create(13, {2}, memory, nullptr); });
    expect_error(MEGJIT_INVALID_ARGUMENT, "a tensor has 9 axes",
                 [&] { create(1, {1, 1, 1, 1, 1, 1, 1, 1, 1}, memory, nullptr); });
    expect_error(MEGJIT_INVALID_ARGUMENT, "data is NULL",
                 [&] { create(1, {2}, nullptr, nullptr); });
    expect_error(MEGJIT_INVALID_ARGUMENT, "not aligned",
                 [&] { create(1, {2}, memory + 1, nullptr); });
    create(1, {0}, nullptr, nullptr);  // has no elements
}

TEST(ApiErrors, AnOutputOfWhichElementsAreOneInMemory) {
    megjit::Context context{load("difference")};
    std::vector<int32_t> numbers(6);
    std::vector<megjit::Tensor> inputs, outputs;
    for (int i = 0; i < 2; ++i) inputs.push_back(megjit::Tensor::borrow(numbers.data(), kInput));
    outputs.push_back(megjit::Tensor::borrow(numbers.data(), kInput, std::array<int64_t, 2>{0, 1}));
    expect_error(MEGJIT_INVALID_ARGUMENT, "has stride 0 in axis 0",
                 [&] { context.run(inputs, outputs); });
}

TEST(ApiErrors, AMemoryLimitThatIsTooLow) {
    megjit_model_options options = MEGJIT_MODEL_OPTIONS_DEFAULT;
    options.memory_limit = 4096;
    expect_error(MEGJIT_OVER_LIMIT, "memory", [&] { load("chain", options); });
    options.memory_limit = 1 << 20;
    load("chain", options);
}

TEST(ApiErrors, AWrongOption) {
    const auto with = [](const std::function<void(megjit_model_options&)>& set) {
        megjit_model_options options = MEGJIT_MODEL_OPTIONS_DEFAULT;
        set(options);
        load("chain", options);
    };
    expect_error(MEGJIT_INVALID_ARGUMENT, "opt_level is 4",
                 [&] { with([](auto& options) { options.opt_level = 4; }); });
    expect_error(MEGJIT_INVALID_ARGUMENT, "there is no numerics sloppy",
                 [&] { with([](auto& options) { options.numerics = "sloppy"; }); });
    expect_error(MEGJIT_INVALID_ARGUMENT, "kernel backend GCC",
                 [&] { with([](auto& options) { options.compiler = "GCC"; }); });
    expect_error(MEGJIT_INVALID_ARGUMENT, "tpu0",
                 [&] { with([](auto& options) { options.device = "tpu0"; }); });
    expect_error(MEGJIT_INVALID_ARGUMENT, "batch: -1 samples",
                 [&] { with([](auto& options) { options.batch = -1; }); });
    expect_error(MEGJIT_INVALID_ARGUMENT, "the size of the options is 0",
                 [&] { with([](auto& options) { options.size = 0; }); });
}

TEST(ApiErrors, OptionsOfALaterVersionAreRefusedWhereTheyAreSet) {
    struct Later {
        megjit_model_options options = MEGJIT_MODEL_OPTIONS_DEFAULT;
        int64_t more = 0;
    } later;
    later.options.size = sizeof later;
    megjit::Model(path_of("chain"), later.options);
    later.more = 1;
    expect_error(MEGJIT_INVALID_ARGUMENT, "does not know",
                 [&] { megjit::Model(path_of("chain"), later.options); });
}

TEST(ApiErrors, NullIsRefusedOrIgnored) {
    size_t count = 0;
    EXPECT_EQ(megjit_model_input_count(nullptr, &count), MEGJIT_INVALID_ARGUMENT);
    EXPECT_STREQ(megjit_error_text(),
                 "model is NULL\n  fix: give an address that is valid during the call");
    EXPECT_EQ(megjit_model_load(nullptr, nullptr, nullptr), MEGJIT_INVALID_ARGUMENT);
    EXPECT_EQ(megjit_run(nullptr, nullptr, 0, nullptr, 0), MEGJIT_INVALID_ARGUMENT);
    megjit_model_free(nullptr);
    megjit_context_free(nullptr);
    megjit_tensor_free(nullptr);
}

TEST(ApiErrors, EachThreadHasItsOwnText) {
    size_t count = 0;
    megjit_model_input_count(nullptr, &count);
    std::thread([] { EXPECT_STREQ(megjit_error_text(), ""); }).join();
    EXPECT_STRNE(megjit_error_text(), "");
}

// In a process of its own: what it sets holds until the end.
TEST(Process, OptionsAreSetBeforeTheFirstUse) {
    megjit_process_options options = MEGJIT_PROCESS_OPTIONS_DEFAULT;
    const auto configure = [&] { megjit::check(megjit_configure(&options)); };
    options.isa = "mmx";
    expect_error(MEGJIT_INVALID_ARGUMENT, "there is no level mmx", configure);
    options.isa = "avx2";
    options.threads = -1;
    expect_error(MEGJIT_INVALID_ARGUMENT, "threads is -1", configure);
    static std::string logged;
    options.threads = 2;
    options.cache_folder = "";
    options.plugin_folder = "/nowhere";
    options.log = [](void* data, const char* text) {
        if (data == &logged) logged += text;
    };
    options.log_data = &logged;
    configure();
    megjit_model_options level = MEGJIT_MODEL_OPTIONS_DEFAULT;
    level.opt_level = 3;
    const megjit::Model model = load("chain", level);
    EXPECT_EQ(model.json("kernels"), "[]");  // no plug-in is there
    EXPECT_NE(logged.find("operations run one by one"), std::string::npos) << logged;
    expect_error(MEGJIT_INVALID_ARGUMENT, "after the first use", configure);
}

}  // namespace
