#include "jit/plan/prepared_graph.h"

#include <algorithm>

#include "codegen/checked_kernel.h"
#include "codegen/kernel_device.h"
#include "jit/step/host_copy.h"
#include "jit/step/subgraph.h"
#include "runtime/eager/prepared_ops.h"
#include "runtime/ops/ordered.h"

namespace megjit::jit {
namespace {

// Stands for a kernel where only its needs are asked for.
const codegen::CompiledKernel& no_code() {
    static const codegen::CompiledKernel code = [] {
        codegen::CompiledKernel made;
        made.fn = [](void* const*, void* const*, const int64_t*, const int64_t*, int64_t, int64_t) {
        };
        return made;
    }();
    return code;
}

std::shared_ptr<const runtime::Executable> executable_of_op(const Graph& graph, const Node& node) {
    if (is_host_copy(node)) return host_copy(*node.op, graph.type(node.outputs[0]).bytes());
    if (node.op->is_view) return nullptr;
    return runtime::PreparedOps::instance().of_program(
        {*node.op, node.attrs, graph.types(node.inputs)}, graph.types(node.outputs),
        graph.device());
}

std::shared_ptr<const runtime::Executable> executable_of_kernel(
    const Graph& graph, const Node& fused, const codegen::CompiledKernel* code) {
    return codegen::kernel_device(graph.device())
        .prepare_kernel(fused.kernel->kernel, launches_of(fused), code);
}

void check_against_interpreter(PreparedNode& entry, const Node& node, const Graph& graph) {
    codegen::CheckedLaunch launch{.kernel = node.kernel->kernel,
                                  .launches = launches_of(node),
                                  .name = runtime::cat("the ", entry.backend, " kernel of"),
                                  .shares_rows = graph.device().shares_rows()};
    for (const std::string& op : node.ops) launch.name += " " + op;
    launch.name += runtime::cat(" (", node.where, ")");
    for (const Type& type : graph.types(node.inputs)) launch.input_bytes.push_back(type.bytes());
    for (const Type& type : graph.types(node.outputs)) launch.output_bytes.push_back(type.bytes());
    entry.executable = codegen::checked(std::move(entry.executable), std::move(launch));
}

class Preparation {
public:
    Preparation(Graph graph, const std::optional<Kernels>& kernels, bool check, bool runs)
        : kernels_(kernels), check_(check), runs_(runs) {
        made_.graph = std::move(graph);
    }

    PreparedGraph run() {
        for (size_t id = 0; id < made_.graph.nodes().size(); ++id) {
            const Node& node = made_.graph.nodes()[id];
            if (node.kind == NodeKind::input || node.kind == NodeKind::constant) continue;
            PreparedNode entry{.node = static_cast<NodeId>(id),
                               .is_ordered = node.op && runtime::is_ordered(*node.op)};
            if (node.kind == NodeKind::fused) prepare_kernel(node, entry);
            else entry.executable = executable_of_op(made_.graph, node);
            if (runs_) list_held_kernels(node, node.where);
            made_.nodes.push_back(std::move(entry));
        }
        return std::move(made_);
    }

private:
    void prepare_kernel(const Node& node, PreparedNode& entry) {
        const codegen::KernelIR& kernel = node.kernel->kernel;
        std::shared_ptr<const codegen::CompiledKernel> compiled;
        if (kernels_) compiled = (*kernels_)[fused_++];
        else if (runs_)
            compiled = codegen::KernelService::instance().get(
                {kernel, made_.graph.device().target(), launches_of(node)[0]});
        const codegen::CompiledKernel* code = kernels_ || runs_ ? compiled.get() : &no_code();
        entry.executable = executable_of_kernel(made_.graph, node, code);
        if (!compiled) return;
        entry.backend = compiled->backend;
        made_.kernels.push_back({.compiled = std::move(compiled),
                                 .ops = node.ops,
                                 .choice = node.choice,
                                 .where = node.where,
                                 .bytes = bytes_moved(made_.graph, node)});
        if (check_) check_against_interpreter(entry, node, made_.graph);
    }

    // Lists kernels of graphs that the op holds; its executable asks for them.
    void list_held_kernels(const Node& node, const std::string& where) {
        for (const std::string& text : graph_texts(node)) {
            const auto graph = subgraph(text);
            for (const Node& held : graph->nodes()) {
                list_held_kernels(held, where);
                if (held.kind != NodeKind::fused) continue;
                const auto request = codegen::KernelService::instance().request(
                    {held.kernel->kernel, made_.graph.device().target(), launches_of(held)[0]});
                if (request->is_done() && request->compiled())
                    made_.kernels.push_back({request->compiled(), held.ops, held.choice, where,
                                             bytes_moved(*graph, held)});
            }
        }
    }

    PreparedGraph made_;
    const std::optional<Kernels>& kernels_;
    size_t fused_ = 0;
    bool check_, runs_;
};

}  // namespace

PreparedGraph prepare(Graph graph, const std::optional<Kernels>& kernels, bool check) {
    return Preparation(std::move(graph), kernels, check, true).run();
}

PreparedGraph prepare_to_plan(Graph graph, const std::optional<Kernels>& kernels) {
    return Preparation(std::move(graph), kernels, false, false).run();
}

std::shared_ptr<const runtime::Executable> executable_to_plan(const Graph& graph,
                                                              const Node& node) {
    return node.kind == NodeKind::fused ? executable_of_kernel(graph, node, &no_code())
                                        : executable_of_op(graph, node);
}

bool waits_for_values(const PreparedGraph& prepared) {
    return std::ranges::any_of(prepared.nodes, [](const PreparedNode& node) {
        return node.executable && node.executable->waits_for_values();
    });
}

const std::string& name_of(const Node& node) {
    return node.kind == NodeKind::fused ? node.ops.back() : node.op->name;
}

size_t bytes_moved(const Graph& graph, const Node& node) {
    size_t bytes = 0;
    for (const Type& type : graph.types(node.inputs)) bytes += type.bytes();
    for (const Type& type : graph.types(node.outputs)) bytes += type.bytes();
    return bytes;
}

}  // namespace megjit::jit
