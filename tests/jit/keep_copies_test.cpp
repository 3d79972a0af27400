// Copies in halves of weights, which a step's updates write for the next step.
#include "jit/plan/passes/passes.h"
#include "tests/jit/graphs.h"

namespace megjit::jit { namespace {

class KeepCopies : public World {
protected:
    void SetUp() override {
        if (runtime::all_devices().size() < 2) GTEST_SKIP() << "there is no CUDA driver with a GPU";
    }
    static Graph kept(std::string_view text, const std::vector<bool>& released = {true, false},
                      MemoryOptions memory = {}) {
        const Step step = step_of(on_card(text), released, {0, -1});
        Graph result = keep_copies(step.graph, {.memory = std::move(memory), .step = &step});
        EXPECT_EQ(fault_of(result), "");
        return result;
    }
};

// A product of halves, and the weight's next value.
constexpr std::string_view kCastStep =
    "%0: f32[256, 256] = input 0\n%1: bf16[8, 256] = input 1\n"
    "%2: bf16[256, 256] = cast %0 {dtype=\"bfloat16\"}\n"
    "%3: bf16[8, 256] = matmul %1 %2 {transpose_a=0, transpose_b=0}\n"
    "%4: f32[256, 256] = square %0\nreturn %4 %3\n";

std::string cast_step(std::string_view part, std::string_view by,
                      std::string text = std::string(kCastStep)) {
    return replaced(part, by, std::move(text));
}

TEST_F(KeepCopies, AreReadInPlaceOfTheCastAndWrittenWithTheNextValue) {
    const Graph graph = kept(kCastStep);
    EXPECT_EQ(print(graph),
              "%0: bf16[256, 256] = input 2  #  as bfloat16\n%1: f32[256, 256] = input 0\n"
              "%2: bf16[8, 256] = input 1\n"
              "%3: bf16[8, 256] = matmul %2 %0 {transpose_a=0, transpose_b=0}\n"
              "%4: f32[256, 256] = square %1\n%5: bf16[256, 256] = cast %4 {dtype=\"bfloat16\"}\n"
              "return %4 %3 %5\n");
    ASSERT_EQ(graph.copies.size(), 1u);
    const KeptCopy& copy = graph.copies[0];
    EXPECT_EQ(copy.slot, 2);
    EXPECT_EQ(copy.of, 0);
    EXPECT_EQ(copy.successor, 0u);
    EXPECT_EQ(copy.written, 2u);
    EXPECT_EQ(count(*copy.maker, "cast"), 1u);
}

// Zeros behind the rows, as align_rows wants them, are made with the copy alone.
TEST_F(KeepCopies, HaveTheZerosBehindTheirRows) {
    const std::string text = cast_step(
        "matmul %1 %2", "matmul %1 %6",
        cast_step("%3: bf16[8, 256]",
                  "%5: bf16[8, 256] = full {shape=[8, 256], value=0.0, dtype=\"bfloat16\"}\n"
                  "%6: bf16[264, 256] = concat %2 %5 {axis=0}\n%3: bf16[8, 256]",
                  cast_step("bf16[8, 256] = input 1", "bf16[8, 264] = input 1")));
    const Graph graph = kept(text);
    ASSERT_EQ(graph.copies.size(), 1u) << print(graph);
    EXPECT_EQ(graph.copies[0].type().shape, (runtime::Shape{264, 256}));
    EXPECT_EQ(count(graph, "concat"), 0u);
    EXPECT_EQ(count(*graph.copies[0].maker, "concat"), 1u);
}

// The second weight is updated first.
TEST_F(KeepCopies, AreListedByTheirSlots) {
    const Step step = step_of(
        on_card("%0: f32[256, 256] = input 0\n%1: f32[512, 256] = input 1\n"
                "%2: bf16[8, 256] = input 2\n%3: bf16[256, 256] = cast %0 {dtype=\"bfloat16\"}\n"
                "%4: bf16[512, 256] = cast %1 {dtype=\"bfloat16\"}\n"
                "%5: bf16[8, 256] = matmul %2 %3 {transpose_a=0, transpose_b=0}\n"
                "%6: bf16[8, 512] = matmul %5 %4 {transpose_a=0, transpose_b=1}\n"
                "%7: f32[512, 256] = square %1\n%8: f32[256, 256] = square %0\n"
                "return %6 %8 %7\n"),
        {true, true, false}, {-1, 0, 1});
    const Graph graph = keep_copies(step.graph, {.step = &step});
    EXPECT_EQ(fault_of(graph), "");
    ASSERT_EQ(graph.copies.size(), 2u);
    for (size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(graph.copies[i].slot, static_cast<int>(3 + i));
        EXPECT_EQ(graph.copies[i].of, static_cast<int>(i));
        EXPECT_EQ(graph.copies[i].written, 3 + i);
        EXPECT_EQ(graph.type(graph.outputs[3 + i]).shape, graph.copies[i].type().shape);
    }
}

// A kernel casts what it reads; small casts share a launch; and a cast that is read behind the
// update, or returned, would be written over.
TEST_F(KeepCopies, OtherCastsStay) {
    const auto stays = [](const std::string& text) {
        const Graph graph = kept(text);
        EXPECT_TRUE(graph.copies.empty()) << print(graph);
        EXPECT_EQ(count(graph, "cast"), 1u);
    };
    stays(cast_step("bf16[8, 256] = matmul %1 %2 {transpose_a=0, transpose_b=0}",
                    "bf16[256, 256] = neg %2"));
    stays(cast_step("256]", "16]", cast_step("[256", "[16")));
    stays(cast_step("%4 %3\n", "%4 %2\n"));
    stays(
        "%0: f32[256, 256] = input 0\n%1: bf16[8, 256] = input 1\n"
        "%2: bf16[256, 256] = cast %0 {dtype=\"bfloat16\"}\n%4: f32[256, 256] = square %0\n"
        "%3: bf16[8, 256] = matmul %1 %2 {transpose_a=0, transpose_b=0}\nreturn %4 %3\n");
}

TEST_F(KeepCopies, WeightsThatTheCallerKeepsOrThatHaveALimitHaveNone) {
    EXPECT_TRUE(kept(kCastStep, {false, false}).copies.empty());
    EXPECT_TRUE(kept(kCastStep, {true, false}, {.limit = 1 << 30}).copies.empty());
    EXPECT_EQ(print(kept(kCastStep, {true, false}, {.only_looks = true})), kCastStep);
    Step lent = step_of(on_card(kCastStep), {true, false}, {0, -1});
    lent.inputs[0].is_lent = true;
    EXPECT_TRUE(keep_copies(lent.graph, {.step = &lent}).copies.empty());
    const Step host = step_of(parse_graph(kCastStep), {true, false}, {0, -1});
    EXPECT_EQ(print(keep_copies(host.graph, {.step = &host})), kCastStep);
}

}}  // namespace megjit::jit
