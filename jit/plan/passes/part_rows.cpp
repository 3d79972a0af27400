// Logits of a language model (rows times words) are larger than all that stands around them, and
// each of their rows goes its own way: from the product that makes it through the loss and its
// gradient to the two products that read that gradient. So a scan computes them for some rows at a
// time, and they never lie in memory as a whole. No product is computed twice: the weights'
// gradient is a carry that each trip adds its rows to. How many trips there are depends on shapes
// alone, not on a limit, so that every plan gives the same bits.
//
// The *head* of a product is taken where
//   1. its result, the wide value, has kLeast bytes, and kWider times as many elements as the rows
//      that it is made of;
//   2. it holds every node that reads a value of about that size that it makes, makes one that it
//      reads, or stands between two of its nodes;
//   3. each of them works row by row (`RowRule`), or sums over rows;
//   4. none of the wide values is a result, or read elsewhere;
//   5. nothing that it reads depends on what it gives, and no mark of the user's asks to keep or to
//      repeat a part of it.
#include <algorithm>
#include <map>

#include "jit/plan/costs.h"
#include "jit/plan/ops/control_flow_ops.h"
#include "jit/plan/passes/passes.h"
#include "jit/plan/passes/row_rules.h"

namespace megjit::jit {
namespace {

using runtime::DType;
using runtime::Shape;

constexpr size_t kLeast = size_t{64} << 20;  // bytes
constexpr int64_t kWider = 8;
constexpr size_t kPart = size_t{32} << 20;  // bytes of a part that more trips make no smaller

class Head {
public:
    Head(const Graph& graph, NodeId product)
        : graph_(graph), product_(product), rules_(graph.nodes().size()) {
        const Type& wide = graph.type(graph.node(product).outputs[0]);
        wide_ = wide.numel() / 2 + 1;
        rows_ = wide.numel() / wide.shape[wide.shape.rank() - 1];
    }

    // Returns the graph with the head as a scan; nothing where it cannot be one.
    std::optional<Graph> as_scan() {
        if (!gather() || !is_apart()) return {};
        choose_parts();
        if (parts_ < 2) return {};
        return write();
    }

private:
    const Type& type(ValueId value) const { return graph_.type(value); }
    NodeId maker(ValueId value) const { return graph_.value(value).producer; }
    bool is_wide(ValueId value) const { return type(value).numel() >= wide_; }
    bool holds(NodeId id) const { return rules_[at(id)].has_value(); }
    bool take(NodeId id) {
        const Node& node = graph_.node(id);
        if (node.marks == Marks{}) rules_[at(id)] = rule_of(graph_, node, rows_);
        return holds(id);
    }

    // Conditions 2 and 3.
    bool gather() {
        if (!take(product_) || rules_[at(product_)]->sums) return false;
        for (size_t before = 0, held = 1; before != held;) {
            before = held;
            const std::vector<bool> behind = nodes_behind(), ahead = nodes_ahead();
            for (size_t id = 0; id < rules_.size(); ++id) {
                const bool belongs = (behind[id] && ahead[id]) || reads_wide(graph_.nodes()[id]);
                if (!rules_[id] && belongs && !take(static_cast<NodeId>(id))) return false;
                if (rules_[id]) take_makers(graph_.nodes()[id], *rules_[id]);
            }
            held = static_cast<size_t>(std::ranges::count_if(
                rules_, [](const std::optional<RowRule>& rule) { return rule.has_value(); }));
        }
        return true;
    }

    // By node: it depends on the head.
    std::vector<bool> nodes_behind() const {
        std::vector<bool> behind(rules_.size());
        for (size_t id = 0; id < rules_.size(); ++id)
            behind[id] = std::ranges::any_of(graph_.nodes()[id].inputs, [&](ValueId input) {
                return holds(maker(input)) || behind[at(maker(input))];
            });
        return behind;
    }

    // By node: some node of the head depends on it.
    std::vector<bool> nodes_ahead() const {
        std::vector<bool> ahead(rules_.size());
        for (size_t id = rules_.size(); id-- > 0;)
            if (ahead[id] || rules_[id])
                for (ValueId input : graph_.nodes()[id].inputs) ahead[at(maker(input))] = true;
        return ahead;
    }

    bool reads_wide(const Node& node) const {
        return std::ranges::any_of(node.inputs, [&](ValueId input) {
            return is_wide(input) && holds(maker(input)) && !rules_[at(maker(input))]->sums;
        });
    }

    // A wide operand that no product makes is made row by row, where that can be.
    void take_makers(const Node& node, const RowRule& rule) {
        for (size_t i = 0; i < node.inputs.size(); ++i) {
            const NodeId id = maker(node.inputs[i]);
            const OpDef* const op = graph_.node(id).op;
            if (rule.by_rows[i] && is_wide(node.inputs[i]) && !holds(id) && op && !multiplies(*op))
                take(id);
        }
    }

    // Conditions 4 and 5; finds what the head takes and gives.
    bool is_apart() {
        const size_t count = graph_.nodes().size();
        depends_.resize(count);
        std::vector<bool> is_given(graph_.value_count());
        for (ValueId output : graph_.outputs) is_given[at(output)] = true;
        for (size_t id = 0; id < count; ++id) {
            const Node& node = graph_.nodes()[id];
            if (holds(static_cast<NodeId>(id))) {
                for (size_t i = 0; i < node.inputs.size(); ++i)
                    if (!read(node.inputs[i], rules_[id]->by_rows[i])) return false;
                continue;
            }
            for (ValueId input : node.inputs) {
                if (holds(maker(input))) is_given[at(input)] = depends_[id] = true;
                else if (depends_[at(maker(input))]) depends_[id] = true;
            }
        }
        for (size_t id = 0; id < count; ++id)
            if (holds(static_cast<NodeId>(id)))
                for (ValueId output : graph_.nodes()[id].outputs)
                    if (is_given[at(output)]) {
                        if (rules_[id]->sums) sums_.push_back(output);
                        else if (is_wide(output)) return false;
                        else stacked_.push_back(output);
                    }
        return true;
    }

    // Notes what a node of the head takes; false where the head cannot have it.
    bool read(ValueId value, bool by_rows) {
        const NodeId id = maker(value);
        if (holds(id)) return by_rows && !rules_[at(id)]->sums;
        if (depends_[at(id)]) return false;
        const bool is_number =
            graph_.node(id).kind == NodeKind::constant && type(value).numel() == 1;
        std::vector<ValueId>& list = is_number ? numbers_ : by_rows ? slices_ : captured_;
        if (std::ranges::find(list, value) == list.end()) list.push_back(value);
        return true;
    }

    // The fewest parts that are small, among the numbers that divide the rows of every value.
    void choose_parts() {
        size_t widest = 0;  // bytes: logits may be halves, and their loss float32
        for (size_t id = 0; id < rules_.size(); ++id)
            if (rules_[id] && !rules_[id]->sums)
                widest = std::max(widest, type(graph_.nodes()[id].outputs[0]).bytes());
        const int64_t most = most_parts();
        for (int64_t parts = 2; parts <= most; ++parts) {
            if (rows_ % parts || !can_cut(parts)) continue;
            parts_ = parts;
            if (widest / static_cast<size_t>(parts) <= kPart) break;
        }
    }

    bool can_cut(int64_t parts) const {
        const auto is_cut = [&](ValueId value) {
            return part_of(type(value).shape, rows_, parts).has_value();
        };
        for (size_t id = 0; id < rules_.size(); ++id)
            if (rules_[id] && !rules_[id]->sums && !is_cut(graph_.nodes()[id].outputs[0]))
                return false;
        return std::ranges::all_of(slices_, is_cut);
    }

    Shape part(ValueId value) const { return *part_of(type(value).shape, rows_, parts_); }

    // A trip reads and writes the weights and their gradient: so few trips that the three products
    // take sixteen times as long.
    int64_t most_parts() const {
        constexpr double kProducts = 3, kPasses = 4, kLonger = 16;
        const Costs costs(graph_.device());
        const Node& product = graph_.node(product_);
        const std::vector<Type> inputs = graph_.types(product.inputs);
        const double products =
            kProducts * costs.arithmetic(runtime::cost_of({*product.op, product.attrs, inputs},
                                                          graph_.types(product.outputs)),
                                         inputs[0].dtype);
        const double trip = kPasses * costs.traffic(4.0 * static_cast<double>(inputs[1].numel()));
        return static_cast<int64_t>(products / (kLonger * trip));
    }

    Graph write() {
        Rewriter rewrite(graph_);
        size_t ready = at(product_);  // all that the head takes is made up to there
        const auto wait_for = [&](ValueId value) { ready = std::max(ready, at(maker(value))); };
        std::ranges::for_each(slices_, wait_for);
        std::ranges::for_each(captured_, wait_for);
        std::vector<const Node*> later;
        for (size_t id = 0; id < rules_.size(); ++id) {
            const Node& node = graph_.nodes()[id];
            if (!rules_[id]) {
                if (id < ready && depends_[id]) later.push_back(&node);
                else rewrite.copy(node);
            }
            if (id != ready) continue;
            add_scan(rewrite);
            for (const Node* each : later) rewrite.copy(*each);
        }
        return rewrite.finish();
    }

    static std::vector<int64_t> extents(const Shape& shape) { return {shape.begin(), shape.end()}; }
    ValueId reshaped(Graph& graph, ValueId value, const Shape& shape) const {
        return graph.make(ops::reshape(), {value}, {extents(shape)}, graph_.node(product_));
    }

    // Halves are summed over trips in float32.
    static Type sum_type(const Type& type) {
        Type sum{.dtype = type.dtype, .shape = type.shape};
        if (sum.dtype == DType::f16 || sum.dtype == DType::bf16) sum.dtype = DType::f32;
        return sum;
    }
    static ValueId as_type(Graph& graph, const Node& like, ValueId value, DType dtype) {
        if (graph.type(value).dtype == dtype) return value;
        return graph.make(ops::cast(), {value}, {std::string(runtime::info(dtype).name)}, like);
    }

    void add_scan(Rewriter& rewrite) {
        Graph& to = rewrite.to;
        const Node& product = graph_.node(product_);
        std::vector<ValueId> operands;
        for (ValueId sum : sums_) {
            const Type type = sum_type(this->type(sum));
            Attrs zeros{extents(type.shape), 0.0, std::string(runtime::info(type.dtype).name)};
            operands.push_back(to.make(ops::full(), {}, std::move(zeros), product));
        }
        for (ValueId slice : slices_)
            operands.push_back(reshaped(to, rewrite.map(slice),
                                        stacked({type(slice).dtype, part(slice)}, parts_).shape));
        for (ValueId value : captured_) operands.push_back(rewrite.map(value));
        const std::vector<ValueId> given =
            to.add_op(ops::scan(), std::move(operands),
                      {print(body()), static_cast<int64_t>(sums_.size()),
                       static_cast<int64_t>(slices_.size()), parts_, int64_t{0}, int64_t{0}},
                      product);
        for (size_t i = 0; i < given.size(); ++i) take_over(rewrite, given[i], i);
    }

    // Returns the value of the old graph that is result i of the scan.
    void take_over(Rewriter& rewrite, ValueId result, size_t i) {
        const bool is_sum = i < sums_.size();
        const ValueId old = is_sum ? sums_[i] : stacked_[i - sums_.size()];
        const Node& was = graph_.producer(old);
        const ValueId made = is_sum ? as_type(rewrite.to, was, result, type(old).dtype)
                                    : reshaped(rewrite.to, result, type(old).shape);
        rewrite.replace(old, made);
    }

    // What a trip computes.
    Graph body() const {
        Graph made;
        std::map<ValueId, ValueId> parts, wholes;  // by value of the graph
        int slot = 0;
        std::vector<ValueId> carries;
        for (ValueId sum : sums_) carries.push_back(made.add_input(sum_type(type(sum)), slot++));
        for (ValueId slice : slices_)
            parts[slice] = made.add_input({type(slice).dtype, part(slice)}, slot++);
        for (ValueId value : captured_)
            wholes[value] = made.add_input({type(value).dtype, type(value).shape}, slot++);
        for (ValueId number : numbers_)
            wholes[number] = parts[number] = made.add_constant(graph_.producer(number).constant);
        std::map<ValueId, ValueId> totals;
        for (size_t id = 0; id < rules_.size(); ++id) {
            if (!rules_[id]) continue;
            const Node& node = graph_.nodes()[id];
            std::vector<ValueId> inputs;
            for (size_t i = 0; i < node.inputs.size(); ++i)
                inputs.push_back((rules_[id]->by_rows[i] ? parts : wholes).at(node.inputs[i]));
            const ValueId old = node.outputs[0];
            const ValueId result =
                made.make(*node.op, std::move(inputs), attrs_of_part(node, rules_[id]->sums), node);
            if (rules_[id]->sums) totals[old] = result;
            else parts[old] = result;
        }
        for (size_t i = 0; i < sums_.size(); ++i) {
            const Node& node = graph_.producer(sums_[i]);
            const ValueId more =
                as_type(made, node, totals.at(sums_[i]), made.type(carries[i]).dtype);
            made.outputs.push_back(made.make(ops::add(), {more, carries[i]}, {}, node));
        }
        for (ValueId value : stacked_) made.outputs.push_back(parts.at(value));
        return made;
    }

    // An attribute named "shape" is the result's.
    Attrs attrs_of_part(const Node& node, bool sums) const {
        Attrs attrs = node.attrs;
        if (sums) return attrs;
        for (size_t i = 0; i < attrs.size(); ++i)
            if (node.op->attrs[i].name == "shape") attrs[i] = extents(part(node.outputs[0]));
        return attrs;
    }

    const Graph& graph_;
    const NodeId product_;
    int64_t wide_ = 0;  // elements
    int64_t rows_ = 0;
    std::vector<std::optional<RowRule>> rules_;  // by node; none: it stands outside
    std::vector<bool> depends_;  // by node: on what the head gives
    std::vector<ValueId> slices_, captured_, numbers_;  // what it takes: parts, wholes, constants
    std::vector<ValueId> sums_, stacked_;  // what it gives
    int64_t parts_ = 0;
};

// Condition 1.
bool may_begin(const Graph& graph, const Node& node) {
    if (node.kind != NodeKind::op || !multiplies(*node.op)) return false;
    const Type& wide = graph.type(node.outputs[0]);
    return wide.bytes() >= kLeast && wide.numel() >= kWider * graph.type(node.inputs[0]).numel();
}

}  // namespace

Graph part_rows(Graph graph) {
    for (size_t id = 0; id < graph.nodes().size(); ++id) {
        if (!may_begin(graph, graph.nodes()[id])) continue;
        if (auto made = Head(graph, static_cast<NodeId>(id)).as_scan())
            return part_rows(std::move(*made));
    }
    return graph;
}

}  // namespace megjit::jit
