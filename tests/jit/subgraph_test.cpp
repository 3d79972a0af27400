// Graphs that ops hold, as text, and what runs them.
#include <gtest/gtest.h>

#include "jit/plan/graph_program.h"
#include "jit/plan/passes/passes.h"
#include "jit/step/subgraph.h"
#include "tests/jit/world.h"

namespace megjit::jit { namespace {

class Subgraphs : public World {};
class GraphPrograms : public World {};

// A scan in a scan: sums of products.
constexpr const char* kNested = R"(%0: f32[2] = input 0
%1: f32[3, 4, 2] = input 1
%2: f32[2], %3: f32[3, 2] = scan %0 %1 {body=graph, carries=1, slices=1, trips=3, reverse=0, keeps=0}
  | %0: f32[2] = input 0
  | %1: f32[4, 2] = input 1
  | %2: f32[2] = scan %0 %1 {body=graph, carries=1, slices=1, trips=4, reverse=1, keeps=0}
  |   | %0: f32[2] = input 0
  |   | %1: f32[2] = input 1
  |   | %2: f32[] = const 0.5
  |   | %3: f32[2] = mul %1 %2
  |   | %4: f32[2] = add %0 %3
  |   | return %4
  | return %2 %0
return %2 %3
)";
constexpr const char* kCond = R"(%0: bool[] = input 0
%1: f32[2] = input 1
%2: f32[2] = cond %0 %1 {if_true=graph, if_false=graph}
  | %0: f32[2] = input 0
  | %1: f32[2] = neg %0
  | return %1
  | %0: f32[2] = input 0
  | return %0
return %2
)";

TEST_F(Subgraphs, ParseUndoesPrint) {
    EXPECT_EQ(print(parse_graph(kNested)), kNested);
    EXPECT_EQ(print(parse_plain_graph(kCond)), kCond);
    EXPECT_EQ(fault_of(parse_graph(kNested)), "");
}

TEST_F(Subgraphs, ATextHoldsNoLargeConstantsWhereFilesMayNot) {
    std::string text = kNested;
    text.replace(text.find("%2: f32[] = const"), 17, "%2: f32[99999999] = const");
    EXPECT_THROW(parse_plain_graph(text), runtime::UserError);
}

TEST_F(Subgraphs, TheVerifierComparesOperandsWithWhatABodyTakes) {
    std::string text = kNested;
    text.replace(text.find("f32[2] = input 0"), 16, "f32[3] = input 0");
    EXPECT_TRUE(contains(fault_of(parse_graph(text)), "operands: number 0 is f32[3], not f32[2]"));
}

// Packed weights take another number of bytes: a file that named a layout could be read beyond.
TEST_F(Subgraphs, AFileNamesNoPackedLayoutAndOperandsHaveThatOfTheBody) {
    const std::string packed = "@" + to_string(runtime::add_packed_layout(64, "of a test"));
    std::string text = kCond;
    for (const size_t at : {text.rfind(" = input 0"), text.find(" = input 0", 30)})
        text.insert(at, packed);
    EXPECT_EQ(print(parse_graph(text)), text);
    EXPECT_THROW(parse_plain_graph(text), runtime::UserError);
    EXPECT_TRUE(contains(fault_of(parse_graph(text)), "operands: number 0 is f32[2], not f32[2]@"));
    EXPECT_THROW(parse_graph("%0: f32[2]@packed9999 = input 0\nreturn %0\n"), runtime::UserError);
}

TEST_F(Subgraphs, ASlotThatNoOperandCanHaveIsRefused) {
    std::string text = kCond;
    text.replace(text.find("  | %0: f32[2] = input 0"), 24, "  | %0: f32[2] = input 2000000000");
    EXPECT_TRUE(contains(fault_of(parse_graph(text)), "slot 2000000000 of 1 inputs"));
}

TEST_F(Subgraphs, GraphsInOneAnotherHaveAnEnd) {
    std::string text = "return\n";
    for (int depth = 0; depth < 20; ++depth) {
        std::string block;
        for (size_t from = 0, end = 0; from < text.size(); from = end + 1) {
            end = text.find('\n', from);
            block += "  | " + text.substr(from, end - from) + "\n";
        }
        text = "%0: bool[] = input 0\n%1: f32[] = cond %0 {if_true=graph, if_false=graph}\n" +
               block + "return\n";
    }
    EXPECT_THROW(parse_graph(text), runtime::UserError);
}

TEST_F(Subgraphs, AnOpMayFailIfOneInItsGraphsMay) {
    const Graph harmless = parse_graph(kNested);
    EXPECT_FALSE(checks_values(harmless.producer(harmless.outputs[0])));
    const Graph picks = parse_graph(
        "%0: bool[] = input 0\n%1: f32[3, 2] = input 1\n%2: i32[3, 1] = input 2\n"
        "%3: f32[3, 1] = cond %0 %1 %2 {if_true=graph, if_false=graph}\n"
        "  | %0: f32[3, 2] = input 0\n  | %1: i32[3, 1] = input 1\n"
        "  | %2: f32[3, 1] = gather %0 %1 {axis=1}\n  | return %2\n"
        "  | %0: f32[3, 2] = input 0\n  | %1: i32[3, 1] = input 1\n"
        "  | %2: f32[3, 1] = cast %1 {dtype=\"float32\"}\n  | return %2\n"
        "return %3\n");
    EXPECT_TRUE(checks_values(picks.producer(picks.outputs[0])));
}

TEST_F(Subgraphs, AreOptimizedAsTheGraphAroundThem) {
    std::string text = kNested;
    text.replace(text.find("const 0.5"), 9, "const 1");
    const Graph graph = optimize_subgraphs(parse_graph(text), {.opt_level = 2});
    EXPECT_FALSE(contains(print(graph), "mul"));
    EXPECT_TRUE(contains(print(graph), "  |   | %2: f32[2] = add %0 %1\n"));
}

// Inputs and constants that are handed back, and a value twice.
TEST_F(GraphPrograms, GiveEachOutputMemoryOfItsOwn) {
    const GraphProgram program(parse_graph(
        "%0: f32[2] = input 0\n%1: f32[2] = neg %0\n%2: f32[2] = const 7 8\nreturn %1 %0 %2 %1\n"));
    float x[] = {1, 2}, y[4][2] = {};
    void *in[] = {x}, *out[] = {y[0], y[1], y[2], y[3]};
    std::vector<std::byte> workspace(program.workspace_bytes() + 64);
    program.enqueue(runtime::host_device().stream(), in, out, workspace.data());
    const float expected[4][2] = {{-1, -2}, {1, 2}, {7, 8}, {-1, -2}};
    EXPECT_EQ(std::memcmp(y, expected, sizeof y), 0);
}

}}  // namespace megjit::jit
