#include <unordered_map>

#include "jit/plan/passes/passes.h"

namespace megjit::jit {
namespace {

struct Key {
    const Node* node = nullptr;  // op and attributes
    std::vector<ValueId> inputs;  // in the new graph
    size_t hash = 0;
    bool operator==(const Key& other) const {
        return hash == other.hash && node->op == other.node->op && inputs == other.inputs &&
               runtime::same(node->attrs, other.node->attrs);
    }
};
struct KeyHash {
    size_t operator()(const Key& key) const { return key.hash; }
};

Key key_of(const Node& node, std::vector<ValueId> inputs) {
    size_t hash = reinterpret_cast<size_t>(node.op);
    for (ValueId input : inputs) hash = (hash ^ at(input)) * 0x9E3779B97F4A7C15ull;
    return {&node, std::move(inputs), runtime::hash_value(node.attrs, hash)};
}

bool same_bytes(const TensorRef& a, const TensorRef& b) {
    return a == b || (a->type() == b->type() && a->type().bytes() <= 4096 &&
                      std::memcmp(a->data(), b->data(), a->type().bytes()) == 0);
}

}  // namespace

Graph dedup(Graph graph) {
    Rewriter rewrite(graph);
    std::unordered_map<Key, const Node*, KeyHash> seen;
    std::unordered_multimap<size_t, ValueId> constants;  // by hash of type and first bytes
    for (const Node& node : graph.nodes()) {
        if (node.kind == NodeKind::constant) {
            const TensorRef& tensor = node.constant;
            size_t hash = runtime::hash_value(tensor->type(), 0);
            for (size_t i = 0; i < std::min<size_t>(tensor->type().bytes(), 64); ++i)
                hash = hash * 31 + tensor->as<uint8_t>()[i];
            auto [first, last] = constants.equal_range(hash);
            for (;
                 first != last && !same_bytes(rewrite.to.producer(first->second).constant, tensor);
                 ++first) {}
            if (first != last) {
                rewrite.replace(node.outputs[0], first->second);
            } else {
                rewrite.copy(node);
                constants.emplace(hash, rewrite.map(node.outputs[0]));
            }
            continue;
        }
        if (node.kind != NodeKind::op) {
            rewrite.copy(node);
            continue;
        }
        auto [found, is_new] = seen.emplace(key_of(node, rewrite.map(node.inputs)), &node);
        if (is_new) {
            rewrite.copy(node);
            continue;
        }
        for (size_t i = 0; i < node.outputs.size(); ++i)
            rewrite.replace(node.outputs[i], rewrite.map(found->second->outputs[i]));
    }
    return drop_dead(rewrite.finish());
}

}  // namespace megjit::jit
