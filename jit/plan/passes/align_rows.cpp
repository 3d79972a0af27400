// Tensor cores want rows that begin at 16 bytes. A product of halves with others is one of larger
// matrices here: its factors get zeros after their rows, once for all products that read them, and
// its result is a part of the larger one, which kernels read by strides (fuse_emit.cpp).
// (backends/cuda/kernels/matmul.cpp copies all three matrices for each product; it does so
// only for products by themselves.) A product is rewritten where
//   1. its matrices are of halves, on a GPU;
//   2. each element of a matrix takes part in kLeastProducts multiplications: a copy costs less.
#include <algorithm>
#include <map>
#include <tuple>

#include "jit/plan/passes/passes.h"
#include "runtime/ops/matmul.h"

namespace megjit::jit {
namespace {

using runtime::DType;
using Ints = std::vector<int64_t>;

constexpr int64_t kLeastProducts = 256, kUnit = 8;  // elements that take 16 bytes

int64_t larger(int64_t extent) { return (extent + kUnit - 1) / kUnit * kUnit; }

// The extents of a product, and those of the larger one.
struct Extents {
    int64_t m = 0, n = 0, k = 0;
    bool operator==(const Extents&) const = default;
};

class RowAligner {
public:
    explicit RowAligner(const Graph& graph) : rewrite_(graph) {}

    Graph run() {
        for (const Node& node : rewrite_.from.nodes())
            if (!place(node)) rewrite_.copy(node);
        return rewrite_.finish();
    }

private:
    bool place(const Node& node) {
        if (node.op != &ops::matmul()) return false;
        const Graph& from = rewrite_.from;
        const std::vector<Type> factors = from.types(node.inputs),
                                results = from.types(node.outputs);
        const runtime::MatmulProblem p =
            runtime::matmul_problem({*node.op, node.attrs, factors}, results);
        if (!runtime::takes_halves(*node.op, results[0].dtype) || !p.batch.empty() ||
            factors[1].rank() != 2 || std::min({p.m, p.n, p.k}) < kLeastProducts)
            return false;
        const Extents now{p.m, p.n, p.k},
            all{p.ta ? larger(p.m) : p.m, larger(p.n), p.ta && !p.tb ? p.k : larger(p.k)};
        if (now == all) return false;
        Node fresh = node;
        fresh.inputs = {
            padded(node.inputs[0], p.ta ? Ints{all.k, all.m} : Ints{rows_of(factors[0]), all.k}),
            padded(node.inputs[1], p.tb ? Ints{all.n, all.k} : Ints{all.k, all.n})};
        Type type = results[0];
        const int rank = type.rank();
        type.shape[rank - 1] = all.n;
        if (p.ta) type.shape[rank - 2] = all.m;
        const ValueId whole = rewrite_.to.add(std::move(fresh), {&type, 1})[0];
        const runtime::Shape& shape = results[0].shape;
        const Ints begin(static_cast<size_t>(rank), 0), step(static_cast<size_t>(rank), 1);
        rewrite_.replace(
            node.outputs[0],
            type.shape == shape
                ? whole
                : rewrite_.to.make(ops::slice(), {whole},
                                   {begin, Ints(shape.begin(), shape.end()), step}, node));
        return true;
    }

    static int64_t rows_of(const Type& type) { return type.shape[type.rank() - 2]; }

    // Returns the value with zeros up to these extents of its last two axes.
    ValueId padded(ValueId value, const Ints& extents) {
        const Node& node = rewrite_.from.producer(value);
        const runtime::Shape& shape = rewrite_.from.type(value).shape;
        const int last = shape.rank() - 1;
        const bool grows_columns = shape[last] != extents[1],
                   grows_rows = shape[last - 1] != extents[0];
        if (!grows_columns && !grows_rows) return rewrite_.map(value);
        // Where a reshape keeps the columns, its operand is padded instead: others read that
        // operand, too.
        if (node.op == &ops::reshape() && !grows_rows) {
            const runtime::Shape& shown = rewrite_.from.type(node.inputs[0]).shape;
            if (shown.rank() > 1 && shown[shown.rank() - 1] == shape[last]) {
                Ints all(shape.begin(), shape.end());
                all.back() = extents[1];
                return rewrite_.to.make(
                    ops::reshape(), {padded(node.inputs[0], {shown[shown.rank() - 2], extents[1]})},
                    {all}, node);
            }
        }
        const auto key = std::tuple(value, extents[0], extents[1]);
        if (const auto known = padded_.find(key); known != padded_.end()) return known->second;
        if (!grows_rows)
            if (const auto whole = widened_with_zeros(value, shape[last], extents[1]))
                return padded_[key] = *whole;
        ValueId made = rewrite_.map(value);
        if (grows_rows) made = with_zeros(made, last - 1, extents[0], node);
        if (grows_columns) made = with_zeros(made, last, extents[1], node);
        return padded_[key] = made;
    }

    // Returns the value with more columns, which hold anything, where element-wise ops make it of
    // row values and of larger products; then nothing is copied.
    std::optional<ValueId> widened(ValueId value, int64_t columns, int64_t all) {
        const Type& type = rewrite_.from.type(value);
        const int last = type.rank() - 1;
        if (last < 0 || type.shape[last] == 1) return rewrite_.map(value);
        const Node &node = rewrite_.from.producer(value),
                   &now = rewrite_.to.producer(rewrite_.map(value));
        if (type.shape[last] != columns || node.kind != NodeKind::op) return {};
        Type wide = type;
        wide.shape[last] = all;
        if (now.op == &ops::slice() && rewrite_.to.type(now.inputs[0]) == wide &&
            std::ranges::all_of(std::get<Ints>(now.attrs[0]), [](int64_t b) { return b == 0; }))
            return now.inputs[0];
        const auto [known, is_new] = widened_.emplace(value, std::nullopt);
        if (is_new) known->second = widened_node(node, columns, all);
        return known->second;
    }
    std::optional<ValueId> widened_node(const Node& node, int64_t columns, int64_t all) {
        if (!has_shape(node) && !node.op->is_elementwise()) return {};
        std::vector<ValueId> operands;
        for (const ValueId input : node.inputs) {
            const std::optional<ValueId> operand = widened(input, columns, all);
            if (!operand || (has_shape(node) && *operand == rewrite_.map(input))) return {};
            operands.push_back(*operand);
        }
        return with_columns(node, std::move(operands), all);
    }
    static bool has_shape(const Node& node) {  // as its first attribute
        return node.op == &ops::full() || node.op == &ops::coordinates() ||
               node.op == &ops::reshape();
    }
    ValueId with_columns(const Node& node, std::vector<ValueId> operands, int64_t all) {
        runtime::Attrs attrs = node.attrs;
        if (has_shape(node)) std::get<Ints>(attrs[0]).back() = all;
        return rewrite_.to.make(*node.op, std::move(operands), std::move(attrs), node);
    }

    // Does what widened() does, with zeros in these columns. They are set before casts and reshapes
    // of the value, which keep them: what computes the value sets them, too, in one kernel.
    std::optional<ValueId> widened_with_zeros(ValueId value, int64_t columns, int64_t all) {
        const std::optional<ValueId> whole = widened(value, columns, all);
        const Node& node = rewrite_.from.producer(value);
        if (!whole || (node.op != &ops::cast() && node.op != &ops::reshape()))
            return whole ? std::optional(with_zeros_after(*whole, columns, node)) : std::nullopt;
        return with_columns(node, {*widened_with_zeros(node.inputs[0], columns, all)}, all);
    }
    ValueId with_zeros_after(ValueId whole, int64_t columns, const Node& like) {
        const Type& type = rewrite_.to.type(whole);
        const Ints shape(type.shape.begin(), type.shape.end());
        const ValueId place =
            rewrite_.to.make(ops::coordinates(), {}, {shape, int64_t{type.rank() - 1}}, like);
        const ValueId end = rewrite_.to.add_constant(
                          runtime::scalar_tensor(static_cast<double>(columns), DType::i32)),
                      zero = rewrite_.to.add_constant(runtime::scalar_tensor(0, type.dtype));
        const ValueId is_there = rewrite_.to.make(ops::less(), {place, end}, {}, like);
        return rewrite_.to.make(ops::where(), {is_there, whole, zero}, {}, like);
    }

    ValueId with_zeros(ValueId value, int axis, int64_t extent, const Node& like) {
        const Type& type = rewrite_.to.type(value);
        Ints shape(type.shape.begin(), type.shape.end());
        shape[static_cast<size_t>(axis)] = extent - type.shape[axis];
        const ValueId zeros = rewrite_.to.make(
            ops::full(), {}, {shape, 0.0, std::string(runtime::info(type.dtype).name)}, like);
        return rewrite_.to.make(ops::concat(), {value, zeros}, {int64_t{axis}}, like);
    }

    Rewriter rewrite_;
    std::map<std::tuple<ValueId, int64_t, int64_t>, ValueId> padded_;
    std::map<ValueId, std::optional<ValueId>> widened_;  // by old value
};

}  // namespace

Graph align_rows(Graph graph, const PipelineOptions& options) {
    if (graph.device().is_host() || options.products == Products::generated) return graph;
    return drop_dead(RowAligner(graph).run());
}

}  // namespace megjit::jit
