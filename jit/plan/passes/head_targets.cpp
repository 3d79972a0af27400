#include "jit/plan/passes/head_targets.h"

#include <algorithm>

namespace megjit::jit {
namespace {

using runtime::HeadsBox;
using runtime::HeadsExtents;
using runtime::HeadsView;
using runtime::Shape;

bool is_gradient(const Node& node) {
    return node.kind == NodeKind::op && node.op == &ops::attention_grad();
}

}  // namespace

std::optional<HeadsView> heads_of(const StridedView& view, const Type& tensor) {
    constexpr int64_t kAlignment = 16;  // bytes that are loaded at once
    if (view.extents.size() != 4 || (view.strides[3] != 1 && view.extents[3] != 1)) return {};
    HeadsView heads{.offset = view.offset};
    HeadsExtents extents{};
    std::copy(view.extents.begin(), view.extents.end(), extents.begin());
    const auto is_aligned = [&](int64_t elements) {
        return elements * runtime::info(tensor.dtype).bytes % kAlignment == 0;
    };
    bool all_aligned = is_aligned(heads.offset);
    for (size_t axis = 0; axis < 3; ++axis) {
        if (extents[axis] > 1) heads.strides[axis] = view.strides[axis];
        all_aligned = all_aligned && is_aligned(heads.strides[axis]);
    }
    if (!all_aligned && is_aligned(extents[3])) return {};
    if (!runtime::box_of(heads, extents, tensor.numel())) return {};
    return heads;
}

class HeadTargets::Finder {
public:
    explicit Finder(const Graph& graph) : graph_(graph), readers_(graph.value_count()) {
        for (const Node& node : graph.nodes())
            for (ValueId input : node.inputs) readers_[at(input)].push_back(&node);
        is_returned_.resize(graph.value_count());
        for (ValueId output : graph.outputs) is_returned_[at(output)] = true;
    }

    std::optional<HeadTarget> of_result(ValueId result) const {
        const Seen seen = behind_transposes(result);
        if (seen.tensor == result) return {};
        const auto view = heads_in(seen.tensor, seen.view);
        return view ? std::optional<HeadTarget>({seen.tensor, *view}) : std::nullopt;
    }

    // Finds the targets of gradients that fill one tensor, with nothing else in it.
    std::map<ValueId, HeadTarget> packed(const Node& grad) const {
        std::map<ValueId, HeadTarget> targets;
        for (const ValueId result : grad.outputs) {
            const std::vector<const Node*> path = path_of(result);
            const ValueId end = path.empty() ? result : path.back()->outputs[0];
            const Node* const reader = only_reader(end);
            if (!reader || targets.contains(result)) continue;
            const std::map<ValueId, HeadTarget> joined = joined_in(*reader, grad);
            targets.insert(joined.begin(), joined.end());
        }
        return targets;
    }

private:
    struct Part {
        ValueId value = {};
        StridedView view = {};
    };

    // Null where there are more, or the graph returns the value, or it is marked.
    const Node* only_reader(ValueId value) const {
        if (is_returned_[at(value)] || is_kept(graph_.producer(value))) return nullptr;
        const Node* reader = nullptr;
        for (const Node* node : readers_[at(value)]) {
            if (is_gradient(*node) && node->inputs[3] == value &&
                std::ranges::count(node->inputs, value) == 1)
                continue;  // takes attention's result as it lies
            if (reader) return nullptr;
            reader = node;
        }
        return reader;
    }

    // The reshapes and transposes that follow; each is the only reader of the one before it.
    std::vector<const Node*> path_of(ValueId result) const {
        std::vector<const Node*> path;
        const Node* node = only_reader(result);
        while (node && is_moved_view(*node) && node->op != &ops::slice()) {
            path.push_back(node);
            node = only_reader(node->outputs[0]);
        }
        return path;
    }

    // Where a value lies in another one.
    struct Seen {
        ValueId tensor = {};
        StridedView view = {};
    };
    // It lies in its last transpose, if all nodes between read it alone.
    Seen behind_transposes(ValueId value) const {
        const std::vector<const Node*> path = path_of(value);
        for (size_t count = path.size(); count > 0; --count) {
            if (path[count - 1]->op != &ops::transpose()) continue;
            const ValueId tensor = path[count - 1]->outputs[0];
            if (auto view = back_along({path.data(), count}, whole_view(graph_.type(tensor).shape)))
                return {tensor, std::move(*view)};
        }
        return {value, whole_view(graph_.type(value).shape)};
    }
    // Where the value before the path lies, when the one after it lies so.
    std::optional<StridedView> back_along(std::span<const Node* const> path,
                                          StridedView view) const {
        for (size_t i = path.size(); i-- > 0;) {
            std::optional<StridedView> before = move_back(graph_, *path[i], view);
            if (!before) return {};
            view = std::move(*before);
        }
        return view;
    }
    std::optional<HeadsView> heads_in(ValueId tensor, const StridedView& view) const {
        return heads_of(view, graph_.type(tensor));
    }

    // The last of the parts that are set one after the other.
    const Node& last_set(const Node& set) const {
        const Node* const next = only_reader(set.outputs[0]);
        const bool is_base = next && next->op == &ops::slice_set() &&
                             next->inputs[0] == set.outputs[0] && next->inputs[1] != set.outputs[0];
        return is_base ? last_set(*next) : set;
    }
    std::vector<Part> parts_set(const Node& last, const StridedView& whole) const {
        std::vector<Part> parts;
        for (const Node* set = &last; set->kind == NodeKind::op && set->op == &ops::slice_set();
             set = &graph_.producer(set->inputs[0])) {
            if (set != &last && !only_reader(set->outputs[0])) break;
            const Shape& extents = graph_.type(set->inputs[1]).shape;
            parts.push_back({set->inputs[1], region_view(whole, set->attrs, extents)});
        }
        return parts;
    }
    std::vector<Part> parts_joined(const Node& concat, const StridedView& whole) const {
        const auto axis = static_cast<size_t>(
            runtime::normalize_axis(std::get<int64_t>(concat.attrs[0]),
                                    static_cast<int>(whole.extents.size()), concat.op->name));
        std::vector<Part> parts;
        int64_t begin = 0;
        for (const ValueId input : concat.inputs) {
            StridedView view = whole;
            view.offset += begin * whole.strides[axis];
            view.extents[axis] = graph_.type(input).shape[static_cast<int>(axis)];
            begin += view.extents[axis];
            parts.push_back({input, std::move(view)});
        }
        return parts;
    }

    std::map<ValueId, HeadTarget> joined_in(const Node& reader, const Node& grad) const {
        if (reader.kind != NodeKind::op) return {};
        if (reader.op != &ops::concat() && reader.op != &ops::slice_set()) return {};
        const bool is_concat = reader.op == &ops::concat();
        const Node& last = is_concat ? reader : last_set(reader);
        const Seen seen = behind_transposes(last.outputs[0]);
        return joined(seen.tensor,
                      is_concat ? parts_joined(last, seen.view) : parts_set(last, seen.view), grad);
    }
    // Nothing where the parts are not results of that gradient, or do not fill the tensor.
    std::map<ValueId, HeadTarget> joined(ValueId tensor, const std::vector<Part>& parts,
                                         const Node& grad) const {
        std::map<ValueId, HeadTarget> targets;
        std::vector<HeadsBox> boxes;
        int64_t filled = 0;
        for (const Part& part : parts) {
            const auto result = std::ranges::find_if(grad.outputs, [&](ValueId value) {
                const std::vector<const Node*> path = path_of(value);
                return (path.empty() ? value : path.back()->outputs[0]) == part.value;
            });
            if (result == grad.outputs.end() || targets.contains(*result)) return {};
            const std::optional<StridedView> lies = back_along(path_of(*result), part.view);
            const auto view = lies ? heads_in(tensor, *lies) : std::nullopt;
            if (!view) return {};
            const Shape& shape = graph_.type(*result).shape;
            HeadsExtents extents{};
            std::copy(shape.begin(), shape.end(), extents.begin());
            boxes.push_back(*runtime::box_of(*view, extents, graph_.type(tensor).numel()));
            for (size_t i = 0; i + 1 < boxes.size(); ++i)
                if (boxes[i].meets(boxes.back())) return {};
            targets[*result] = {tensor, *view};
            filled += shape.numel();
        }
        if (filled != graph_.type(tensor).numel()) return {};
        return targets;
    }

    const Graph& graph_;
    std::vector<std::vector<const Node*>> readers_;  // by value
    std::vector<bool> is_returned_;
};

HeadTargets::HeadTargets(const Graph& graph) : finder_(std::make_unique<const Finder>(graph)) {}
HeadTargets::~HeadTargets() = default;

std::map<ValueId, HeadTarget> HeadTargets::of(const Node& attention) const {
    std::map<ValueId, HeadTarget> targets;
    const bool is_grad = is_gradient(attention);
    if (is_grad) targets = finder_->packed(attention);
    for (size_t i = 0; i < (is_grad ? attention.outputs.size() : 1); ++i) {
        const ValueId result = attention.outputs[i];
        if (targets.contains(result)) continue;
        if (const auto target = finder_->of_result(result)) targets[result] = *target;
    }
    return targets;
}

}  // namespace megjit::jit
