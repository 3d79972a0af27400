#include "jit/run/program.h"

#include "runtime/eager/dispatch.h"
#include "tests/jit/graphs.h"

namespace megjit::jit { namespace {

using ProgramTest = World;

Graph product_plus() {
    return parse_graph(
        "%0: f32[2] = input 0\n%1: f32[2] = input 1\n%2: f32[2] = input 2\n%3: f32[2] = mul %0 %1\n%4: f32[2] = add %3 %2\nreturn %4\n");
}

TEST_F(ProgramTest, GivesWhatTheInterpreterGives) {
    const Graph graph = product_plus();
    Program program(graph, {graph}, {.check = true});
    std::vector<TensorRef> inputs = {floats({2}, {1, 2}), floats({2}, {3, 4}), floats({2}, {5, 6})};
    EXPECT_EQ(values_of(program.run(inputs)[0]), (std::vector<float>{8, 14}));
}

//   x w b p y of 8 bytes each: y takes over the place of p
TEST_F(ProgramTest, TheSumTakesOverThePlaceOfTheProduct) {
    const Graph graph = product_plus();
    Program program(graph, {graph}, {.check = true});
    EXPECT_EQ(program.plan().unplanned_bytes, 40u);
    EXPECT_EQ(program.plan().planned_bytes, 32u);
}

TEST_F(ProgramTest, ADonatedInputIsOverwrittenWhereItLies) {
    const Graph graph = parse_graph("%0: f32[64] = input 0\n%1: f32[64] = neg %0\nreturn %1\n");
    Program program(graph, step_of(graph, {true}), {.check = true});
    TensorRef x = runtime::empty_tensor(runtime::host_device(),
                                        {.dtype = runtime::DType::f32, .shape = {64}});
    std::fill_n(x->as<float>(), 64, 2.0f);
    const void* place = x->data();
    std::vector<TensorRef> inputs;
    inputs.push_back(std::move(x));
    const auto outputs = program.run(inputs);
    EXPECT_EQ(outputs[0]->data(), place);
    EXPECT_EQ(outputs[0]->as<float>()[63], -2.0f);
}

TEST_F(ProgramTest, ADonatedInputThatSomebodyStillReadsIsKept) {
    const Graph graph = parse_graph("%0: f32[2] = input 0\n%1: f32[2] = neg %0\nreturn %1\n");
    Program program(graph, step_of(graph, {true}), {.check = true});
    const TensorRef x = floats({2}, {1, 2});
    std::vector<TensorRef> inputs = {x};
    EXPECT_EQ(values_of(program.run(inputs)[0]), (std::vector<float>{-1, -2}));
    EXPECT_EQ(values_of(x), (std::vector<float>{1, 2}));
}

TEST_F(ProgramTest, AnInputThatIsReturnedIsAnotherTensorOfItsMemory) {
    const Graph graph = parse_graph("%0: f32[2] = input 0\nreturn %0\n");
    Program program(graph, {graph}, {.check = true});
    std::vector<TensorRef> inputs = {floats({2}, {1, 2})};
    const TensorRef result = program.run(inputs)[0];
    EXPECT_NE(result, inputs[0]);
    EXPECT_EQ(result->storage(), inputs[0]->storage());
}

TEST_F(ProgramTest, AViewOfAnInputIsCopiedWhenReturned) {
    const Graph graph =
        parse_graph("%0: f32[2, 3] = input 0\n%1: f32[6] = reshape %0 {shape=[6]}\nreturn %1\n");
    Program program(graph, {graph}, {.check = true});
    std::vector<TensorRef> inputs = {floats({2, 3}, {1, 2, 3, 4, 5, 6})};
    EXPECT_EQ(values_of(program.run(inputs)[0]), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST_F(ProgramTest, RunsAgainAndAgainWithoutMoreMemory) {
    const Graph graph = parse_graph(
        "%0: f32[4096] = input 0\n%1: f32[4096] = exp %0\n%2: f32[4096] = neg %1\n%3: f32[4096] = add %2 %1\nreturn %3\n");
    Program program(graph, {graph}, {.check = true});
    std::vector<TensorRef> inputs = {runtime::empty_tensor(
        runtime::host_device(), {.dtype = runtime::DType::f32, .shape = {4096}})};
    std::fill_n(inputs[0]->as<float>(), 4096, 0.5f);
    program.run(inputs);
    const size_t before = runtime::host_device().allocator().stats().reserved;
    for (int i = 0; i < 100; ++i) program.run(inputs);
    EXPECT_EQ(runtime::host_device().allocator().stats().reserved, before);
}

}}  // namespace megjit::jit
