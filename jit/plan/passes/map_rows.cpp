// The gradient of a table of words is sums in the few rows that a text names, and zeros in all
// others. It is not written as a table, which updates would read: the sums lie in a tensor of as
// many rows as the text has words, with a row of zeros behind them, and a map has the row of sums
// for each row of the table. Kernels read the sums by the map (fuse_emit.cpp); what is no part of a
// kernel gets the rows of the table copied. An index_add is rewritten where
//   1. it adds rows to zeros, and does not find out first that one of the places is wrong: errors
//      name the op that the user called;
//   2. element-wise ops of the table's shape read the sums, and nobody else;
//   3. rows are long, as a kernel's loop ends with each of them, and it takes less time by Costs.
// Sums keep their bits: the words of a row are added to 0 in their order.
#include "jit/plan/passes/map_rows.h"

#include <algorithm>
#include <cmath>

#include "jit/plan/costs.h"
#include "jit/plan/failure_rule.h"
#include "jit/plan/known_places.h"
#include "jit/plan/passes/fusion_group.h"
#include "jit/plan/passes/strided_view.h"
#include "runtime/ops/known.h"

namespace megjit::jit {
namespace {

using Ints = std::vector<int64_t>;
using runtime::DType;

constexpr int64_t kLeastRowBytes = 256;
constexpr int kNewLaunches = 6;

class RowMapper {
public:
    explicit RowMapper(const Graph& graph)
        : graph_(graph),
          costs_(graph.device()),
          failures_(graph),
          readers_(graph.value_count()),
          rewrite_(graph) {
        for (const Node& node : graph.nodes())
            for (const ValueId input : node.inputs) readers_[at(input)].push_back(&node);
        // What the caller gets has a reader that is no node.
        for (const ValueId output : graph.outputs) readers_[at(output)].push_back(nullptr);
    }

    Graph run() {
        for (const Node& node : graph_.nodes())
            if (!failures_.may_be(node) && adds_to_zeros(node) && is_read_by_kernels(node) &&
                takes_less_time(node))
                map_rows_of(node);
            else rewrite_.copy(node);
        return drop_dead(rewrite_.finish());
    }

private:
    const Type& type(ValueId value) const { return graph_.type(value); }

    bool adds_to_zeros(const Node& node) const {
        if (node.op != &ops::index_add() || is_kept(node) ||
            std::get<Ints>(node.attrs[0]) != Ints{0})
            return false;
        const Node& zeros = graph_.producer(node.inputs[0]);
        return zeros.op == &ops::full() && std::get<double>(zeros.attrs[1]) == 0 &&
               !std::signbit(std::get<double>(zeros.attrs[1]));
    }

    bool is_read_by_kernels(const Node& node) const {
        const Type& table = type(node.outputs[0]);
        const std::vector<const Node*>& readers = readers_[at(node.outputs[0])];
        return table.dtype != DType::c64 && !readers.empty() &&
               std::ranges::all_of(readers, [&](const Node* reader) {
            return reader && part_of(*reader) == Part::elementwise &&
                   type(reader->outputs[0]).shape == table.shape;
        });
    }

    bool takes_less_time(const Node& node) const {
        const Type& table = type(node.outputs[0]);
        const auto rows = static_cast<double>(table.shape[0]),
                   words = static_cast<double>(type(node.inputs[2]).numel());
        if (words == 0 || table.numel() == 0) return false;
        const double row = static_cast<double>(table.bytes()) / rows;
        // Zeros and sums are written and read; so are the map, twice more, and each word's row.
        const double now = 2 * rows * row,
                     mapped = 2 * (words + 1) * row + sizeof(int32_t) * 4 * (rows + words);
        return row >= kLeastRowBytes &&
               costs_.traffic(mapped) + costs_.launches(kNewLaunches) < costs_.traffic(now);
    }

    ValueId make(const OpDef& op, std::vector<ValueId> inputs, Attrs attrs, const Node& like) {
        return rewrite_.to.make(op, std::move(inputs), std::move(attrs), like);
    }
    ValueId full(Ints shape, double value, DType dtype, const Node& like) {
        return make(ops::full(), {},
                    {std::move(shape), value, std::string(runtime::info(dtype).name)}, like);
    }

    // A row of the table is summed in the row of the last word that names it.
    void map_rows_of(const Node& node) {
        const Type &table = type(node.outputs[0]), &index = type(node.inputs[2]);
        const ValueId value = rewrite_.map(node.inputs[1]), words = rewrite_.map(node.inputs[2]);
        const int64_t count = index.numel();
        const Attrs rows = {Ints{0}};
        const ValueId own =
            make(ops::reshape(), {make(ops::coordinates(), {}, {Ints{count}, int64_t{0}}, node)},
                 {Ints(index.shape.begin(), index.shape.end())}, node);
        const ValueId map =
            make(ops::index_set(),
                 {full({table.shape[0]}, static_cast<double>(count), DType::i32, node), own, words},
                 rows, node);
        Ints shape(table.shape.begin(), table.shape.end());
        shape[0] = count + 1;
        const ValueId sums = make(ops::index_add(),
                                  {full(std::move(shape), 0, table.dtype, node), value,
                                   make(ops::index_get(), {map, words}, rows, node)},
                                  rows, node);
        const ValueId result = make(ops::index_get(), {sums, map}, rows, node);
        rewrite_.to.set_name(result, graph_.name(node.outputs[0]));
        rewrite_.replace(node.outputs[0], result);
    }

    const Graph& graph_;
    const Costs costs_;
    FirstFailures failures_;
    std::vector<std::vector<const Node*>> readers_;  // by value
    Rewriter rewrite_;
};

}  // namespace

Graph map_rows(Graph graph) {
    const auto adds_rows = [](const Node& node) { return node.op == &ops::index_add(); };
    return std::ranges::any_of(graph.nodes(), adds_rows) ? RowMapper(graph).run() : graph;
}

std::optional<MappedRows> mapped_rows(const Graph& graph, ValueId id) {
    const Node& node = graph.producer(id);
    if (node.op != &ops::index_get() || is_kept(node) || node.inputs.size() != 2 ||
        std::get<Ints>(node.attrs[0]) != Ints{0})
        return {};
    const Type &rows = graph.type(node.inputs[0]), &places = graph.type(node.inputs[1]);
    if (places.rank() != 1 || rows.layout != runtime::Layout::row_major ||
        !are_known_places(graph, node.inputs[1], rows.shape[0]))
        return {};
    return MappedRows{node.inputs[0], node.inputs[1]};
}

}  // namespace megjit::jit
