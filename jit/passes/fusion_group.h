// jit/passes/fusion_group.h -- what fuse.cpp decides and fuse_emit.cpp turns into kernels: groups
// of nodes over one iteration space.
#pragma once

#include <optional>
#include <vector>

#include "jit/passes/passes.h"

namespace megjit::jit {

constexpr int kNoGroup = -1;

// How a value of a group lies in its space.
enum class Form : uint8_t {
    element,  // one for every index: the group's shape
    row_keep,  // one a row: the shape with 1 for each reduced axis
    row_drop,  // one a row: the shape without the reduced axes
};

struct Group {
    runtime::Shape shape;
    runtime::Layout layout = runtime::Layout::row_major;
    uint32_t reduced = 0;  // mask of the axes that its reductions run over; 0: element-wise
    int level = 0;
    std::vector<int> readers = {};  // groups that read it; kNoGroup: nodes without one
    std::vector<NodeId> nodes = {};  // in recorded order
    std::vector<ValueId> operands = {};  // distinct, from outside
    NodeId position = {};  // where in the recorded order it runs
    int era = 0;  // how many other ops are recorded before it
    int heavy = 0;  // nodes whose code is long and that need no reduction of the group

    runtime::Shape row_shape(Form form) const;
    // Is a row_drop operand that NumPy's rule broadcasts to the shape the row's own value? (It is
    // where the reduced axes come first; where they do not, it would be walked along other axes.)
    bool drop_broadcasts_as_row() const;
};

// What kind of part a node plays in a kernel.
enum class Part : uint8_t { none, elementwise, broadcast, reduction, reshape };
Part part_of(const Node& node);
uint32_t reduced_axes(const Graph& graph, const Node& node);  // mask over its operand's axes

// The groups of a graph, as the emitter needs them.
struct Grouping {
    const Graph& graph;
    std::vector<int> group_of;  // by node
    std::vector<Form> form_of;  // by node, for nodes with a group
    std::vector<Group> groups;
    std::vector<bool> escapes;  // by value: somebody outside of its group reads it
    std::vector<bool> stored;  // by value: somebody without a group reads it
    bool fold_dimshuffle = false;
    const std::set<std::string>* refused = nullptr;  // as in PipelineOptions

    int group_of_value(ValueId id) const { return group_of[at(graph.value(id).producer)]; }
};

// Adds the kernel of a group to `rewrite`, or its nodes as they were where a kernel would be no
// better.
void emit_group(const Grouping& grouping, int group, Rewriter& rewrite);

// The value from which a kernel reads `id`, past transposes and broadcasts whose work its strides
// can do, and its strides by axis of `space` (0 where it does not move).
struct Access {
    ValueId source;
    std::vector<int64_t> strides;
};
Access access_of(const Grouping& grouping, ValueId id, const runtime::Shape& space);

}  // namespace megjit::jit
