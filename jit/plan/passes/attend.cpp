// Attention that a program writes itself, product, scale, mask, softmax, dropout, product, becomes
// the op attention, and its backward the op's gradient. Why: both compute the scores in blocks that
// stay in a cache, so that nothing as large as the scores is stored, or kept for backward.
//
// What is found, in the order of the program:
//   s = q k', with k either way up; then any of  s * number, s / number;  then any of  s + mask,
//   where(seen, s, other), where(hidden, other, s), with masks and others that broadcast to s;
//   p = softmax(s) over the last axis; d = p * dropout_mask, or p;  y = d v
// and in backward what autodiff makes of these. It becomes attention if
//   1. nobody else reads, and the graph does not return, a value as large as the scores: the
//      gradient of a mask, or a program that looks at the weights, keeps them in any case;
//   2. no such value is marked by jit.keep or jit.offload;
//   3. the device has attention for these types that is better than its parts;
//   4. masks act as written: the op adds them one after the other, as many as it can (a number such
//   as -1e9 takes the scores' place by rounding, and where it hides all keys of a query, what is
//   left of the scores decides), and never adds what `where` selects. Halves, which the op adds in
//   float32, are left to the parts where a mask is added.
#include <algorithm>
#include <map>

#include "jit/plan/passes/passes.h"
#include "runtime/core/op.h"
#include "runtime/ops/attention.h"

namespace megjit::jit {
namespace {

using Ints = std::vector<int64_t>;

// An op between the product and softmax.
struct ScoreOp {
    const Node* node = nullptr;
    size_t operand = 0;  // which of its operands the scores are
};

// A mask is added; or it is the condition of `where`, and says by `keeps` whether the scores stay
// where `value` is true or where it is false. Elsewhere they are `other`.
struct Mask {
    ValueId value = {};
    std::optional<bool> keeps = {};
    ValueId other = {};
};

struct Attention {
    const Node *product = nullptr, *result = nullptr;  // q k' and d v
    ValueId weights = {}, dropped = {};  // p and d
    std::vector<ScoreOp> steps = {};
    std::vector<Mask> masks = {};
    double scale = 1, drop_prob = 0;
    std::optional<ValueId> random_key = {}, factors = {};
    // Backward begins at dy v'. It gives gradients; those that nobody wants are null.
    const Node *begin = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
    ValueId dy = {};

    ValueId q() const { return product->inputs[0]; }
    ValueId k() const { return product->inputs[1]; }
    ValueId v() const { return result->inputs[1]; }
};

bool is_product(const Node& node, bool transpose_a, std::optional<bool> transpose_b = {}) {
    return node.op == &ops::matmul() && (std::get<int64_t>(node.attrs[0]) != 0) == transpose_a &&
           (!transpose_b || (std::get<int64_t>(node.attrs[1]) != 0) == *transpose_b);
}
bool is_k_transposed(const Attention& a) { return std::get<int64_t>(a.product->attrs[1]) != 0; }

// How many masks the op adds. (They are added apart to values that replace scores.)
int64_t added_masks(const Attention& a) {
    return std::ranges::count_if(a.masks, [](const Mask& mask) { return !mask.keeps; });
}
bool hides(const Attention& a) { return added_masks(a) < std::ssize(a.masks); }

// A query that sees no key gets NaN, as softmax gives it.
Attrs attrs_of(const Attention& a) {
    return {a.scale, int64_t{0}, added_masks(a), a.drop_prob, int64_t{hides(a)}, int64_t{0}};
}
// Puts axes of 1 in front.
runtime::Shape of_four_axes(const runtime::Shape& shape) {
    runtime::Shape four;
    for (int axis = shape.rank(); axis < 4; ++axis) four.push_back(1);
    for (int64_t extent : shape) four.push_back(extent);
    return four;
}

class Finder {
public:
    explicit Finder(const Graph& graph) : graph_(graph), readers_(graph.value_count()) {
        for (const Node& node : graph.nodes())
            for (ValueId input : node.inputs) readers_[at(input)].push_back(&node);
        returned_.resize(graph.value_count());
        for (ValueId output : graph.outputs) returned_[at(output)] = true;
    }

    std::optional<Attention> find(const Node& softmax) const {
        const Type& scores = graph_.type(softmax.inputs[0]);
        const int rank = scores.rank();
        if (rank < 2 || rank > 4 || scores.numel() == 0 ||
            runtime::normalize_axis(std::get<int64_t>(softmax.attrs[0]), rank, softmax.op->name) !=
                rank - 1)
            return {};
        Attention a{.weights = softmax.outputs[0], .dropped = softmax.outputs[0]};
        if (!find_product(softmax.inputs[0], a) || !find_result(a)) return {};
        if (!has_like_batches(a) || !find_backward(a)) return {};
        return a;
    }

private:
    using Readers = std::vector<const Node*>;
    const Readers& readers(ValueId value) const { return readers_[at(value)]; }
    // Do `count` nodes read the value, and nobody outside of the graph?
    bool is_read(ValueId value, size_t count) const {
        const Node& producer = graph_.producer(value);
        return !returned_[at(value)] && !producer.marks.stays && !producer.marks.is_offloaded &&
               readers(value).size() == count;
    }
    ValueId before_broadcast(ValueId value) const {
        const Node& node = graph_.producer(value);
        const bool is_broadcast = node.op && node.op->access == runtime::Access::broadcast;
        return is_broadcast ? before_broadcast(node.inputs[0]) : value;
    }
    // Returns the number that all elements of the value are.
    std::optional<double> number(ValueId value) const {
        const Node& node = graph_.producer(before_broadcast(value));
        if (node.op == &ops::full()) return std::get<double>(node.attrs[1]);
        if (node.kind != NodeKind::constant || node.constant->type().numel() != 1) return {};
        return runtime::item_as_double(*node.constant);
    }
    bool is_mask(ValueId value, const Type& scores, bool is_bool) const {
        const Type& mask = graph_.type(value);
        if (mask.rank() > scores.rank() ||
            mask.dtype != (is_bool ? runtime::DType::b8 : scores.dtype))
            return false;
        const int before = scores.rank() - mask.rank();
        for (int axis = 0; axis < mask.rank(); ++axis)
            if (mask.shape[axis] != 1 && mask.shape[axis] != scores.shape[before + axis])
                return false;
        return true;
    }

    // Walks from softmax back to the product.
    bool find_product(ValueId s, Attention& a) const {
        if (!is_read(s, 1)) return false;
        const Node& node = graph_.producer(s);
        if (is_product(node, false)) {
            a.product = &node;
            return true;
        }
        if (!node.op) return false;
        for (size_t operand = 0; operand < node.inputs.size(); ++operand) {
            if (!(graph_.type(node.inputs[operand]) == graph_.type(s))) continue;
            Attention found = a;
            if (find_product(node.inputs[operand], found) && take_step(node, operand, found)) {
                found.steps.push_back({&node, operand});
                a = std::move(found);
                return true;
            }
        }
        return false;
    }
    bool take_step(const Node& node, size_t operand, Attention& a) const {
        const Type& scores = graph_.type(node.inputs[operand]);
        if (node.op == &ops::add() && is_mask(node.inputs[1 - operand], scores, false)) {
            a.masks.push_back({.value = node.inputs[1 - operand]});
            return scores.dtype == runtime::DType::f32 &&
                   added_masks(a) <= runtime::AttentionProblem::kMostMasks;
        }
        if (node.op == &ops::where() && operand > 0 && is_mask(node.inputs[0], scores, true)) {
            const ValueId other = node.inputs[3 - operand], small = before_broadcast(other);
            a.masks.push_back({.value = node.inputs[0],
                               .keeps = operand == 1,
                               .other = is_mask(small, scores, false) ? small : other});
            return is_mask(a.masks.back().other, scores, false);
        }
        const bool divides = node.op == &ops::true_div() && operand == 0;
        if ((node.op != &ops::mul() && !divides) || !a.masks.empty()) return false;
        const std::optional<double> factor = number(node.inputs[1 - operand]);
        if (factor) a.scale = divides ? a.scale / *factor : a.scale * *factor;
        return factor.has_value();
    }

    // Walks from softmax through dropout to the product with v.
    bool find_result(Attention& a) const {
        for (const Node* reader : readers(a.weights)) {
            if (reader->op != &ops::mul()) continue;
            const ValueId other = reader->inputs[reader->inputs[0] == a.weights ? 1 : 0];
            const Node& mask = graph_.producer(other);
            if (mask.op != &ops::dropout_mask() || !(graph_.type(other) == graph_.type(a.weights)))
                continue;
            a.factors = other;
            a.random_key = mask.inputs[0];
            a.drop_prob = std::get<double>(mask.attrs[1]);
            a.dropped = reader->outputs[0];
        }
        for (const Node* reader : readers(a.dropped))
            if (is_product(*reader, false, false) && reader->inputs[0] == a.dropped)
                a.result = reader;
        return a.result && a.result->inputs[1] != a.dropped;
    }
    bool has_like_batches(const Attention& a) const {
        const Type &q = graph_.type(a.q()), &k = graph_.type(a.k()), &v = graph_.type(a.v());
        if (q.rank() != k.rank() || q.rank() != v.rank()) return false;
        for (int axis = 0; axis + 2 < q.rank(); ++axis)
            if (q.shape[axis] != k.shape[axis] || q.shape[axis] != v.shape[axis]) return false;
        return true;
    }

    // What autodiff makes of `dy` after an element-wise op, for that operand: where it is an op,
    // `gradient` must be an application of it.
    bool is_gradient(const Node& gradient, const Node& of, size_t operand, ValueId dy) const {
        const runtime::DerivedGrad* const derived = runtime::derive_grad(
            *of.op, graph_.types(of.inputs), graph_.type(of.outputs[0]), static_cast<int>(operand));
        return derived && !derived->is_identity && gradient.op == derived->op &&
               gradient.inputs.back() == dy;
    }

    // False where something else reads what attention does not keep. Without backward nothing does.
    bool find_backward(Attention& a) const {
        const Node* const dropout = a.factors ? &graph_.producer(a.dropped) : nullptr;
        for (const Node* reader : readers(a.dropped))
            if (is_product(*reader, true, false) && reader->inputs[0] == a.dropped) a.dv = reader;
        const size_t of_dropped = a.dv ? 2 : 1;
        const bool ends_here = dropout ? is_read(a.weights, 1) && is_read(*a.factors, 1) &&
                                             is_read(a.dropped, of_dropped)
                                       : is_read(a.weights, of_dropped);
        if (!ends_here) return find_softmax_grad(a, dropout, of_dropped);
        if (a.dv) a.begin = a.dv, a.dy = a.dv->inputs[1];
        return !a.dv || a.result < a.begin;
    }
    // ds = p * (dp - sum(p * dp))
    bool find_softmax_grad(Attention& a, const Node* dropout, size_t of_dropped) const {
        const Node *ds = nullptr, *difference = nullptr, *weighted = nullptr;
        for (const Node* reader : readers(a.weights)) {
            if (reader->op != &ops::mul() || reader == dropout) continue;
            const Node& other =
                graph_.producer(reader->inputs[reader->inputs[0] == a.weights ? 1 : 0]);
            (other.op == &ops::sub() ? ds : weighted) = reader;
            if (other.op == &ops::sub()) difference = &other;
        }
        if (!ds || !weighted) return false;
        if (dropout ? !is_read(a.weights, 3) || !is_read(a.dropped, of_dropped)
                    : !is_read(a.weights, 2 + of_dropped))
            return false;
        const ValueId dp = difference->inputs[0], sum = difference->inputs[1];
        const Node& mean = graph_.producer(sum);
        runtime::Shape rows = graph_.type(dp).shape;
        rows[rows.rank() - 1] = 1;
        const bool is_softmax_grad =
            mean.op && mean.op->reduction == runtime::Reduce::sum &&
            mean.inputs[0] == weighted->outputs[0] && graph_.type(sum).shape == rows &&
            std::ranges::find(weighted->inputs, dp) != weighted->inputs.end() && is_read(dp, 2) &&
            is_read(sum, 1) && is_read(weighted->outputs[0], 1) &&
            is_read(difference->outputs[0], 1);
        return is_softmax_grad && find_begin(dp, dropout, a) && find_ends(ds->outputs[0], a);
    }
    bool find_begin(ValueId dp, const Node* dropout, Attention& a) const {
        const Node* begin = &graph_.producer(dp);
        if (dropout) {
            const size_t operand = dropout->inputs[0] == a.weights ? 0 : 1;
            if (!is_read(*a.factors, 2) || begin->inputs.empty() ||
                !is_gradient(*begin, *dropout, operand, begin->inputs.back()) ||
                !is_read(begin->inputs.back(), 1))
                return false;
            begin = &graph_.producer(begin->inputs.back());
        }
        if (!is_product(*begin, false, true) || begin->inputs[1] != a.v()) return false;
        a.begin = a.dv ? std::min(begin, a.dv) : begin;  // nodes stand in the graph's order
        a.dy = begin->inputs[0];
        return a.result < a.begin && (!a.dv || a.dv->inputs[1] == a.dy);
    }
    // Walks from ds back through the steps to the gradients of q and k.
    bool find_ends(ValueId ds, Attention& a) const {
        for (auto step = a.steps.rbegin(); step != a.steps.rend(); ++step) {
            if (step->node->op == &ops::add()) continue;  // its gradient is ds itself
            if (!is_read(ds, 1) || !is_gradient(*readers(ds)[0], *step->node, step->operand, ds))
                return false;
            ds = readers(ds)[0]->outputs[0];
        }
        const bool turned = is_k_transposed(a);
        for (const Node* reader : readers(ds)) {
            if (reader->op != &ops::matmul()) return false;
            const ValueId left = reader->inputs[0], right = reader->inputs[1];
            if (is_product(*reader, false, !turned) && left == ds && right == a.k()) a.dq = reader;
            else if (is_product(*reader, true, false) && left == (turned ? ds : a.q()) &&
                     right == (turned ? a.q() : ds))
                a.dk = reader;
        }
        return is_read(ds, size_t{a.dq != nullptr} + size_t{a.dk != nullptr});
    }

    const Graph& graph_;
    std::vector<Readers> readers_;  // by value
    std::vector<bool> returned_;
};

class Attender {
public:
    Attender(const Graph& graph, std::vector<Attention> found) : rewrite_(graph) {
        found_ = std::move(found);
        for (size_t i = 0; i < found_.size(); ++i) {
            const Attention& a = found_[i];
            for (const Node* node : {a.result, a.begin, a.dq, a.dk, a.dv})
                if (node) of_[node] = i;
        }
        made_.resize(found_.size());
    }

    Graph run() {
        for (const Node& node : rewrite_.from.nodes()) {
            const auto found = of_.find(&node);
            if (found == of_.end()) {
                rewrite_.copy(node);
                continue;
            }
            const Attention& a = found_[found->second];
            Made& made = made_[found->second];
            if (&node == a.result) forward(a, made);
            if (&node == a.begin) backward(a, made), rewrite_.copy(node);
            if (&node == a.dq) give(node, made.grads[0]);
            if (&node == a.dk)
                give(node, is_k_transposed(a) ? made.grads[1] : turned(made.grads[1], node));
            if (&node == a.dv) give(node, made.grads[2]);
        }
        return drop_dead(rewrite_.finish());
    }

private:
    struct Made {
        std::vector<ValueId> operands;  // q, k, v, then mask and key
        ValueId y = {}, lse = {};
        std::vector<ValueId> grads;
    };

    Graph& to() { return rewrite_.to; }

    ValueId reshaped(ValueId x, const runtime::Shape& shape, const Node& like) {
        if (to().type(x).shape == shape) return x;
        return to().make(ops::reshape(), {x}, {Ints(shape.begin(), shape.end())}, like);
    }
    ValueId of_four_axes(ValueId x, const Node& like) {
        return reshaped(x, jit::of_four_axes(to().type(x).shape), like);
    }
    ValueId in_float32(ValueId x, const Node& like) {
        if (to().type(x).dtype == runtime::DType::f32) return x;
        return to().make(ops::cast(), {x}, {std::string("float32")}, like);
    }
    // Exchanges the last two axes; two transposes become one.
    ValueId turned(ValueId x, const Node& like) {
        const int rank = to().type(x).rank();
        Ints perm(static_cast<size_t>(rank));
        for (int axis = 0; axis < rank; ++axis) perm[static_cast<size_t>(axis)] = axis;
        std::swap(perm[static_cast<size_t>(rank - 1)], perm[static_cast<size_t>(rank - 2)]);
        const Node& producer = to().producer(x);
        if (producer.op == &ops::transpose()) {
            const auto& before = std::get<Ints>(producer.attrs[0]);
            for (int64_t& axis : perm) axis = before[static_cast<size_t>(axis)];
            x = producer.inputs[0];
        }
        return to().make(ops::transpose(), {x}, {perm}, like);
    }
    void give(const Node& node, ValueId value) {
        rewrite_.replace(node.outputs[0],
                         reshaped(value, rewrite_.from.type(node.outputs[0]).shape, node));
    }

    ValueId of_scores(ValueId x, const Node& like) {
        return in_float32(of_four_axes(rewrite_.map(x), like), like);
    }
    // The op takes after v the masks that are added, then which scores stay, then what the others
    // are.
    void add_masks(const Attention& a, std::vector<ValueId>& operands) {
        const Node& like = *a.result;
        std::optional<ValueId> seen, hidden;
        for (const Mask& mask : a.masks) {
            if (!mask.keeps) {
                const ValueId added = of_scores(mask.value, like);
                operands.push_back(added);
                if (hidden) hidden = to().make(ops::add(), {*hidden, added}, {}, like);
                continue;
            }
            const ValueId value = of_four_axes(rewrite_.map(mask.value), like),
                          other = of_scores(mask.other, like),
                          stays = *mask.keeps ? value
                                              : to().make(ops::logical_not(), {value}, {}, like);
            hidden = hidden ? to().make(ops::where(), {stays, *hidden, other}, {}, like) : other;
            seen = seen ? to().make(ops::logical_and(), {*seen, stays}, {}, like) : stays;
        }
        if (seen) operands.insert(operands.end(), {*seen, *hidden});
    }
    void forward(const Attention& a, Made& made) {
        const Node& like = *a.result;
        const ValueId k = rewrite_.map(a.k());
        made.operands = {of_four_axes(rewrite_.map(a.q()), like),
                         of_four_axes(is_k_transposed(a) ? k : turned(k, like), like),
                         of_four_axes(rewrite_.map(a.v()), like)};
        add_masks(a, made.operands);
        if (a.random_key) made.operands.push_back(rewrite_.map(*a.random_key));
        const std::vector<ValueId> results =
            to().add_op(ops::attention(), made.operands, attrs_of(a), like);
        made.y = results[0], made.lse = results[1];
        give(like, made.y);
    }
    void backward(const Attention& a, Made& made) {
        std::vector<ValueId> inputs(made.operands.begin(), made.operands.begin() + 3);
        inputs.insert(inputs.end(), {made.y, made.lse, of_four_axes(rewrite_.map(a.dy), *a.begin)});
        inputs.insert(inputs.end(), made.operands.begin() + 3, made.operands.end());
        made.grads = to().add_op(ops::attention_grad(), std::move(inputs), attrs_of(a), *a.begin);
    }

    Rewriter rewrite_;
    std::vector<Attention> found_;
    std::map<const Node*, size_t> of_;
    std::vector<Made> made_;
};

// Rule 3.
bool pays(const Graph& graph, const Attention& a) {
    std::vector<Type> types;
    for (ValueId operand : {a.q(), a.k(), a.v()}) {
        const Type& type = graph.type(operand);
        types.push_back({type.dtype, of_four_axes(type.shape)});
    }
    if (!is_k_transposed(a)) std::swap(types[1].shape[2], types[1].shape[3]);
    const Type mask{runtime::DType::f32, {1, 1, 1, 1}}, seen{runtime::DType::b8, mask.shape};
    types.insert(types.end(), static_cast<size_t>(added_masks(a)), mask);
    if (hides(a)) types.insert(types.end(), {seen, mask});
    if (a.random_key) types.push_back({runtime::DType::i32, {4}});
    const Attrs attrs = attrs_of(a);
    return graph.device().computes_whole({ops::attention(), attrs, types});
}

}  // namespace

Graph attend(Graph graph) {
    std::vector<Attention> found;
    std::optional<Finder> finder;
    for (const Node& node : graph.nodes()) {
        if (node.op != &ops::softmax()) continue;
        if (!finder) finder.emplace(graph);
        std::optional<Attention> attention = finder->find(node);
        if (attention && pays(graph, *attention)) found.push_back(std::move(*attention));
    }
    return found.empty() ? graph : Attender(graph, std::move(found)).run();
}

}  // namespace megjit::jit
