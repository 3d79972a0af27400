// What a program may overwrite, and what it refuses to run on.
#include "jit/run/program.h"
#include "runtime/host/error.h"
#include "tests/jit/graphs.h"

namespace megjit::jit { namespace {

using ProgramSafetyTest = World;

TensorRef indices(int32_t value) {
    TensorRef tensor =
        runtime::empty_tensor(runtime::host_device(), {.dtype = runtime::DType::i32, .shape = {1}});
    *tensor->as<int32_t>() = value;
    return tensor;
}

// relu is a temporary value; the plan lays it over the input that was given away when it was made.
TEST_F(ProgramSafetyTest, TemporaryValuesDoNotOverwriteWhatSomebodyReads) {
    const Graph graph = parse_graph(
        "%0: f32[64] = input 0\n%1: f32[64] = relu %0\n%2: f32[] = reduce_sum %1 {axes=[0], keepdims=0}\nreturn %2\n");
    Program program(graph, step_of(graph, {true}), {.check = true});
    const TensorRef x = runtime::empty_tensor(runtime::host_device(),
                                              {.dtype = runtime::DType::f32, .shape = {64}});
    std::fill_n(x->as<float>(), 64, -1.0f);
    std::vector<TensorRef> inputs = {x};
    EXPECT_EQ(values_of(program.run(inputs)[0]), (std::vector<float>{0}));
    EXPECT_EQ(x->as<float>()[63], -1.0f);
}

// %1 may lie over %0, but not before index_get has checked its places.
TEST_F(ProgramSafetyTest, AFailedRunLeavesItsInputsAsTheyWere) {
    const Graph graph = parse_graph(
        "%0: f32[64] = input 0\n%1: i32[1] = input 1\n%2: f32[64] = neg %0\n%3: f32[1] = index_get %2 %1 {axes=[0]}\nreturn %2 %3\n");
    Program program(graph, step_of(graph, {true, false}), {.check = true});
    TensorRef x = runtime::empty_tensor(runtime::host_device(),
                                        {.dtype = runtime::DType::f32, .shape = {64}});
    std::fill_n(x->as<float>(), 64, 2.0f);
    std::vector<TensorRef> inputs = {std::move(x), indices(64)};
    EXPECT_THROW(program.run(inputs), runtime::UserError);
    EXPECT_EQ(inputs[0]->as<float>()[0], 2.0f);
    inputs[1] = indices(63);
    EXPECT_EQ(program.run(inputs)[1]->as<float>()[0], -2.0f);
}

TEST_F(ProgramSafetyTest, AnInputWithoutAValueIsRefused) {
    const Graph graph = parse_graph("%0: f32[2] = input 0\n%1: f32[2] = neg %0\nreturn %1\n");
    Program program(graph, {graph}, {.check = true});
    std::vector<TensorRef> inputs = {
        runtime::make_placeholder({.shape = {2}}, runtime::host_device())};
    EXPECT_THROW(program.run(inputs), runtime::UserError);
}

TEST_F(ProgramSafetyTest, AttributesAreEqualByTheirBits) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    EXPECT_TRUE(runtime::same(runtime::Attrs{nan}, runtime::Attrs{nan}));
    EXPECT_FALSE(runtime::same(runtime::Attrs{0.0}, runtime::Attrs{-0.0}));
    EXPECT_FALSE(runtime::same(runtime::Attrs{0.0}, runtime::Attrs{}));
}

}}  // namespace megjit::jit
