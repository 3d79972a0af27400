#include "jit/step/subgraph.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "runtime/host/error.h"
#include "runtime/host/mutex.h"
#include "runtime/ops/ordered.h"

namespace megjit::jit {
namespace {

std::string fault_of_held(const Graph& graph) {
    const auto is_input = [](const Node& node) { return node.kind == NodeKind::input; };
    const auto inputs = std::ranges::count_if(graph.nodes(), is_input);
    for (const Node& node : graph.nodes())
        if (is_input(node) && node.slot >= inputs)
            return runtime::cat("slot ", node.slot, " of ", inputs, " inputs");
    return fault_of(graph);
}

std::shared_ptr<const Graph> parsed(const std::string& text) {
    auto graph = std::make_shared<const Graph>(parse_graph(text));
    if (const std::string fault = fault_of_held(*graph); !fault.empty())
        runtime::user_error({.what = "a graph that an op holds: " + fault});
    return graph;
}

}  // namespace

std::shared_ptr<const Graph> subgraph(const std::string& text) {
    static runtime::Mutex mutex{"graphs that ops hold"};
    static std::unordered_map<std::string, std::shared_ptr<const Graph>> known;
    {
        const std::lock_guard lock(mutex);
        if (const auto found = known.find(text); found != known.end()) return found->second;
    }
    std::shared_ptr<const Graph> made = parsed(text);
    const std::lock_guard lock(mutex);
    constexpr size_t kMost = 1024;  // texts hold shapes: a program may vary them for ever
    if (known.size() >= kMost) known.clear();
    return known.emplace(text, std::move(made)).first->second;
}

std::vector<std::string> graph_texts(const Node& node) {
    std::vector<std::string> texts;
    for (size_t i = 0; node.op && i < node.attrs.size(); ++i)
        if (node.op->attrs[i].kind == runtime::AttrKind::graph)
            texts.push_back(std::get<std::string>(node.attrs[i]));
    return texts;
}

std::vector<Type> input_types(const Graph& graph) {
    std::vector<Type> types;
    for (const Node& node : graph.nodes()) {
        if (node.kind != NodeKind::input) continue;
        types.resize(std::max(types.size(), static_cast<size_t>(node.slot) + 1));
        types[static_cast<size_t>(node.slot)] = graph.type(node.outputs[0]);
    }
    return types;
}

bool checks_values(const Node& node) {
    if (!node.op) return false;
    if (node.op->checks_values) return true;
    return std::ranges::any_of(graph_texts(node), [](const std::string& text) {
        return std::ranges::any_of(subgraph(text)->nodes(), checks_values);
    });
}

bool may_fail(const Node& node) {
    return checks_values(node) || (node.op && runtime::is_ordered(*node.op));
}

}  // namespace megjit::jit
