// What cuDNN's plans need beside their operands, in the memory planner.
#include <gtest/gtest.h>

#include <algorithm>

#include "backends/cuda/products/cudnn.h"
#include "jit/plan/program_layout.h"
#include "tests/jit/world.h"

namespace megjit::jit { namespace {

using Workspaces = World;

// Two filters' gradients in half precision, whose sums the library splits among blocks.
TEST_F(Workspaces, OfProductsShareThePlaceBesideWhatLives) {
    std::string why_not;
    if (!cuda::cudnn::Library::find(&why_not)) GTEST_SKIP() << why_not;
    if (runtime::all_devices().size() < 2) GTEST_SKIP() << "there is no CUDA driver with a GPU";
    const std::string filter =
        "conv_backward_filter %0 %1 {stride=[1], padding=[1], dilation=[1], groups=1, kernel=[3, "
        "3]}\n";
    Graph graph = parse_graph(
        "%0: f16[8, 64, 28, 28]@channels_last = input 0\n"
        "%1: f16[8, 64, 28, 28]@channels_last = input 1\n"
        "%2: f16[64, 64, 3, 3] = " +
        filter +
        "%3: f16[64, 64, 3, 3] = square %2\n"
        "%4: f16[64, 64, 3, 3] = " +
        filter + "%5: f16[64, 64, 3, 3] = mul %3 %4\nreturn %5\n");
    graph.set_device(runtime::find_device("gpu0:0"));
    const PreparedGraph prepared = prepare_to_plan(std::move(graph), {});
    const BufferPlan plan = plan_buffers(prepared, {}, true);  // the validators say no word
    size_t largest = 0;
    for (size_t s = 0; s < prepared.nodes.size(); ++s) {
        const size_t bytes = prepared.nodes[s].executable->workspace_bytes();
        ASSERT_EQ(plan.workspaces[s] != memory::kNone, bytes > 0);
        if (prepared.node(s).op->name != "conv_backward_filter") continue;
        EXPECT_TRUE(contains(std::string(prepared.nodes[s].executable->remark()), "cuDNN"));
        ASSERT_GT(bytes, 0u);
        EXPECT_EQ(plan.schedule.values[plan.workspaces[s]].bytes, bytes);
        const size_t offset = plan.offsets[plan.aliasing.buffer_of[plan.workspaces[s]]];
        EXPECT_LE(offset + bytes, plan.arena_bytes);
        largest = std::max(largest, bytes);
    }
    const size_t filters = 2 * 64 * 64 * 3 * 3 * sizeof(uint16_t);  // %3 and %4
    EXPECT_LE(plan.arena_bytes, largest + filters + 128);
}

}}  // namespace megjit::jit
