// Values that wait in the host's memory: a device that has its own is imitated by the CPU.
#include <gtest/gtest.h>

#include <cstring>

#include "jit/pipeline.h"
#include "jit/program.h"
#include "memory/rematerialize.h"
#include "tests/jit/world.h"

namespace megjit::jit { namespace {

// Computes as the CPU does, and says that its memory is apart.
class Card final : public runtime::Device {
public:
    std::string_view name() const override { return cpu_.name(); }
    runtime::Allocator& allocator() override { return cpu_.allocator(); }
    std::shared_ptr<const runtime::Executable> prepare(const runtime::OpCall& call,
                                                       std::span<const Type> outputs) override {
        return cpu_.prepare(call, outputs);
    }
    void copy_to_host(void* to, const void* from, size_t bytes) override {
        stored += bytes;
        std::memcpy(to, from, bytes);
    }
    void copy_from_host(void* to, const void* from, size_t bytes) override {
        fetched += bytes;
        std::memcpy(to, from, bytes);
    }
    bool has_own_memory() const override { return true; }

    size_t stored = 0, fetched = 0;

private:
    runtime::Device& cpu_ = runtime::default_device();
};

class Offload : public World {
protected:
    // exp is read at once and, through a view, in backward, which neg begins; meanwhile concat
    // needs memory.
    static Graph training(bool is_marked) {
        const Graph graph = parse_graph(
            "%0: f32[1024] = input 0\n%1: f32[1024] = exp %0\n%2: f32[32, 32] = reshape %1 {shape=[32, 32]}\n%3: f32[32, 32] = sin %2\n"
            "%4: f32[64, 32] = concat %3 %3 {axis=0}\n%5: f32[64, 32] = neg %4\n%6: f32[32, 32] = slice %5 {begin=[0, 0], end=[64, 32], step=[2, 1]}\n"
            "%7: f32[32, 32] = mul %2 %6\n%8: f32[32, 32] = transpose %7 {perm=[1, 0]}\nreturn %8\n");
        Rewriter rewriter(graph);
        for (Node node : graph.nodes()) {
            node.marks.is_offloaded = is_marked && node.op && node.op->name == "reshape";
            node.role.is_backward = at(node.outputs[0]) >= 5;
            rewriter.copy(node);
        }
        return rewriter.finish();
    }

    static Graph prepared(const Graph& graph, runtime::Device& device) {
        return run_pipeline(graph, {.opt_level = 0, .device = &device});
    }

    static std::vector<float> run(const Graph& graph, runtime::Device& device, MemoryPlan& plan) {
        std::vector<float> numbers(1024);
        for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i) / 1024;
        TensorRef x = runtime::empty_tensor(runtime::default_device(), {.shape = {1024}});
        std::copy(numbers.begin(), numbers.end(), x->as<float>());
        Program program(prepared(graph, device), graph, device, {.check = true});
        plan = program.plan();
        std::vector<TensorRef> inputs = {x};
        return values_of(program.run(inputs)[0]);
    }
};

TEST_F(Offload, AMarkedValueWaitsOnTheHost) {
    Card card;
    MemoryPlan plain, less;
    const std::vector<float> expected = run(training(false), card, plain);
    EXPECT_EQ(plain.transferred_bytes + plain.host_bytes + card.stored, 0u);
    EXPECT_EQ(run(training(true), card, less), expected);
    EXPECT_EQ(less.arena_bytes + 4096, plain.arena_bytes);
    EXPECT_EQ(less.host_bytes, 4096u);
    EXPECT_EQ(less.transferred_bytes, 2 * 4096u);
    EXPECT_EQ(card.stored, 4096u);
    EXPECT_EQ(card.fetched, 4096u);
}

TEST_F(Offload, ItIsStoredWhenItIsMadeAndFetchedForBackward) {
    Card card;
    EXPECT_EQ(
        print(prepared(training(true), card)),
        "%0: f32[1024] = input 0\n%1: f32[1024] = exp %0\n%2: f32[1024] = to_host %1\n%3: f32[32, 32] = reshape %1 {shape=[32, 32]}\n"
        "%4: f32[32, 32] = sin %3\n%5: f32[64, 32] = concat %4 %4 {axis=0}\n%6: f32[64, 32] = neg %5\n"
        "%7: f32[32, 32] = slice %6 {begin=[0, 0], end=[64, 32], step=[2, 1]}\n%8: f32[1024] = from_host %2\n"
        "%9: f32[32, 32] = reshape %8 {shape=[32, 32]}\n%10: f32[32, 32] = mul %9 %7\n%11: f32[32, 32] = transpose %10 {perm=[1, 0]}\nreturn %11\n");
}

TEST_F(Offload, WhereTheMemoryIsTheHostsNothingChanges) {
    runtime::Device& cpu = runtime::default_device();
    EXPECT_EQ(print(prepared(training(true), cpu)), print(prepared(training(false), cpu)));
}

TEST_F(Offload, ResultsAndWhatForwardAloneReadsStay) {
    Card card;
    Graph graph = training(true);
    graph.outputs.push_back(graph.nodes()[1].outputs[0]);
    EXPECT_EQ(prepared(graph, card).value_count(), graph.value_count());
}

TEST_F(Offload, ToTheSearchTheCopyOnTheHostTakesNoMemory) {
    Card card;
    PipelineOptions options{.opt_level = 0, .device = &card};
    size_t marked = 0, plain = 0;
    const auto peak = [](size_t& bytes) {
        return [&bytes](const memory::RematProblem& problem) {
            bytes = memory::plain_plan(problem).peak_bytes;
            return std::vector<uint32_t>{};
        };
    };
    options.choose_plan = peak(plain);
    run_pipeline(training(false), options);
    options.choose_plan = peak(marked);
    run_pipeline(training(true), options);
    EXPECT_EQ(marked + 4096, plain);
}

}}  // namespace megjit::jit
