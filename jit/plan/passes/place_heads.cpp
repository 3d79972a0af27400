// The heads of a projection lie as [n, length, heads, width], those of queries, keys and values
// beside each other, and attention is [n, heads, length, width]: so a program transposes and slices
// what it gives to attention, transposes what it gets, and adds the gradients of the slices into
// one tensor. Where a device's attention takes and gives parts of tensors (attention_of_parts),
// these copies go:
//   1. an operand is read where reshapes, transposes and slices took it from. Slices only where
//      attention reads all that there is: a part alone would keep the rest in memory;
//   2. a result is written as its one reader, a transpose, wants it (the gradient of attention,
//      which reads y too, takes it as it lies);
//   3. gradients are written into the one tensor that all of them are set in, or joined to.
// Nothing is moved that a mark is on, or that the graph returns. Values, and their bits, stay: a
// part is as aligned as the whole tensor was, so that the same kernels take it.
#include <algorithm>
#include <map>
#include <set>

#include "jit/plan/passes/head_targets.h"
#include "jit/plan/passes/passes.h"
#include "runtime/ops/attention.h"

namespace megjit::jit {
namespace {

using Ints = std::vector<int64_t>;
using runtime::AttentionParts;
using runtime::HeadsBox;
using runtime::HeadsExtents;
using runtime::HeadsPart;
using runtime::HeadsView;
using runtime::Shape;

bool is_forward(const Node& node) {
    return node.kind == NodeKind::op && node.op == &ops::attention();
}
bool is_grad(const Node& node) {
    return node.kind == NodeKind::op && node.op == &ops::attention_grad();
}

int64_t numel(const StridedView& view) {
    int64_t all = 1;
    for (const int64_t extent : view.extents) all *= extent;
    return all;
}

class Placer {
public:
    explicit Placer(const Graph& graph)
        : from_(graph), rewrite_(graph), targets_(graph), placed_(graph.value_count()) {}

    Graph run() {
        for (const Node& node : from_.nodes()) {
            const bool is_made = !node.outputs.empty() && made_.contains(node.outputs[0]);
            if (is_made || ((is_forward(node) || is_grad(node)) && place(node))) continue;
            rewrite_.copy(node);
        }
        return drop_dead(rewrite_.finish());
    }

private:
    // Where a value of the old graph lies: a part of one of the new graph.
    struct Source {
        ValueId tensor = {};
        StridedView view = {};
        bool saves_copies = false;  // not only reshapes stood between
    };

    Source source_of(ValueId value, bool takes_slices) const {
        const Node& node = from_.producer(value);
        if (placed_[at(value)]) return *placed_[at(value)];
        if (is_moved_view(node) && !is_kept(node) && !made_.contains(value) &&
            (takes_slices || node.op != &ops::slice())) {
            const Source source = source_of(node.inputs[0], takes_slices);
            const Type& type = rewrite_.to.type(source.tensor);
            const auto view = move_view(from_, node, source.view);
            if (view && type.layout == runtime::Layout::row_major)
                return {source.tensor, std::move(*view),
                        source.saves_copies || node.op != &ops::reshape()};
        }
        return {rewrite_.map(value), whole_view(from_.type(value).shape)};
    }

    // The new graph's tensor of each operand that is a part of one, and the place of it there.
    struct Operands {
        std::vector<ValueId> tensors;
        std::vector<HeadsView> views;
        bool save_copies = false;
    };
    Operands operands_of(const Node& node, std::span<const size_t> which) const {
        std::vector<Source> sources;
        for (const size_t i : which) sources.push_back(source_of(node.inputs[i], true));
        Operands operands;
        for (size_t i = 0; i < which.size(); ++i) {
            const ValueId old = node.inputs[which[i]];
            if (!is_read_whole(sources, sources[i])) sources[i] = source_of(old, false);
            const Type& type = from_.type(old);
            auto heads = heads_of(sources[i].view, rewrite_.to.type(sources[i].tensor));
            if (!heads) {
                sources[i].tensor = rewrite_.map(old);
                HeadsExtents extents{};
                std::copy(type.shape.begin(), type.shape.end(), extents.begin());
                heads = runtime::dense_view(extents);
            } else {
                operands.save_copies |= sources[i].saves_copies;
            }
            operands.tensors.push_back(sources[i].tensor);
            operands.views.push_back(*heads);
        }
        return operands;
    }
    // Rule 1.
    bool is_read_whole(std::span<const Source> sources, const Source& source) const {
        int64_t read = 0;
        for (size_t i = 0; i < sources.size(); ++i) {
            const auto is_same = [&](const Source& other) {
                return other.tensor == sources[i].tensor &&
                       other.view.offset == sources[i].view.offset &&
                       other.view.strides == sources[i].view.strides;
            };
            const auto before = sources.first(i);
            if (sources[i].tensor == source.tensor && std::ranges::none_of(before, is_same))
                read += numel(sources[i].view);
        }
        return read >= rewrite_.to.type(source.tensor).numel();
    }

    // False where that saves nothing, or the device cannot do it: the node then stays unchanged.
    bool place(const Node& node) {
        const bool grad = is_grad(node);
        if (is_kept(node)) return false;
        const std::vector<Type> old_types = from_.types(node.inputs);
        const runtime::OpCall whole{*node.op, node.attrs, old_types};
        const runtime::AttentionProblem problem = runtime::attention_problem(whole);
        if (problem.scores().numel() == 0 || problem.width == 0 || problem.value_width == 0)
            return false;
        AttentionParts parts = runtime::attention_parts(whole);
        const std::vector<size_t> which =
            grad ? std::vector<size_t>{0, 1, 2, 3, 5} : std::vector<size_t>{0, 1, 2};
        const std::vector<HeadsPart*> own =
            grad ? std::vector<HeadsPart*>{&parts.q, &parts.k, &parts.v, &parts.y, &parts.dy}
                 : std::vector<HeadsPart*>{&parts.q, &parts.k, &parts.v};
        const Operands operands = operands_of(node, which);
        std::vector<ValueId> inputs = rewrite_.map(node.inputs);
        for (size_t i = 0; i < which.size(); ++i) {
            inputs[which[i]] = operands.tensors[i];
            own[i]->view = operands.views[i];
        }
        const std::vector<HeadsPart*> results =
            grad ? std::vector<HeadsPart*>{&parts.dq, &parts.dk, &parts.dv}
                 : std::vector<HeadsPart*>{&parts.y};
        const std::map<ValueId, HeadTarget> targets = targets_.of(node);
        if (!operands.save_copies && targets.empty()) return false;
        number_results(node, targets, results);
        const OpDef& op = grad ? ops::attention_grad_of_parts() : ops::attention_of_parts();
        Node made{.kind = NodeKind::op,
                  .op = &op,
                  .attrs = runtime::attrs_of_parts(node.attrs, problem, parts, grad),
                  .inputs = std::move(inputs),
                  .where = node.where,
                  .marks = node.marks,
                  .role = node.role};
        const std::vector<Type> types = rewrite_.to.types(made.inputs);
        const runtime::OpCall call{op, made.attrs, types};
        if (!from_.device().computes_whole(call)) return false;
        const std::vector<Type> made_types = runtime::infer(call);
        const std::vector<ValueId> outputs = rewrite_.to.add(std::move(made), made_types);
        for (size_t i = 0; i < results.size(); ++i) give(node, i, *results[i], outputs, targets);
        if (!grad) rewrite_.replace(node.outputs[1], outputs[1]);
        return true;
    }

    // Outputs are numbered as they come, those of one target as one.
    static void number_results(const Node& node, const std::map<ValueId, HeadTarget>& targets,
                               std::span<HeadsPart* const> results) {
        std::map<ValueId, int> numbers;  // by target
        int next = 0;
        for (size_t i = 0; i < results.size(); ++i) {
            const auto target = targets.find(node.outputs[i]);
            if (target == targets.end()) {
                results[i]->tensor = next++;
                continue;
            }
            const auto [number, is_new] = numbers.emplace(target->second.tensor, next);
            next += is_new;
            results[i]->tensor = number->second;
            results[i]->view = target->second.view;
        }
    }

    // Stands for result `i` of the old node, and for what it is a part of.
    void give(const Node& node, size_t i, const HeadsPart& part, std::span<const ValueId> outputs,
              const std::map<ValueId, HeadTarget>& targets) {
        const ValueId old = node.outputs[i], flat = outputs[static_cast<size_t>(part.tensor)];
        const Type& type = from_.type(old);
        const auto target = targets.find(old);
        if (target == targets.end()) {
            rewrite_.replace(old, reshaped(flat, type.shape, node));
            return;
        }
        const ValueId tensor = target->second.tensor;
        if (made_.insert(tensor).second) {
            const Node& stood = from_.producer(tensor);
            rewrite_.replace(tensor, reshaped(flat, from_.type(tensor).shape, stood));
        }
        const auto& strides = part.view.strides;
        StridedView view{part.view.offset, Ints(type.shape.begin(), type.shape.end()),
                         Ints(strides.begin(), strides.end())};
        view.strides.push_back(1);
        placed_[at(old)] = Source{flat, std::move(view), true};
        rewrite_.replace(old, taken(flat, part, node));
    }

    ValueId reshaped(ValueId x, const Shape& shape, const Node& like) {
        const ValueId made =
            rewrite_.to.make(ops::reshape(), {x}, {Ints(shape.begin(), shape.end())}, like);
        if (like.outputs.size() == 1 && !like.names.empty())
            rewrite_.to.set_name(made, like.names[0]);
        return made;
    }
    // A copy of the part, for readers that take no part: dead where there are none.
    ValueId taken(ValueId flat, const HeadsPart& part, const Node& like) {
        Graph& to = rewrite_.to;
        const HeadsBox box = *runtime::box_of(part.view, part.extents, to.type(flat).numel());
        Ints perm(4);
        for (size_t axis = 0; axis < 4; ++axis)
            perm[static_cast<size_t>(box.axes[axis])] = static_cast<int64_t>(axis);
        const ValueId whole =
            to.make(ops::reshape(), {flat}, {Ints(box.shape.begin(), box.shape.end())}, like);
        const ValueId cut = to.make(ops::slice(), {whole},
                                    {Ints(box.begin.begin(), box.begin.end()),
                                     Ints(box.end.begin(), box.end.end()), Ints(4, 1)},
                                    like);
        return to.make(ops::transpose(), {cut}, {perm}, like);
    }

    const Graph& from_;
    Rewriter rewrite_;
    HeadTargets targets_;
    std::vector<std::optional<Source>> placed_;  // by old value: results that are parts
    std::set<ValueId> made_;  // old values that attention makes in place of their producers
};

}  // namespace

Graph place_heads(Graph graph) {
    const auto is_attention = [](const Node& node) { return is_forward(node) || is_grad(node); };
    if (graph.device().is_host() || std::ranges::none_of(graph.nodes(), is_attention)) return graph;
    return Placer(graph).run();
}

}  // namespace megjit::jit
