// The driver's ABI: graphs.
#include "tests/card/emulator/graph.h"
#include "tests/card/emulator/works.h"

using namespace megjit::card;

namespace {

struct KernelParams {  // CUDA_KERNEL_NODE_PARAMS_v2; v1 ends before `kernel`
    void* function;
    unsigned grid[3], block[3], shared_bytes;
    void **parameters, **extra;
    void* kernel;
    Context* context;
};

struct FillParams {  // CUDA_MEMSET_NODE_PARAMS
    Address to;
    size_t pitch;
    unsigned value, element_bytes;
    size_t width, height;
};

Graph& checked(Graph* graph) {
    expect(graph, Kind::graph);
    return *graph;
}
GraphExec& checked(GraphExec* exec) {
    expect(exec, Kind::graph_exec);
    return *exec;
}
Node& checked(Node* node) {
    expect(node, Kind::node);
    return *node;
}

// Writes at most *count of the items; *count becomes how many there are.
template <class T>
void list(const std::vector<T>& items, T* to, size_t* count) {
    if (!to) {
        out(count) = items.size();
        return;
    }
    const size_t room = out(count);
    for (size_t i = 0; i < room; ++i) to[i] = i < items.size() ? items[i] : T{};
    *count = std::min(room, items.size());
}

int kernel_params(Node* node, KernelParams* params, bool v2,
                  const char* caller = __builtin_FUNCTION()) {
    return call(Needs::init, [&] {
        const auto* work = dynamic_cast<const KernelWork*>(checked(node).work.get());
        if (!work) throw Fault(Result::invalid_value, "the node is not a kernel");
        const LaunchRequest& launch = work->launch;
        // Pointers into the node, as the driver gives.
        thread_local std::vector<void*> pointers;
        pointers.clear();
        for (const ptx::Parameter& p : launch.function->kernel->parameters)
            pointers.push_back(const_cast<std::byte*>(launch.parameters.data() + p.offset));
        KernelParams& p = out(params);
        p.function = launch.function;
        p.grid[0] = launch.grid.x, p.grid[1] = launch.grid.y, p.grid[2] = launch.grid.z;
        p.block[0] = launch.block.x, p.block[1] = launch.block.y, p.block[2] = launch.block.z;
        p.shared_bytes = launch.shared_bytes;
        p.parameters = pointers.data();
        p.extra = nullptr;
        if (v2) {
            p.kernel = nullptr;
            p.context = primary_context(launch.function->module->card);
        }
    }, caller);
}

int set_kernel_params(GraphExec* exec, Node* node, const KernelParams* params,
                      const char* caller = __builtin_FUNCTION()) {
    return call(Needs::init, [&] {
        GraphExec& graph = checked(exec);
        const KernelParams& p = out(params);
        expect(p.function, Kind::function);
        LaunchRequest launch{static_cast<Function*>(p.function),
                             {p.grid[0], p.grid[1], p.grid[2]},
                             {p.block[0], p.block[1], p.block[2]},
                             p.shared_bytes,
                             {}};
        launch.parameters = gather_parameters(*launch.function, p.parameters, p.extra);
        check_launch(launch);
        graph.replace(node, std::make_shared<KernelWork>(std::move(launch)));
    }, caller);
}

int instantiate(GraphExec** exec, Graph* graph, const char* caller = __builtin_FUNCTION()) {
    return call(Needs::context, [&] {
        out(exec) = new GraphExec(checked(graph));
        remember(*exec, Kind::graph_exec);
    }, caller);
}

}  // namespace

MEGJIT_CARD_API cuGraphInstantiateWithFlags(GraphExec** exec, Graph* graph, unsigned long long) {
    return instantiate(exec, graph);
}
MEGJIT_CARD_API cuGraphInstantiate_v2(GraphExec** exec, Graph* graph, Node** bad, char*, size_t) {
    if (bad) *bad = nullptr;
    return instantiate(exec, graph);
}
MEGJIT_CARD_API cuGraphLaunch(GraphExec* exec, Stream* stream) {
    return call(Needs::context, [&] {
        Stream& on = stream_of(stream);
        if (on.capture) throw Fault(Result::not_supported, "a graph in a graph");
        ++launches;
        submit(on, checked(exec).launch());
    });
}
MEGJIT_CARD_API cuGraphUpload(GraphExec* exec, Stream* stream) {
    return call(Needs::context, [&] {
        stream_of(stream);
        checked(exec);
    });
}
MEGJIT_CARD_API cuGraphExecDestroy(GraphExec* exec) {
    return call(Needs::init, [&] {
        delete &checked(exec);
        forget(exec);
    });
}
MEGJIT_CARD_API cuGraphDestroy(Graph* graph) {
    return call(Needs::init, [&] {
        delete &checked(graph);
        forget(graph);
    });
}

namespace {
struct UpdateResult {  // CUgraphExecUpdateResultInfo
    int result;
    Node *bad, *bad_from;
};
}  // namespace
MEGJIT_CARD_API cuGraphExecUpdate_v2(GraphExec* exec, Graph* graph, UpdateResult* result) {
    return call(Needs::init, [&] {
        out(result) = {};
        checked(exec).update(checked(graph), result->result, result->bad);
    });
}

MEGJIT_CARD_API cuGraphGetNodes(Graph* graph, Node** nodes, size_t* count) {
    return call(Needs::init, [&] {
        std::vector<Node*> all;
        for (const auto& node : checked(graph).nodes()) all.push_back(node.get());
        list(all, nodes, count);
    });
}
MEGJIT_CARD_API cuGraphGetRootNodes(Graph* graph, Node** nodes, size_t* count) {
    return call(Needs::init, [&] {
        std::vector<Node*> roots;
        for (const auto& node : checked(graph).nodes())
            if (node->after.empty()) roots.push_back(node.get());
        list(roots, nodes, count);
    });
}
static int edges(Graph* graph, Node** from, Node** to, size_t* count,
                 const char* caller = __builtin_FUNCTION()) {
    return call(Needs::init, [&] {
        std::vector<Node*> froms, tos;
        for (const auto& node : checked(graph).nodes())
            for (Node* before : node->after) {
                froms.push_back(before);
                tos.push_back(node.get());
            }
        size_t room = out(count);
        list(froms, from, &room);
        list(tos, to, count);
    }, caller);
}
MEGJIT_CARD_API cuGraphGetEdges(Graph* graph, Node** from, Node** to, size_t* count) {
    return edges(graph, from, to, count);
}
MEGJIT_CARD_API cuGraphGetEdges_v2(Graph* graph, Node** from, Node** to, void*, size_t* count) {
    return edges(graph, from, to, count);
}
MEGJIT_CARD_API cuGraphNodeGetType(Node* node, int* type) {
    return call(Needs::init,
                [&] { out(type) = static_cast<int>(type_of(checked(node).work.get())); });
}
MEGJIT_CARD_API cuGraphNodeGetDependencies(Node* node, Node** after, size_t* count) {
    return call(Needs::init, [&] { list(checked(node).after, after, count); });
}
MEGJIT_CARD_API cuGraphNodeGetDependencies_v2(Node* node, Node** after, void*, size_t* count) {
    return call(Needs::init, [&] { list(checked(node).after, after, count); });
}
MEGJIT_CARD_API cuGraphKernelNodeGetParams(Node* node, KernelParams* params) {
    return kernel_params(node, params, false);
}
MEGJIT_CARD_API cuGraphKernelNodeGetParams_v2(Node* node, KernelParams* params) {
    return kernel_params(node, params, true);
}
MEGJIT_CARD_API cuGraphExecKernelNodeSetParams(GraphExec* exec, Node* node,
                                               const KernelParams* params) {
    return set_kernel_params(exec, node, params);
}
MEGJIT_CARD_API cuGraphExecKernelNodeSetParams_v2(GraphExec* exec, Node* node,
                                                  const KernelParams* params) {
    return set_kernel_params(exec, node, params);
}
MEGJIT_CARD_API cuGraphMemsetNodeGetParams(Node* node, FillParams* params) {
    return call(Needs::init, [&] {
        const auto* work = dynamic_cast<const FillWork*>(checked(node).work.get());
        if (!work) throw Fault(Result::invalid_value, "the node is not a fill");
        out(params) = {work->to,
                       work->rows.pitch,
                       work->value,
                       work->element_bytes,
                       work->rows.width / work->element_bytes,
                       work->rows.height};
    });
}
MEGJIT_CARD_API cuGraphExecMemsetNodeSetParams(GraphExec* exec, Node* node,
                                               const FillParams* params, Context* context) {
    return call(Needs::init, [&] {
        const FillParams& p = out(params);
        checked(exec).replace(node, std::make_shared<FillWork>(
                                        *checked(context)->card, p.to, p.value, p.element_bytes,
                                        Rows{p.pitch, p.width * p.element_bytes, p.height}));
    });
}
