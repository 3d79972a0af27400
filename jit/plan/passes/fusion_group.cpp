#include "jit/plan/passes/fusion_group.h"

#include <algorithm>

namespace megjit::jit {

using runtime::Access;
using runtime::Shape;

Shape Group::row_shape(Form form) const {
    Shape result;
    for (int axis = 0; axis < shape.rank(); ++axis) {
        if (!(reduced >> axis & 1u)) result.push_back(shape[axis]);
        else if (form == Form::row_keep) result.push_back(1);
    }
    return result;
}

bool Group::drop_broadcasts_as_row() const { return (reduced & (reduced + 1)) == 0; }

Part part_of(const Node& node) {
    if (node.kind != NodeKind::op) return Part::none;
    if (node.op->is_elementwise()) return Part::elementwise;
    if (node.op->reduction || node.op->contraction) return Part::reduction;
    if (node.op->access == Access::broadcast) return Part::broadcast;
    if (node.op->access == Access::reshaped) return Part::reshape;
    return Part::none;
}

runtime::Contraction contraction_of(const Graph& graph, const Node& node) {
    const std::vector<Type> inputs = graph.types(node.inputs);
    return node.op->contraction({*node.op, node.attrs, inputs}).value_or(runtime::Contraction{});
}

bool is_product_of_floats(const Graph& graph, const Node& node) {
    if (!node.op || !node.op->contraction) return false;
    const auto is_one = [&](ValueId value) {
        const Type& type = graph.type(value);
        return type.layout == runtime::Layout::row_major &&
               runtime::compute_type(type.dtype) == runtime::ScalarType::f32;
    };
    return std::ranges::all_of(node.inputs, is_one) && is_one(node.outputs[0]);
}

std::vector<uint32_t> reader_counts(const Graph& graph) {
    std::vector<uint32_t> readers(graph.value_count());
    for (const Node& node : graph.nodes())
        for (const ValueId input : node.inputs) ++readers[at(input)];
    for (const ValueId output : graph.outputs) ++readers[at(output)];
    return readers;
}

namespace {

bool is_plain(const Type& type) {
    return type.layout == runtime::Layout::row_major && type.dtype != runtime::DType::c64;
}

// The kernel for a contraction that reads each element of its second factor a few times, or some
// hundred times.
std::optional<codegen::Lanes> lanes_with_makers(const Graph& graph, const Node& node) {
    constexpr int64_t kFewRows = 32, kLeastPanelRows = 16, kMostRows = 512;
    // On a GPU each row, or a tile of rows, reads and makes the weights again. With more rows the
    // library's faster product outweighs the weights' way through memory.
    constexpr int64_t kFewRowsOfGpu = 4, kMostRowsOfGpu = 32;
    if (!is_product_of_floats(graph, node)) return {};
    const auto [space, strides] = contraction_of(graph, node);
    if (space.rank() < 2 || space.numel() == 0) return {};
    const int64_t rows = space.numel() / graph.type(node.inputs[1]).numel();
    if (!graph.device().is_host()) {
        if (rows <= kFewRowsOfGpu && strides[1].back() == 1) return codegen::Lanes::last;
        return rows > 1 && rows <= kMostRowsOfGpu ? std::optional(codegen::Lanes::panels)
                                                  : std::nullopt;
    }
    if (rows <= kFewRows && strides[1].back() == 1) return codegen::Lanes::last;
    if (rows >= kLeastPanelRows && rows <= kMostRows) return codegen::Lanes::panels;
    return {};
}

}  // namespace

WeightMakers makers_of_weights(const Graph& graph, const PipelineOptions& options,
                               std::span<const uint32_t> readers, const Node& node) {
    constexpr size_t kFewOps = 8;
    if (options.exact || !options.fuse_reduce) return {};
    const std::optional<codegen::Lanes> lanes = lanes_with_makers(graph, node);
    if (!lanes) return {};
    std::vector<NodeId> makers;
    size_t bytes = 0;  // all that the makers read
    std::vector<ValueId> open{node.inputs[1]};
    while (!open.empty()) {
        const ValueId value = open.back();
        open.pop_back();
        const Node& maker = graph.producer(value);
        const Part part = part_of(maker);
        if (!is_plain(graph.type(value))) return {};
        if (readers[at(value)] == 1 && (part == Part::elementwise || part == Part::broadcast)) {
            makers.push_back(graph.value(value).producer);
            open.insert(open.end(), maker.inputs.begin(), maker.inputs.end());
        } else {
            bytes += graph.type(value).bytes();
        }
        if (makers.size() > kFewOps) return {};
    }
    if (bytes * 4 > graph.type(node.inputs[1]).bytes() * 3) return {};
    std::ranges::sort(makers);
    return {std::move(makers), *lanes};
}

Shape reduced_space(const Graph& graph, const Node& node) {
    return node.op->contraction ? contraction_of(graph, node).space
                                : graph.type(node.inputs[0]).shape;
}

uint32_t reduced_axes(const Graph& graph, const Node& node) {
    if (node.op->contraction) return 1u << (reduced_space(graph, node).rank() - 1);
    const std::vector<Type> inputs = graph.types(node.inputs);
    return runtime::reduced_axes({*node.op, node.attrs, inputs});
}

Grouping::Grouping(const Graph& graph, const PipelineOptions& options)
    : graph(graph),
      options(options),
      group_of(graph.nodes().size(), kNoGroup),
      own_level(graph.nodes().size()),
      form_of(graph.nodes().size()),
      choices(graph.nodes().size()) {
    std::vector<bool> is_read(graph.value_count());  // by an element-wise op of the same shape
    for (size_t n = graph.nodes().size(); n-- > 0;) {
        const Node& node = graph.nodes()[n];
        if (part_of(node) == Part::elementwise)
            for (const ValueId input : node.inputs)
                if (graph.type(input).shape == graph.type(node.outputs[0]).shape)
                    is_read[at(input)] = true;
        if (node.op && node.op->contraction &&
            (is_read[at(node.outputs[0])] || generates_alone(node)))
            choices[n] = choose_product(graph, node, options);
    }
}

bool Grouping::generates_alone(const Node& product) const {
    return product.op && product.op->contraction && options.products == Products::generated &&
           !graph.device().is_host();
}

int Grouping::level_of(NodeId id) const {
    const int g = group_of[at(id)];
    return g == kNoGroup ? own_level[at(id)] : group(g).level;
}

std::vector<ValueId> Grouping::joint_operands(int a, int b) const {
    std::vector<ValueId> operands;
    for (int g : {a, b})
        for (ValueId operand : group(g).operands)
            if (group_of_value(operand) != a && group_of_value(operand) != b &&
                std::find(operands.begin(), operands.end(), operand) == operands.end())
                operands.push_back(operand);
    return operands;
}

void Grouping::absorb(int a, int b) {
    std::vector<ValueId> operands = joint_operands(a, b);
    Group &from = group(a), &to = group(b);
    for (NodeId node : from.nodes) group_of[at(node)] = b;
    std::vector<NodeId> nodes;
    std::merge(from.nodes.begin(), from.nodes.end(), to.nodes.begin(), to.nodes.end(),
               std::back_inserter(nodes));
    to.nodes = std::move(nodes);
    to.operands = std::move(operands);
    to.level = std::max(from.level, to.level);
    to.position = std::max(from.position, to.position);
    to.era = std::max(from.era, to.era);
    to.reduced |= from.reduced;
    to.heavy += from.heavy;
    to.readers.clear();
    from = {};
}

void Grouping::find_escaping() {
    escapes.assign(graph.value_count(), false);
    stored.assign(graph.value_count(), false);
    for (size_t id = 0; id < graph.nodes().size(); ++id)
        for (ValueId input : graph.nodes()[id].inputs) {
            if (group_of[id] == kNoGroup) stored[at(input)] = true;
            if (group_of[id] == kNoGroup || group_of_value(input) != group_of[id])
                escapes[at(input)] = true;
        }
    for (ValueId output : graph.outputs) escapes[at(output)] = stored[at(output)] = true;
}

}  // namespace megjit::jit
