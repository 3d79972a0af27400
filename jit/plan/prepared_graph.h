// jit/plan/prepared_graph.h -- PreparedGraph: a graph whose nodes were made ready for its device.
// Memory is planned for it (program_layout.h), and a Program runs it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codegen/compiler.h"
#include "jit/step/graph.h"

namespace megjit::jit {

// A generated kernel and one place where the program runs it.
struct KernelUse {
    std::shared_ptr<const codegen::CompiledKernel> compiled;
    std::vector<std::string> ops = {};
    std::string choice = {};  // of a product: why it is generated
    std::string where = {};
    size_t bytes = 0;  // read and written by one run
};

struct PreparedNode {
    NodeId node = {};
    std::shared_ptr<const runtime::Executable> executable = {};  // null: a view
    std::string backend = {};  // compiler of the kernel; empty: an operation of the device
    bool is_ordered = false;  // runtime/ops/ordered.h: its errors name the line
};

struct PreparedGraph {
    Graph graph;
    std::vector<PreparedNode> nodes;  // in order, without inputs and constants
    std::vector<KernelUse> kernels;

    const Node& node(size_t index) const { return graph.node(nodes[index].node); }
};

// For each fused node, in order; null: the device runs it without generated code.
using Kernels = std::vector<std::shared_ptr<const codegen::CompiledKernel>>;

// Without `kernels`, the service is asked for each. `check`: kernels are compared with the
// interpreter (MEGJIT_CHECK).
PreparedGraph prepare(Graph graph, const std::optional<Kernels>& kernels, bool check);

// The result can be planned, not run: kernels that are not given are not asked for.
PreparedGraph prepare_to_plan(Graph graph, const std::optional<Kernels>& kernels);

// What a node of the graph runs. Ask it for its needs, do not run it. Null: a view.
std::shared_ptr<const runtime::Executable> executable_to_plan(const Graph& graph, const Node& node);

bool waits_for_values(const PreparedGraph& prepared);  // does one of its executables?

// "relu", or the last op of a kernel.
const std::string& name_of(const Node& node);
size_t bytes_moved(const Graph& graph, const Node& node);  // read and written by one run

}  // namespace megjit::jit
