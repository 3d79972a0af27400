#include "jit/plan/op_program.h"

#include "jit/plan/graph_program.h"
#include "jit/plan/ops/control_flow_program.h"
#include "jit/plan/passes/passes.h"

namespace megjit::jit {
namespace {

// Prepares the op's expansion; a product alone, or what it became, as a kernel where `products`
// says so.
std::shared_ptr<const runtime::Executable> expanded(runtime::Device& device,
                                                    const runtime::OpCall& call,
                                                    Products products = Products::measured) {
    Graph graph;
    graph.set_device(device);
    Node node{.kind = NodeKind::op, .op = &call.op, .attrs = call.attrs};
    for (size_t i = 0; i < call.inputs.size(); ++i)
        node.inputs.push_back(graph.add_input(call.inputs[i], static_cast<int>(i)));
    graph.outputs = graph.add(std::move(node), runtime::infer(call));
    const PipelineOptions options{
        .opt_level = 3, .products = products, .splits_products = true, .device = &device};
    graph = optimize_subgraphs(fold_constants(expand(std::move(graph), options)), options);
    if (!device.is_host())
        graph = fuse(std::move(graph), options);  // a host computes single ops without code
    graph = drop_dead(std::move(graph));
    for (const Node& made : graph.nodes())
        if (made.op == &call.op) return nullptr;
    return std::make_shared<const GraphProgram>(std::move(graph));
}

}  // namespace

std::shared_ptr<const runtime::Executable> op_program(runtime::Device& device,
                                                      const runtime::OpCall& call) {
    if (call.op.expand || call.op.loop) return expanded(device, call);
    if (call.op.contraction && !device.is_host())
        return expanded(device, call, Products::generated);
    return control_flow_program(device, call);
}

}  // namespace megjit::jit
