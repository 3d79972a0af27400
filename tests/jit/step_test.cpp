// Interfaces that do not belong to their graphs.
#include "jit/run/pending_program.h"
#include "runtime/host/error.h"
#include "tests/jit/graphs.h"

namespace megjit::jit { namespace {

using StepTest = World;

TEST_F(StepTest, AnInterfaceBelongsToItsGraph) {
    const Graph graph = parse_graph(
        "%0: f32[4] = input 0\n%1: i32[4] = input 1\n%2: f32[4] = exp %0\nreturn %2 %1\n");
    const struct {
        std::vector<bool> released;
        std::vector<int> replaces;
        std::string fault;
    } rows[] = {
        {{true, false}, {0, -1}, ""},
        {{true}, {0, -1}, "its interface tells of 1 inputs and 2 outputs, its graph has 2 and 2"},
        {{true, true}, {0}, "its interface tells of 2 inputs and 1 outputs, its graph has 2 and 2"},
        {{true, true}, {1, -1}, "output 0 replaces slot 1, which it does not fit"},
        {{true, true, true}, {2, -1}, "output 0 replaces slot 2, which it does not fit"},
    };
    for (const auto& row : rows) {
        std::string fault;
        try {
            PendingProgram(std::make_shared<const Step>(step_of(graph, row.released, row.replaces)),
                           {.opt_level = 0, .device = &runtime::host_device()}, {.check = true});
        } catch (const runtime::InternalError& error) { fault = error.what(); }
        EXPECT_TRUE(row.fault.empty() ? fault.empty() : contains(fault, row.fault)) << fault;
    }
}

}}  // namespace megjit::jit
