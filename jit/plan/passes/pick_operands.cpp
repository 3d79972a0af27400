// A sum that picks one element of each row of an element-wise op's result picks it from the op's
// operand instead, and the op computes with what was picked: x[label] - lse for (x - lse)[label].
// Why: lse needs a walk over the row, after which the sum would walk once more. A sum is rewritten
// where
//   1. it adds up where(coordinates == place, y, 0) along the axis of the coordinates;
//   2. place is one checked index for each row, so that one element is picked;
//   3. y is made by the ops of kOps from row values and from one value of elements, or from none.
// A sum of zeros and -0 is 0, so that 0 is added where the last op might give -0; the ops make
// nothing else of -0 than of 0. So bits are kept.
#include <map>
#include <set>

#include "jit/plan/passes/passes.h"

namespace megjit::jit {
namespace {

constexpr int kMostOps = 16;  // that compute with what was picked

class Picker {
public:
    explicit Picker(const Graph& graph) : rewrite_(graph) {}

    Graph run() {
        for (const Node& node : graph().nodes())
            if (!place(node)) rewrite_.copy(node);
        return drop_dead(rewrite_.finish());
    }

private:
    const Graph& graph() const { return rewrite_.from; }
    const Type& type(ValueId value) const { return graph().type(value); }
    const Node& producer(ValueId value) const { return graph().producer(value); }

    bool is_zero(ValueId value) const {
        const Node& node = producer(value);
        if (node.op == &ops::full()) return std::get<double>(node.attrs[1]) == 0;
        return node.kind == NodeKind::constant && type(value).numel() == 1 &&
               type(value).dtype != runtime::DType::c64 &&
               runtime::item_as_double(*node.constant) == 0;
    }
    // Returns what is added to zeros.
    ValueId without_zeros(ValueId value) const {
        const Node& node = producer(value);
        if (node.op != &ops::add()) return value;
        for (const size_t i : {0, 1})
            if (is_zero(node.inputs[i]) && type(node.inputs[1 - i]) == type(value))
                return node.inputs[1 - i];
        return value;
    }

    // Conditions 1 and 2.
    bool picks(const Node& sum) {
        if (!sum.op || sum.op->reduction != runtime::Reduce::sum) return false;
        const Node& where = producer(without_zeros(sum.inputs[0]));
        if (where.op != &ops::where() || !is_zero(where.inputs[2])) return false;
        const ValueId here = where.inputs[0];
        if (producer(here).op != &ops::equal()) return false;
        const Node &line = producer(producer(here).inputs[0]),
                   &place = producer(producer(here).inputs[1]);
        if (line.op != &ops::coordinates() || place.op != &ops::checked_index()) return false;
        const std::vector<Type> operands = graph().types(sum.inputs);
        axis_ = static_cast<int>(std::get<int64_t>(line.attrs[1]));
        const runtime::Shape &space = operands[0].shape, &places = type(place.outputs[0]).shape;
        here_ = here;
        return type(here).shape == space && places.rank() == space.rank() && axis_ >= 0 &&
               runtime::reduced_axes({*sum.op, sum.attrs, operands}) == 1u << axis_ &&
               places[axis_] == 1 && std::get<int64_t>(place.attrs[0]) == axis_ &&
               std::get<int64_t>(place.attrs[1]) == space[axis_];
    }

    // Is the value the same along the axis?
    bool is_row_value(ValueId value) const {
        const runtime::Shape& shape = type(value).shape;
        const int own = axis_ - (type(here_).shape.rank() - shape.rank());
        return own < 0 || shape[own] == 1;
    }
    bool computes_elements(ValueId value) const {
        static const std::set<const OpDef*> kOps{&ops::add(), &ops::cast(), &ops::exp(),
                                                 &ops::log(), &ops::mul(),  &ops::neg(),
                                                 &ops::sub()};
        return !is_row_value(value) && kOps.contains(producer(value).op);
    }

    bool place(const Node& sum) {
        if (!picks(sum)) return false;
        const ValueId from = producer(without_zeros(sum.inputs[0])).inputs[1];
        if (!is_row_value(from) && !computes_elements(from)) return false;
        picked_.clear();
        ops_ = sums_ = 0;
        const ValueId made = picked(from, sum);
        runtime::Shape rows = type(here_).shape;
        rows[axis_] = 1;
        const Type &result = type(sum.outputs[0]), &own = rewrite_.to.type(made);
        if (ops_ > kMostOps || sums_ > 1 || !(own.shape == rows) || own.dtype != result.dtype)
            return false;
        const std::vector<int64_t> shape(result.shape.begin(), result.shape.end());
        const ValueId whole = rewrite_.to.make(ops::add(), {made, zero(own.dtype)}, {}, sum);
        rewrite_.replace(sum.outputs[0],
                         own.shape == result.shape
                             ? whole
                             : rewrite_.to.make(ops::reshape(), {whole}, {shape}, sum));
        return true;
    }

    // Returns one element of the value for each row.
    ValueId picked(ValueId value, const Node& sum) {
        if (is_row_value(value)) return rewrite_.map(value);
        const auto [known, is_new] = picked_.emplace(value, ValueId{});
        if (!is_new) return known->second;
        return known->second = computes_elements(value) && ++ops_ <= kMostOps
                                   ? computed(producer(value), sum)
                                   : sum_of_one(value, sum);
    }
    ValueId computed(const Node& node, const Node& sum) {
        std::vector<ValueId> operands;
        for (const ValueId input : node.inputs) operands.push_back(picked(input, sum));
        return rewrite_.to.make(*node.op, std::move(operands), node.attrs, sum);
    }
    ValueId sum_of_one(ValueId value, const Node& sum) {
        ++sums_;
        const ValueId one = rewrite_.to.make(
            ops::where(), {rewrite_.map(here_), rewrite_.map(value), zero(type(value).dtype)}, {},
            sum);
        return rewrite_.to.make(*sum.op, {one}, {std::vector<int64_t>{axis_}, int64_t{1}}, sum);
    }

    ValueId zero(runtime::DType dtype) {
        return rewrite_.to.add_constant(runtime::scalar_tensor(0, dtype));
    }

    Rewriter rewrite_;
    int axis_ = 0;  // of the sum at hand
    ValueId here_ = {};  // marks its elements
    std::map<ValueId, ValueId> picked_;  // by the value whose elements are picked
    int ops_ = 0, sums_ = 0;  // what was made
};

}  // namespace

Graph pick_operands(Graph graph) { return Picker(graph).run(); }

}  // namespace megjit::jit
