// Makes a kernel of a group of nodes: each node's expression goes into one scalar program, each
// operand becomes an access by strides over the group's space.
#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "codegen/op_kernel.h"
#include "codegen/strides.h"
#include "jit/plan/passes/fusion_group.h"
#include "jit/plan/passes/strided_view.h"
#include "runtime/core/number_to_integer.h"
#include "runtime/host/error.h"

namespace megjit::jit {

using codegen::broadcast_strides;
using codegen::dense_strides;
using codegen::KernelSpec;
using codegen::memory_order;
using runtime::Access;
using runtime::Layout;
using runtime::ScalarProgram;
using runtime::ScalarType;
using runtime::Shape;

namespace {

constexpr int64_t kManyElements = 16384;

// The value is known now, and one for all elements.
std::optional<double> number_of(const Node& node) {
    if (node.kind == NodeKind::constant && node.constant->type().numel() == 1 &&
        node.constant->dtype() != runtime::DType::c64 &&
        runtime::is_exact_as_double(*node.constant))
        return runtime::item_as_double(*node.constant);
    if (node.op == &ops::full()) return std::get<double>(node.attrs[1]);
    return {};
}

// The value from which a kernel reads `id`, past transposes and broadcasts whose work its strides
// can do, and its strides by axis of `space` (0 where it does not move).
struct Source {
    ValueId value;
    std::vector<int64_t> strides;
};

// Reads `id` (columns of longer rows) in the tensor of which it is the better part, from the first
// element on. Nothing where it is no such part, or where the copy is made in any case.
std::optional<Source> part_source_of(const Grouping& grouping, ValueId id, const Shape& space) {
    if (grouping.stored[at(id)]) return {};
    const Graph& graph = grouping.graph;
    std::vector<const Node*> views;
    ValueId base = id;
    bool is_part = false;
    for (;;) {
        const Node& node = graph.producer(base);
        const bool cuts = node.op == &ops::slice();
        if ((!cuts && node.op != &ops::reshape()) || grouping.group_of_value(base) != kNoGroup)
            break;
        is_part |= cuts;
        views.push_back(&node);
        base = node.inputs[0];
    }
    const Type &whole = graph.type(base), &part = graph.type(id);
    if (!is_part || 2 * part.numel() < whole.numel() || whole.layout != Layout::row_major ||
        part.layout != Layout::row_major)
        return {};
    std::optional<StridedView> view = whole_view(whole.shape);
    for (size_t i = views.size(); view && i-- > 0;) view = move_view(graph, *views[i], *view);
    if (!view || view->offset != 0) return {};
    return Source{base, broadcast_strides(part.shape, view->strides, space)};
}

Source source_of(const Grouping& grouping, ValueId id, const Shape& space) {
    const Graph& graph = grouping.graph;
    if (!graph.device().is_host())
        if (auto part = part_source_of(grouping, id, space)) return *part;
    const Source direct{
        id, broadcast_strides(graph.type(id).shape, dense_strides(graph.type(id)), space)};
    if (!grouping.options.fuse_dimshuffle) return direct;
    const Node& node = graph.producer(id);
    const bool permutes = node.op && node.op->access == Access::permuted;
    if (!permutes && !(node.op && node.op->access == Access::broadcast)) return direct;
    // The copy is made in any case: to read it lets go of its source.
    if (permutes && grouping.stored[at(id)]) return direct;
    // A broadcast may be part of a kernel, which gives its source to nobody else then.
    if (const int own = grouping.group_of_value(id);
        own != kNoGroup && own == grouping.group_of_value(node.inputs[0]))
        return direct;
    const Type &source = graph.type(node.inputs[0]), &result = graph.type(id);
    if (source.layout != Layout::row_major || result.layout != Layout::row_major) return direct;
    const std::vector<int64_t> from = dense_strides(source);
    std::vector<int64_t> own(static_cast<size_t>(result.rank()));
    if (permutes) {
        const auto& perm = std::get<std::vector<int64_t>>(node.attrs[0]);
        for (size_t axis = 0; axis < own.size(); ++axis)
            own[axis] = from[static_cast<size_t>(perm[axis])];
    } else {
        own = broadcast_strides(source.shape, from, result.shape);
    }
    const Source folded{node.inputs[0], broadcast_strides(result.shape, own, space)};
    // A walk across the memory's order costs more than the copy that it saves, unless the tensor is
    // small.
    for (int axis = space.rank() - 1; axis >= 0; --axis) {
        if (space[axis] == 1) continue;
        return folded.strides[static_cast<size_t>(axis)] <= 1 || result.bytes() <= 4096 ? folded
                                                                                        : direct;
    }
    return folded;
}

void copy_nodes(const Graph& graph, const Group& group, Rewriter& rewrite) {
    for (NodeId id : group.nodes) rewrite.copy(graph.node(id));
}

class Emitter {
public:
    Emitter(const Grouping& grouping, int g, Rewriter& rewrite)
        : grouping_(grouping),
          graph_(grouping.graph),
          group_(grouping.group(g)),
          id_(g),
          rewrite_(rewrite) {
        for (int axis : memory_order(group_.layout, group_.shape.rank()))
            if (!(group_.reduced >> axis & 1u)) axes_.push_back(axis);
        kept_ = axes_.size();
        if (group_.contracts && group_.lanes == codegen::Lanes::last) put_rows_last();
        for (int axis = 0; axis < group_.shape.rank(); ++axis)
            if (group_.reduced >> axis & 1u) axes_.push_back(axis);
    }

    void run() {
        for (int axis : axes_) spec_.extents.push_back(group_.shape[axis]);
        spec_.reduced = static_cast<int>(axes_.size() - kept_);
        collect_operands();
        const Node& first = group_.contracts ? product() : graph_.node(group_.nodes[0]);
        Node fused{.kind = NodeKind::fused, .where = first.where, .role = first.role};
        std::vector<ValueId> escaping;
        for (NodeId id : group_.nodes) {
            const Node& node = graph_.node(id);
            fused.ops.push_back(node.op->name);
            fused.marks.stays |= node.marks.stays;
            const int result = add(id, node);
            values_[at(node.outputs[0])] = result;
            if (!grouping_.escapes[at(node.outputs[0])]) continue;
            spec_.results.push_back(result);
            spec_.outputs.push_back(output_access(node.outputs[0], grouping_.form_of[at(id)]));
            escaping.push_back(node.outputs[0]);
            // An op fused after the product of a gradient is still called by it.
            const std::string name = graph_.name(node.outputs[0]);
            fused.names.push_back(name.empty() ? graph_.name(first.outputs[0]) : name);
        }
        if (group_.contracts)
            fused.choice = group_.makes_weights ? "makes its weights as it reads them"
                                                : grouping_.choices[at(product_id())].why;
        fused.inputs = rewrite_.map(sources_);
        spec_.packs = group_.contracts && group_.lanes == codegen::Lanes::panels;
        fused.kernel = std::make_shared<codegen::BoundKernel>(codegen::bind(std::move(spec_)));
        const std::set<std::string>* refused = grouping_.options.refused;
        const codegen::KernelIR& kernel = fused.kernel->kernel;
        if ((group_.layout == Layout::row_major && refused && refused->contains(print(kernel))) ||
            (group_.contracts && kernel.lanes != group_.lanes))
            return copy_nodes(graph_, group_, rewrite_);
        const std::vector<ValueId> outputs =
            rewrite_.to.add(std::move(fused), graph_.types(escaping));
        for (size_t i = 0; i < escaping.size(); ++i) rewrite_.replace(escaping[i], outputs[i]);
    }

private:
    bool is_inside(ValueId value) const { return grouping_.group_of_value(value) == id_; }

    // The axes along which a contraction's weights do not move go last, so that all rows meet an
    // element while it is in the cache.
    void put_rows_last() {
        const std::vector<int64_t> strides = contraction_of(graph_, product()).strides[1];
        const auto moves = [&](int axis) { return strides[static_cast<size_t>(axis)] != 0; };
        std::ranges::stable_partition(axes_, moves);
    }
    NodeId product_id() const {
        const auto is_one = [&](NodeId id) { return graph_.node(id).op->contraction != nullptr; };
        return *std::ranges::find_if(group_.nodes, is_one);
    }
    const Node& product() const { return graph_.node(product_id()); }

    // How an operand lies in the kernel's space: a row_drop one is aligned with the kept axes, a
    // factor of the contraction as that says, every other one with the whole space.
    enum class Use : uint8_t { whole, rows, first_factor, weights };
    Use use_by(NodeId reader) const {
        const Form form = grouping_.form_of[at(reader)];
        if (form == Form::weights) return Use::weights;
        const bool is_row =
            form == Form::row_drop && part_of(graph_.node(reader)) != Part::reduction;
        return is_row ? Use::rows : Use::whole;
    }

    // Every operand gets its place before the first reduction, whose value comes after the
    // operands'; coordinates come after what lies in memory.
    void collect_operands() {
        for (const bool coordinates : {false, true})
            for (NodeId id : group_.nodes) collect_operands_of(id, coordinates);
    }

    void collect_operands_of(NodeId id, bool coordinates) {
        const Node& node = graph_.node(id);
        if (node.op->contraction || grouping_.form_of[at(id)] == Form::weights) {
            if (!coordinates) collect_factors(node);
            return;
        }
        const Use use = use_by(id);
        const bool dropped = use == Use::rows;
        for (ValueId value : node.inputs) {
            const auto key = std::pair(value, use);
            const Node& producer = graph_.producer(value);
            if (is_inside(value) || inputs_.contains(key) || number_of(producer) ||
                (producer.op == &ops::coordinates()) != coordinates)
                continue;
            inputs_[key] = static_cast<int>(spec_.inputs.size());
            const Shape space = dropped ? group_.row_shape(Form::row_drop) : group_.shape;
            if (coordinates) {
                std::vector<int64_t> own(static_cast<size_t>(graph_.type(value).rank()), 0);
                own[static_cast<size_t>(std::get<int64_t>(producer.attrs[1]))] = 1;
                spec_.inputs.push_back(
                    {.dtype = runtime::DType::i32,
                     .strides =
                         in_space(broadcast_strides(graph_.type(value).shape, own, space), dropped),
                     .is_offset = true});
            } else if (const auto mapped = grouping_.rows_of(value); mapped && !group_.contracts) {
                add_mapped_rows(*mapped, graph_.type(value), space, dropped);
            } else {
                const Source source = source_of(grouping_, value, space);
                spec_.inputs.push_back({.dtype = graph_.type(value).dtype,
                                        .strides = in_space(source.strides, dropped),
                                        .is_scalar = graph_.type(value).rank() == 0});
                sources_.push_back(source.value);
            }
        }
    }

    // The rows, and after them the places that say which of them is read.
    void add_mapped_rows(const MappedRows& mapped, const Type& type, const Shape& space,
                         bool dropped) {
        std::vector<int64_t> within = dense_strides(type), along(within.size(), 0);
        const int64_t row = std::exchange(within[0], 0);
        along[0] = 1;
        const auto strides = [&](const std::vector<int64_t>& own) {
            return in_space(broadcast_strides(type.shape, own, space), dropped);
        };
        spec_.inputs.push_back({.dtype = type.dtype,
                                .strides = strides(within),
                                .by = static_cast<int>(spec_.inputs.size()) + 1,
                                .gather_stride = row});
        spec_.inputs.push_back({.dtype = runtime::DType::i32, .strides = strides(along)});
        sources_.insert(sources_.end(), {mapped.rows, mapped.places});
    }

    // A contraction, with the ops that make its weights, is the first of its group.
    void collect_factors(const Node& node) {
        const runtime::Contraction contraction = contraction_of(graph_, product());
        for (size_t i = 0; i < node.inputs.size(); ++i) {
            const ValueId value = node.inputs[i];
            const bool is_first = node.op->contraction && i == 0;
            const auto key = std::pair(value, is_first ? Use::first_factor : Use::weights);
            if (is_inside(value) || inputs_.contains(key) || number_of(graph_.producer(value)))
                continue;
            inputs_[key] = static_cast<int>(spec_.inputs.size());
            const std::vector<int64_t> strides =
                node.op->contraction ? contraction.strides[i]
                                     : strides_in_weights(value, contraction.strides[1]);
            spec_.inputs.push_back(
                {.dtype = graph_.type(value).dtype, .strides = in_space(strides, false)});
            sources_.push_back(value);
        }
    }
    // Returns the strides of a value that is broadcast to the weights, by axis of the space: an
    // axis of the weights is the one that walks them by the same stride (`of_weights`, by axis of
    // the space).
    std::vector<int64_t> strides_in_weights(ValueId value,
                                            const std::vector<int64_t>& of_weights) const {
        const Type &type = graph_.type(value), &weights = graph_.type(product().inputs[1]);
        const std::vector<int64_t> dense = dense_strides(weights),
                                   own = broadcast_strides(type.shape, dense_strides(type),
                                                           weights.shape);
        std::vector<int64_t> strides(of_weights.size(), 0);
        for (size_t i = 0; i < strides.size(); ++i)
            for (int axis = 0; axis < weights.rank(); ++axis)
                if (weights.shape[axis] > 1 && dense[static_cast<size_t>(axis)] == of_weights[i])
                    strides[i] = own[static_cast<size_t>(axis)];
        return strides;
    }
    int dot_of_factors(const Node& node) {
        const runtime::Expr a(&spec_.program, value_for(node.inputs[0], Use::first_factor)),
            b(&spec_.program, value_for(node.inputs[1], Use::weights));
        return codegen::add_reduction(spec_, runtime::Reduce::dot, (a * b).id(),
                                      graph_.type(node.outputs[0]).dtype);
    }

    // Turns strides by axis of a shape (with or without the reduced axes) into strides by axis of
    // the kernel's space.
    std::vector<int64_t> in_space(std::span<const int64_t> strides, bool dropped) const {
        std::vector<int64_t> result(axes_.size(), 0);
        for (size_t i = 0; i < (dropped ? kept_ : axes_.size()); ++i)
            result[i] = strides[static_cast<size_t>(dropped ? kept_index(axes_[i]) : axes_[i])];
        return result;
    }

    // Among the axes that are kept.
    int kept_index(int axis) const {
        return axis - std::popcount(group_.reduced & ((1u << axis) - 1));
    }

    KernelSpec::Access output_access(ValueId value, Form form) const {
        const Type& type = graph_.type(value);
        KernelSpec::Access access{.dtype = type.dtype};
        if (form == Form::element) {
            access.strides = in_space(dense_strides(type), false);
        } else {
            access.strides = in_space(group_.row_shape(Form::row_drop).row_major_strides(), true);
        }
        return access;
    }

    int value_for(ValueId value, Use use) {
        if (is_inside(value)) return values_.at(at(value));
        if (const auto number = number_of(graph_.producer(value)))
            return codegen::constant_in(spec_.program, graph_.type(value).dtype, *number);
        return spec_.program.input(inputs_.at({value, use}),
                                   runtime::compute_type(graph_.type(value).dtype));
    }

    int add(NodeId id, const Node& node) {
        if (node.op->contraction) return dot_of_factors(node);
        std::vector<int> args;
        for (ValueId input : node.inputs) args.push_back(value_for(input, use_by(id)));
        switch (part_of(node)) {
            case Part::elementwise: {
                ScalarProgram one;
                const std::vector<Type> inputs = graph_.types(node.inputs);
                const int result = runtime::build_expr({*node.op, node.attrs, inputs},
                                                       graph_.type(node.outputs[0]).dtype, one);
                return spec_.program.inline_program(one, result, args);
            }
            case Part::reduction:
                return codegen::add_reduction(spec_, *node.op->reduction, args[0],
                                              graph_.type(node.outputs[0]).dtype);
            default: return args[0];  // a broadcast or a reshape: the access does it
        }
    }

    const Grouping& grouping_;
    const Graph& graph_;
    const Group& group_;
    int id_;
    Rewriter& rewrite_;
    std::vector<int> axes_;  // axes of the group's shape, in the kernel's order
    size_t kept_ = 0;
    KernelSpec spec_;
    std::vector<ValueId> sources_;  // by input
    std::map<std::pair<ValueId, Use>, int> inputs_;  // operand -> input
    std::map<size_t, int> values_;  // value -> id in the program
};

void emit_group(const Grouping& grouping, int g, Rewriter& rewrite) {
    const Group& group = grouping.group(g);
    int parts = 0;
    for (NodeId id : group.nodes) {
        const Part part = part_of(grouping.graph.node(id));
        parts += part == Part::elementwise || part == Part::reduction ||
                 (part == Part::broadcast && group.nodes.size() > 1);
    }
    // A long expression is computed faster by code of its own than step by step, if there is enough
    // of it; and only code of its own reads rows by a map.
    const bool is_worth_alone = (group.heavy > 0 && group.shape.numel() >= kManyElements) ||
                                std::ranges::any_of(group.operands, [&](ValueId operand) {
        return grouping.rows_of(operand).has_value();
    }) || grouping.generates_alone(grouping.graph.node(group.nodes[0]));
    // The eager kernels know row-major only.
    if (parts < 2 && !is_worth_alone && group.layout == Layout::row_major)
        return copy_nodes(grouping.graph, group, rewrite);
    Emitter(grouping, g, rewrite).run();
}

// A group, or a node without one, is emitted at once.
struct Item {
    int group = kNoGroup;
    NodeId node = {};
};

// Lists items in recorded order; a group stands at its position.
std::vector<Item> items_of(const Grouping& grouping) {
    std::vector<Item> items;
    for (size_t id = 0; id < grouping.graph.nodes().size(); ++id) {
        const int g = grouping.group_of[id];
        if (g == kNoGroup || grouping.group(g).position == static_cast<NodeId>(id))
            items.push_back({g, static_cast<NodeId>(id)});
    }
    return items;
}

}  // namespace

// Recorded order, but a group waits for its operands and nodes for their groups: depth first from
// each item. Keeps the recorded order where it can, which is what keeps the memory peak low.
Graph emit(const Grouping& grouping) {
    const Graph& graph = grouping.graph;
    Rewriter rewrite(graph);
    std::vector<bool> done_group(grouping.groups.size()), done_node(graph.nodes().size());
    const auto done = [&](const Item& item) {
        return item.group == kNoGroup ? done_node[at(item.node)]
                                      : done_group[static_cast<size_t>(item.group)];
    };
    // An explicit stack: graphs of thousands of nodes must not overflow the program's.
    struct Frame {
        Item item;
        bool expanded = false;
    };
    std::vector<Frame> stack;
    for (const Item& item : items_of(grouping)) {
        stack.push_back({item});
        while (!stack.empty()) {
            const auto [top, expanded] = stack.back();
            if (done(top)) {
                stack.pop_back();
            } else if (!expanded) {
                stack.back().expanded = true;
                const auto& inputs = top.group == kNoGroup ? graph.node(top.node).inputs
                                                           : grouping.group(top.group).operands;
                for (auto input = inputs.rbegin(); input != inputs.rend(); ++input) {
                    const Item producer{grouping.group_of_value(*input),
                                        graph.value(*input).producer};
                    if (!done(producer)) stack.push_back({producer});
                }
            } else {
                stack.pop_back();
                if (top.group == kNoGroup) {
                    done_node[at(top.node)] = true;
                    Node node = graph.node(top.node);
                    if (node.choice.empty()) node.choice = grouping.choices[at(top.node)].why;
                    rewrite.copy(node);
                } else {
                    done_group[static_cast<size_t>(top.group)] = true;
                    emit_group(grouping, top.group, rewrite);
                }
            }
        }
    }
    return drop_dead(rewrite.finish());  // transposes and constants that kernels took in
}

}  // namespace megjit::jit
