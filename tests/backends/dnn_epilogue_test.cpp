// Products with an epilogue have the bits of the product and the steps one after the other.
#include "tests/backends/dnn_testing.h"

namespace megjit::testing { namespace {

struct Product {
    std::string name = {};
    std::string op = {};
    Shape a = {}, b = {};
    Attrs attrs = {};
    Layout layout = Layout::row_major;
};

Attrs window(int64_t stride, int64_t padding, int64_t groups = 1) {
    return {Ints{stride}, Ints{padding}, Ints{1}, groups};
}
Attrs column() { return {Ints{2, 1}, Ints{1, 0}, Ints{1, 1}, int64_t{1}}; }
Attrs transposed(int64_t a, int64_t b) { return {a, b}; }

constexpr Layout kLast = Layout::channels_last;

const std::vector<Product> kProducts = {
    {"matrix", "matmul", {33, 70}, {70, 45}, transposed(0, 0)},
    {"long_inner", "matmul", {5, 3000}, {40, 3000}, transposed(0, 1)},
    {"shared_b", "matmul", {2, 3, 16, 64}, {64, 48}, transposed(0, 0)},
    {"runs_of_rows", "matmul", {2, 50, 64}, {64, 48}, transposed(0, 0)},
    {"batched", "matmul", {3, 20, 31}, {3, 17, 31}, transposed(0, 1)},
    {"column", "matmul", {50, 7}, {7, 1}, transposed(0, 0)},
    {"row", "matmul", {64, 1}, {64, 100}, transposed(1, 0)},
    {"large", "matmul", {800, 1030}, {1030, 1020}, transposed(0, 0)},
    {"empty_inner", "matmul", {4, 0}, {0, 5}, transposed(0, 0)},
    {"conv_3x3", "conv", {2, 32, 14, 14}, {64, 32, 3, 3}, window(1, 1), kLast},
    {"conv_1x1", "conv", {2, 300, 7, 7}, {40, 300, 1, 1}, window(1, 0), kLast},
    {"conv_1x1_of_few_pixels", "conv", {1, 300, 3, 4}, {40, 300, 1, 1}, window(1, 0), kLast},
    {"conv_stem", "conv", {2, 3, 32, 32}, {16, 3, 7, 7}, window(2, 3), kLast},
    {"conv_odd", "conv", {1, 5, 9, 9}, {7, 5, 3, 3}, window(2, 1), kLast},
    {"conv_groups", "conv", {2, 20, 9, 9}, {12, 5, 3, 3}, window(1, 1, 4), kLast},
    {"conv_depthwise", "conv", {2, 32, 9, 9}, {32, 1, 3, 3}, window(1, 1, 32), kLast},
    {"conv_depthwise_7x7", "conv", {2, 40, 9, 9}, {40, 1, 7, 7}, window(1, 3, 40), kLast},
    {"conv_row_major", "conv", {2, 32, 14, 14}, {48, 32, 3, 3}, window(1, 1)},
    {"conv_1d", "conv", {2, 8, 30}, {6, 8, 5}, window(2, 2), kLast},
    {"conv_column", "conv", {2, 8, 30, 1}, {16, 8, 5, 1}, column(), kLast},
    {"conv_column_row_major", "conv", {2, 8, 30, 1}, {16, 8, 5, 1}, column()},
    {"conv_3d", "conv", {1, 4, 5, 6, 7}, {8, 4, 3, 3, 3}, window(1, 1), kLast},
    {"conv_no_input_channels", "conv", {2, 0, 5, 5}, {4, 0, 3, 3}, window(1, 1)},
};

class EpilogueTest : public ::testing::TestWithParam<std::tuple<Product, std::string>> {};

TEST_P(EpilogueTest, HasTheBitsOfTheOpsOneByOne) {
    const auto& [p, epilogue] = GetParam();
    std::vector<Values> inputs = {random(p.a, 1, p.layout), random(p.b, 2)};
    Values expected = run(p.op, inputs, p.attrs)[0];
    const Type type = expected.type;
    const int channel = p.op == "conv" ? 1 : type.rank() - 1;
    for (size_t at = 0; at < epilogue.size();
         at = epilogue.find_first_not_of(' ', epilogue.find(' ', at))) {
        const std::string step = epilogue.substr(at, epilogue.find(' ', at) - at);
        if (step == "relu") {
            expected = run("relu", {expected})[0];
            continue;
        }
        Shape shape = type.shape;
        for (int axis = 0; step == "bias" && axis < shape.rank(); ++axis)
            if (axis != channel) shape[axis] = 1;
        inputs.push_back(random(shape, 3 + static_cast<unsigned>(at),
                                step == "add" ? type.layout : Layout::row_major));
        for (int64_t i = 0, inner = type.numel(), c = 0; i < type.numel(); ++i) {
            if (step == "bias") {
                inner = 1;
                for (int axis = channel + 1; axis < type.rank(); ++axis) inner *= type.shape[axis];
                c = i / inner % type.shape[channel];
            }
            expected[i] = static_cast<float>(expected[i]) +
                          static_cast<float>(inputs.back()[step == "bias" ? c : i]);
        }
    }
    Attrs attrs = p.attrs;
    attrs.push_back(epilogue);
    const Values got = run(p.op + "_epilogue", inputs, attrs)[0];
    EXPECT_EQ(got.type, type);
    EXPECT_EQ(got.data, expected.data);
}

INSTANTIATE_TEST_SUITE_P(Epilogue, EpilogueTest,
                         ::testing::Combine(::testing::ValuesIn(kProducts),
                                            ::testing::Values("bias", "add", "bias add",
                                                              "bias relu", "add bias relu")),
                         [](const auto& info) {
                             std::string name =
                                 std::get<0>(info.param).name + "_" + std::get<1>(info.param);
                             std::replace(name.begin(), name.end(), ' ', '_');
                             return name;
                         });

// A float32 product in memory that the test owns, so that the result may lie on the addend.
struct AddOnto : ::testing::TestWithParam<Product> {
    static std::vector<float> floats(const Values& values) {
        std::vector<float> memory(values.data.size());
        for (int64_t i = 0; i < values.type.numel(); ++i)
            memory[static_cast<size_t>(offset_in(values.type, i))] = static_cast<float>(values[i]);
        return memory;
    }
};

TEST_P(AddOnto, TheResultOnItsAddendHasTheBitsOfOneApart) {
    const Product& p = GetParam();
    const Values a = random(p.a, 1, p.layout), b = random(p.b, 2);
    const Type type = run(p.op, {a, b}, p.attrs)[0].type;
    const Values addend = random(type.shape, 3, type.layout);
    Attrs attrs = p.attrs;
    attrs.emplace_back(std::string("add"));
    const std::vector<Type> types = {a.type, b.type, type};
    const auto executable =
        device().prepare({runtime::find_op(p.op + "_epilogue"), attrs, types}, {&type, 1});
    if (!executable->may_alias(0, 2)) GTEST_SKIP() << "not offered for this kernel";
    EXPECT_FALSE(executable->may_alias(0, 0));
    std::vector<float> fa = floats(a), fb = floats(b), apart(addend.data.size()),
                       onto = floats(addend), kept = onto;
    const Aligned workspace(executable->workspace_bytes());
    void *in[] = {fa.data(), fb.data(), kept.data()}, *out[] = {apart.data()};
    executable->enqueue(runtime::inline_stream(), in, out, workspace.p);
    in[2] = out[0] = onto.data();
    executable->enqueue(runtime::inline_stream(), in, out, workspace.p);
    EXPECT_EQ(onto, apart);
}

INSTANTIATE_TEST_SUITE_P(Epilogue, AddOnto, ::testing::ValuesIn(kProducts),
                         [](const auto& info) { return info.param.name; });

TEST(Epilogue, ReluKeepsNaN) {
    const Values x = random(Shape{4, 8}, 1), w = random(Shape{8, 3}, 2);
    const Values bias{{DType::f32, {3}}, {NAN, 1e9, -1e9}};
    const Values y =
        run("matmul_epilogue", {x, w, bias}, {int64_t{0}, int64_t{0}, std::string("bias relu")})[0];
    EXPECT_TRUE(std::isnan(y[0]));
    EXPECT_GT(y[1], 0);
    EXPECT_EQ(y[2], 0);
}

std::string refusal(const std::vector<Values>& more, const std::string& epilogue) {
    std::vector<Values> inputs = {random(Shape{4, 8}, 1), random(Shape{8, 3}, 2)};
    inputs.insert(inputs.end(), more.begin(), more.end());
    return message_of([&] { run("matmul_epilogue", inputs, {int64_t{0}, int64_t{0}, epilogue}); });
}

TEST(Epilogue, RefusesWhatItsRulesForbid) {
    const Values bias = random(Shape{3}, 3), rows = random(Shape{4, 1}, 3);
    EXPECT_NE(refusal({bias}, "scale").find("'scale' is not a step"), std::string::npos);
    EXPECT_NE(refusal({bias, bias}, "bias bias").find("'bias' stands twice"), std::string::npos);
    EXPECT_NE(refusal({bias}, "relu").find("'relu' takes 0 operands, and there are 1"),
              std::string::npos);
    EXPECT_NE(
        refusal({rows}, "bias").find("the bias f32[4, 1] does not lie along axis 1 of f32[4, 3]"),
        std::string::npos);
    EXPECT_NE(refusal({rows}, "add").find("f32[4, 1] is added to f32[4, 3]"), std::string::npos);
}

}}  // namespace megjit::testing
