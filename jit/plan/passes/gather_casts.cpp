// Casts of inputs, of which a model under autocast has two for each layer, run one after the other
// where the first of them stood, as kernels: batch makes one step of those whose code is equal, and
// the launches share a grid. A cast is moved where
//   1. the input is float32, and the cast gives halves, by a kernel that can be compiled; it is the
//      first cast of this input, for another one lets go of the result between two uses;
//   2. its result is read after the last of these casts, or is small: no more than before is alive
//      at the last cast then, after which a training step has its peak.
#include <algorithm>
#include <set>

#include "jit/plan/passes/passes.h"
#include "jit/plan/passes/strided_view.h"

namespace megjit::jit {
namespace {

constexpr size_t kSmallBytes = 64 << 10;

bool is_cast_of_input(const Graph& graph, const Node& node) {
    if (node.kind != NodeKind::op || node.op != &ops::cast() || is_kept(node)) return false;
    const Type &from = graph.type(node.inputs[0]), &to = graph.type(node.outputs[0]);
    const bool to_half = to.dtype == runtime::DType::f16 || to.dtype == runtime::DType::bf16;
    return to_half && from.dtype == runtime::DType::f32 && from.layout == to.layout &&
           to.numel() != 0 && graph.producer(node.inputs[0]).kind == NodeKind::input;
}

std::shared_ptr<const codegen::BoundKernel> kernel_of(const Graph& graph, const Node& cast) {
    const std::vector<Type> inputs = graph.types(cast.inputs);
    return std::make_shared<const codegen::BoundKernel>(
        codegen::elementwise_kernel({*cast.op, cast.attrs, inputs}, graph.type(cast.outputs[0])));
}

// Which nodes are moved: none, or two at least.
std::vector<bool> moved_casts(const Graph& graph, const std::set<std::string>* refused) {
    const size_t count = graph.nodes().size();
    std::vector<bool> moved(count);
    std::vector<size_t> last_use(graph.value_count());
    std::set<ValueId> cast_inputs;
    size_t last = 0;
    for (size_t id = 0; id < count; ++id) {
        for (const ValueId input : graph.nodes()[id].inputs) last_use[at(input)] = id;
        const Node& node = graph.nodes()[id];
        if (is_cast_of_input(graph, node) && cast_inputs.insert(node.inputs[0]).second)
            moved[id] = true, last = id;
    }
    for (const ValueId output : graph.outputs) last_use[at(output)] = count;
    for (size_t id = 0; id < count; ++id) {
        if (!moved[id]) continue;
        const ValueId result = graph.nodes()[id].outputs[0];
        moved[id] =
            (last_use[at(result)] > last || graph.type(result).bytes() <= kSmallBytes) &&
            !(refused && refused->contains(print(kernel_of(graph, graph.nodes()[id])->kernel)));
    }
    if (std::ranges::count(moved, true) < 2) moved.assign(count, false);
    return moved;
}

Node as_kernel(const Graph& graph, const Node& cast) {
    Node fused = cast;
    fused.kind = NodeKind::fused;
    fused.kernel = kernel_of(graph, cast);
    fused.op = nullptr;
    fused.attrs.clear();
    fused.ops = {cast.op->name};
    return fused;
}

class CastGatherer {
public:
    CastGatherer(const Graph& graph, std::vector<bool> moved)
        : rewrite_(graph), moved_(std::move(moved)), done_(moved_.size()) {}

    Graph run() {
        const auto first = static_cast<size_t>(std::ranges::find(moved_, true) - moved_.begin());
        for (size_t id = 0; id < moved_.size(); ++id) {
            if (id == first)
                for (size_t cast = first; cast < moved_.size(); ++cast)
                    if (moved_[cast]) place(cast);
            copy(id);
        }
        return rewrite_.finish();
    }

private:
    void copy(size_t id) {
        if (!done_[id]) rewrite_.copy(rewrite_.from.nodes()[id]);
        done_[id] = true;
    }

    void place(size_t id) {
        const Node& cast = rewrite_.from.nodes()[id];
        copy(at(rewrite_.from.value(cast.inputs[0]).producer));
        Node kernel = as_kernel(rewrite_.from, cast);
        kernel.inputs = rewrite_.map(cast.inputs);
        rewrite_.replace(cast.outputs[0],
                         rewrite_.to.add(std::move(kernel), rewrite_.from.types(cast.outputs))[0]);
        done_[id] = true;
    }

    Rewriter rewrite_;
    std::vector<bool> moved_, done_;  // by old node
};

}  // namespace

Graph gather_casts(Graph graph, const PipelineOptions& options) {
    if (graph.device().is_host()) return graph;
    std::vector<bool> moved = moved_casts(graph, options.refused);
    if (std::ranges::find(moved, true) == moved.end()) return graph;
    return CastGatherer(graph, std::move(moved)).run();
}

}  // namespace megjit::jit
